/** Real signed events, short to write in a test. */
import { finalizeEvent, generateSecretKey, getPublicKey, type VerifiedEvent } from 'nostr-tools/pure';

export interface Author {
  readonly secret: Uint8Array;
  readonly pubkey: string;
}

export function newAuthor(): Author {
  const secret = generateSecretKey();
  return { secret, pubkey: getPublicKey(secret) };
}

export interface Draft {
  kind?: number;
  created_at?: number;
  tags?: string[][];
  content?: string;
}

export const nowSeconds = () => Math.floor(Date.now() / 1_000);

/** A plain object: what nostr-tools adds to it beyond the seven fields is left out. */
export function sign(author: Author, draft: Draft = {}): VerifiedEvent {
  const { kind = 1, created_at = nowSeconds(), tags = [], content = '' } = draft;
  return JSON.parse(JSON.stringify(finalizeEvent({ kind, created_at, tags, content }, author.secret)));
}
