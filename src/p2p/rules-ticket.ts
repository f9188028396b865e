/**
 * The ticket of a node: its machines with their addresses, and the websocket addresses of one of its
 * communities, from which gaps are filled. Pure. It holds no secret; whoever has it can connect.
 */
import { z } from 'zod';

const PREFIX = 'minato1';
export const TICKET_LENGTH_MAX = 8_000;
const MACHINES_MAX = 16;
const ADDRESSES_MAX = 16;
const URLS_MAX = 8;

/** An address of iroh: an IP address and a UDP port. Names are not looked up. */
export const udpAddress = z
  .string()
  .regex(
    /^(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:.%]{2,64}\]):\d{1,5}$/,
    'an IP address with a UDP port, such as 192.0.2.1:7448 or [2001:db8::1]:7448',
  );
const machineId = z.string().regex(/^[0-9a-f]{64}$/);
const relayUrl = z
  .string()
  .max(500)
  .regex(/^wss?:\/\/[^\s]+$/);

const schema = z.object({
  machines: z
    .array(z.object({ id: machineId, addresses: z.array(udpAddress).max(ADDRESSES_MAX) }))
    .min(1)
    .max(MACHINES_MAX),
  urls: z.array(relayUrl).max(URLS_MAX),
});

export type Ticket = z.output<typeof schema>;
export type Machine = Ticket['machines'][number];

export function writeTicket({ machines, urls }: Ticket): string {
  const kept = {
    machines: machines
      .slice(0, MACHINES_MAX)
      .map(({ id, addresses }) => ({ id, addresses: addresses.slice(0, ADDRESSES_MAX) })),
    urls: urls.slice(0, URLS_MAX),
  };
  return PREFIX + Buffer.from(JSON.stringify(kept)).toString('base64url');
}

/** Undefined if the text is not a ticket. */
export function readTicket(text: string): Ticket | undefined {
  const given = text.trim();
  if (!given.startsWith(PREFIX) || given.length > TICKET_LENGTH_MAX) return undefined;
  try {
    const json: unknown = JSON.parse(Buffer.from(given.slice(PREFIX.length), 'base64url').toString('utf8'));
    return schema.safeParse(json).data;
  } catch {
    return undefined;
  }
}

/** Two tickets of the same node share a machine. */
export function isSameNode(one: Ticket, other: Ticket): boolean {
  const ids = new Set(one.machines.map(({ id }) => id));
  return other.machines.some(({ id }) => ids.has(id));
}

export const ticketText = z
  .string()
  .max(TICKET_LENGTH_MAX)
  .refine((text) => readTicket(text) !== undefined, 'not a ticket: "minato p2p ticket" prints one');
