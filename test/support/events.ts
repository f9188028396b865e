/**
 * Real signed events, short to write in a test. The native signer takes a fortieth of noble's time;
 * src/keys/sign.test.ts holds that they agree.
 */

import * as nip19 from 'nostr-tools/nip19';
import { generateSecretKey, getPublicKey, type VerifiedEvent } from 'nostr-tools/pure';
import { signEvent } from '../../src/keys/sign.js';
import { ledger } from './secrets/ledger.js';

export interface Author {
  readonly secret: Uint8Array;
  readonly pubkey: string;
}

export function newAuthor(): Author {
  const secret = generateSecretKey();
  ledger.keep('secret key', Buffer.from(secret).toString('hex'));
  ledger.keep('secret key', nip19.nsecEncode(secret));
  return { secret, pubkey: getPublicKey(secret) };
}

export interface Draft {
  kind?: number;
  created_at?: number;
  tags?: string[][];
  content?: string;
}

export const nowSeconds = () => Math.floor(Date.now() / 1_000);

let signed = 0;

/**
 * A plain object with the seven fields only. Two calls give two events, also within one second: a draft
 * without content gets one of its own.
 */
export function sign(author: Author, draft: Draft = {}): VerifiedEvent {
  const { kind = 1, created_at = nowSeconds(), tags = [], content = `event ${++signed}` } = draft;
  const event = signEvent({ kind, created_at, tags, content }, author.secret, author.pubkey);
  return JSON.parse(JSON.stringify(event));
}
