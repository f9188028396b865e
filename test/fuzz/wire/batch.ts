/**
 * The frames of one connection as a failure prints them. Proofs of keys (AUTH) name the challenge of their
 * connection, the address of the node and the time, so a replay signs the good ones again.
 */
import { nowSeconds, sign } from '../../support/events.js';
import { AUTHORS } from '../make/events.js';
import { isGenuine } from './reply-grammar.js';

export interface Batch {
  readonly relay: string;
  /** What the frames were made with; undefined if the connection had none. */
  readonly challenge: string | undefined;
  /** When they were made, in seconds. */
  readonly at: number;
  readonly frames: readonly string[];
}

/** Proofs of this age, in seconds, were of now; others were wrong on purpose. */
const FRESH = 600;

export const printed = (batch: Batch): string => JSON.stringify(batch);

export function readPrinted(input: string): Batch {
  const batch = JSON.parse(input) as Batch;
  if (!Array.isArray(batch.frames)) throw new Error('an input of sockets is {relay, challenge, at, frames}');
  return batch;
}

/** The frames for another connection. */
export function renewed(batch: Batch, relay: string, challenge: string | undefined): string[] {
  const renew = (text: string) => {
    const moved = text.replaceAll(batch.relay, relay);
    return batch.challenge === undefined || challenge === undefined
      ? moved
      : moved.replaceAll(batch.challenge, challenge);
  };
  return batch.frames.map((frame) => {
    const old = proofIn(frame);
    const author = AUTHORS.find(({ pubkey }) => pubkey === old?.pubkey);
    if (old === undefined || author === undefined) return renew(frame);
    const { kind, content } = old;
    const tags = old.tags.map((tag) => tag.map(renew));
    const isFresh = Math.abs(old.created_at - batch.at) < FRESH;
    const created_at = isFresh ? old.created_at - batch.at + nowSeconds() : old.created_at;
    return JSON.stringify(['AUTH', sign(author, { kind, created_at, tags, content })]);
  });
}

type Proof = Parameters<typeof isGenuine>[0];

/** The event of an AUTH with a right signature. */
export function proofIn(frame: string): Proof | undefined {
  try {
    const [verb, event] = JSON.parse(frame) as [unknown, Proof];
    return verb === 'AUTH' && isGenuine(event) ? event : undefined;
  } catch {
    return undefined;
  }
}
