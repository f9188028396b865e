/** A frame as it comes in, from whom, and what it says about its event before the event is checked. */
import type { ClientAddress } from '../../port/client-address.js';

export interface Client extends ClientAddress {
  readonly community: number;
}

export interface Frame {
  readonly data: Buffer;
  readonly isBinary: boolean;
}

/**
 * The id to answer to: the text that the client gave, cut to a sane length; even a malformed event gets its
 * OK (I2).
 */
export function eventIdOf(input: unknown): string | undefined {
  if (typeof input !== 'object' || input === null) return undefined;
  const { id } = input as { id?: unknown };
  return typeof id === 'string' ? id.slice(0, 128) : undefined;
}

const EVENT_START = /^\s*\[\s*"EVENT"/;
const EVENT_ID = /"id"\s*:\s*"([0-9a-f]{64})"/;

/** The id in the text of an EVENT message that is not parsed, so that the client gets its OK. */
export function eventIdIn(data: Buffer): string | undefined {
  if (!EVENT_START.test(data.toString('latin1', 0, 64))) return undefined;
  return EVENT_ID.exec(data.toString('latin1'))?.[1];
}

/** -1 for what is no kind at all. */
export function kindOf(input: unknown): number {
  const { kind } = (input ?? {}) as { kind?: unknown };
  return typeof kind === 'number' ? kind : -1;
}
