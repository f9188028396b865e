/** The keys of the people of the demo, made from the seed, and their signatures. */
import { hexToBytes } from '@noble/hashes/utils.js';
import { getPublicKey } from 'nostr-tools/pure';
import type { NostrEvent } from '../events/rules/event.js';
import { signEvent } from '../keys/sign.js';
import { secretOf } from './rules-dice.js';
import type { Draft } from './rules-drafts.js';

export interface DemoKey {
  readonly secret: Uint8Array;
  readonly pubkey: string;
}

export function makeKeys(seed: string, count: number): DemoKey[] {
  return Array.from({ length: count }, (_, place) => {
    const secret = hexToBytes(secretOf(seed, place));
    return { secret, pubkey: getPublicKey(secret) };
  });
}

export function signDraft({ kind, created_at, tags, content }: Omit<Draft, 'id'>, key: DemoKey): NostrEvent {
  return signEvent({ kind, created_at, tags, content }, key.secret, key.pubkey);
}
