/** The HTTP API of gossip, for operators of the node: its state, its ticket, and the nodes it begins with. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Call, type Route, route } from '../api/contract.js';
import { type NodeOperators, refuseOthers } from '../api/node-operators.js';
import { isDenial } from '../api/rules-errors.js';
import { milliseconds } from '../api/schemas.js';
import { readNodeSettings } from '../communities/node-settings.sql.js';
import { joinPeer, type KnownPeer, leavePeer } from './peers.js';
import type { P2pState } from './rules-state.js';
import { TICKET_LENGTH_MAX } from './rules-ticket.js';
import { RELAY_NOTE, readP2pStatus } from './status.js';
import { ticketOf } from './ticket.js';

const P2P = '/admin/p2p';
const PEERS = `${P2P}/peers`;
const WHAT = 'Gossip belongs to the whole node';
const count = z.number().int();
const machineId = z.string().regex(/^[0-9a-f]{8,64}$/);

export interface P2pRouteOptions extends NodeOperators {
  readonly pool: Pool;
}

const peer = z.strictObject({
  machines: z.array(z.strictObject({ id: z.string(), addresses: z.array(z.string()) })),
  urls: z.array(z.string()).describe('Gaps are filled from these relays'),
});
const showPeer = ({ machines, urls }: KnownPeer) => ({ machines, urls });
const peerList = z.strictObject({ items: z.array(peer) });

const state = z.strictObject({
  problem: z.string().nullable().describe('Why the endpoint is not open'),
  since: milliseconds,
  port_taken: z.boolean().describe('Another program has the UDP port p2p.port, and iroh has bound another'),
  relay: z.string().nullable().describe('The public relay server of iroh; it cannot be switched off'),
  topics: count.describe('Joined gossip topics'),
  topics_wanted: count.describe('The same without p2p.topicsMax'),
  neighbours: z.array(z.strictObject({ machine: z.string(), topics: count })),
  dropped: z.array(z.string()).describe('Machines that are ignored for a while'),
  offset: count.describe('Changes up to this offset of the outbox have been sent'),
  sent: z.strictObject({ events: count, messages: count }),
  received: z.strictObject({
    messages: count,
    accepted: count,
    duplicates: count,
    refused: count,
    invalid: count,
    discarded: count,
  }),
  lagged: count.describe('Times that iroh lost messages, because this node was too slow'),
  catch_up: z.strictObject({
    available: z.boolean(),
    waiting: count,
    done: count,
    failed: count,
    last_error: z.string().nullable(),
  }),
});

function showState(found: P2pState): z.output<typeof state> {
  const { counts, catchUp } = found;
  return {
    problem: found.problem,
    since: found.since,
    port_taken: found.isPortTaken,
    relay: found.relay,
    topics: found.topics,
    topics_wanted: found.topicsWanted,
    neighbours: [...found.neighbours],
    dropped: [...found.dropped],
    offset: found.offset,
    sent: { events: counts.sentEvents, messages: counts.sentMessages },
    received: {
      messages: counts.receivedMessages,
      accepted: counts.accepted,
      duplicates: counts.duplicates,
      refused: counts.refused,
      invalid: counts.invalid,
      discarded: counts.discarded,
    },
    lagged: counts.lagged,
    catch_up: {
      available: catchUp.available,
      waiting: catchUp.waiting,
      done: catchUp.done,
      failed: catchUp.failed,
      last_error: catchUp.lastError,
    },
  };
}

export function p2pRoutes(options: P2pRouteOptions): Route[] {
  const { pool } = options;
  const shared = { tags: ['admin: p2p'], who: 'operator' } as const;
  const refuse = (call: Call<'operator'>) => refuseOthers(options, call, WHAT);
  return [
    route({
      ...shared,
      method: 'GET',
      url: P2P,
      summary: 'Gossip with other nodes: state, machines, ticket and known peers',
      response: z.strictObject({
        enabled: z.boolean(),
        held: z.boolean().describe('An instance holds the endpoint'),
        ticket: z.string().nullable().describe('With it other nodes join; NIP-11 has it too'),
        machines: z.array(
          z.strictObject({ id: z.string(), addresses: z.array(z.string()), seen_at: milliseconds }),
        ),
        state: state.nullable().describe('As the machine with the endpoint has written it last'),
        peers: z.array(peer),
        note: z.string(),
      }),
      errors: [],
      handler: async (call) => {
        const refused = refuse(call);
        if (refused !== undefined) return refused;
        const status = await readP2pStatus(pool, await readNodeSettings(pool), call.now);
        return {
          enabled: status.enabled,
          held: status.isHeld,
          ticket: ticketOf(call.community, status.machines) ?? null,
          machines: status.machines.map(({ machine, addresses, seenAt }) => ({
            id: machine,
            addresses: [...addresses],
            seen_at: seenAt,
          })),
          state: status.state && showState(status.state),
          peers: status.peers.map(showPeer),
          note: RELAY_NOTE,
        };
      },
    }),
    route({
      ...shared,
      method: 'POST',
      url: PEERS,
      summary: 'Join the gossip of another node by its ticket',
      description: 'Adds the ticket to the setting p2p.peers. A newer ticket of a known node replaces it.',
      body: z.strictObject({ ticket: z.string().max(TICKET_LENGTH_MAX) }),
      response: peerList,
      errors: ['VERSION_MISMATCH'],
      handler: async (call) => {
        const refused = refuse(call);
        if (refused !== undefined) return refused;
        const peers = await joinPeer(pool, call.body.ticket, { actor: call.pubkey, now: call.now });
        return isDenial(peers) ? peers : { items: peers.map(showPeer) };
      },
    }),
    route({
      ...shared,
      method: 'DELETE',
      url: `${PEERS}/:machine`,
      summary: 'Leave a node: by the id of one of its machines, or the beginning of it',
      params: z.strictObject({ machine: machineId }),
      response: peerList,
      errors: ['NOT_FOUND', 'VERSION_MISMATCH'],
      handler: async (call) => {
        const refused = refuse(call);
        if (refused !== undefined) return refused;
        const peers = await leavePeer(pool, call.params.machine, { actor: call.pubkey, now: call.now });
        return isDenial(peers) ? peers : { items: peers.map(showPeer) };
      },
    }),
  ];
}
