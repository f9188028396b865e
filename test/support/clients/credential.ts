/** The credential of one HTTP request (NIP-98), as a client makes it. */
import { createHash } from 'node:crypto';
import { type Author, type Draft, nowSeconds, sign } from '../events.js';

export const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

export const textOf = (body: unknown) =>
  body === undefined || typeof body === 'string' ? body : JSON.stringify(body);

/** The signed event that authenticates one request. */
export function credential(
  as: Author,
  { method, url, body }: { method: string; url: string; body?: unknown },
  draft: Draft = {},
) {
  const text = textOf(body);
  const payload = text === undefined || text === '' ? [] : [['payload', sha256(text)]];
  const tags = [['u', url], ['method', method], ...payload];
  return sign(as, { kind: 27_235, created_at: nowSeconds(), tags, ...draft });
}

export function authorization(event: unknown): string {
  return `Nostr ${Buffer.from(JSON.stringify(event)).toString('base64')}`;
}
