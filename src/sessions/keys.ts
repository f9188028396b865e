/**
 * The keys of sessions in Redis. Every part is hex or a number, so no part can contain a pattern or a
 * separator.
 */
import type { SessionRef } from './shared.js';

export const SESSION_PREFIX = 'session:';
export const CSRF_PREFIX = 'csrf:';
/** Every session key in Redis begins with one of these. */
export const SESSION_PREFIXES: readonly string[] = [SESSION_PREFIX, CSRF_PREFIX];

/** The keys of the session and of its CSRF token. */
export function sessionKeys({ community, pubkey, tokenHash }: SessionRef): [string, string] {
  const name = `${community}:${pubkey}:${tokenHash}`;
  return [SESSION_PREFIX + name, CSRF_PREFIX + name];
}

/**
 * The value at both keys: when it was made, when it expires, and at the second key the hash of the CSRF
 * token.
 */
export function sessionValue(createdAt: number, expiresAt: number, csrfHash = ''): string {
  return `${createdAt}:${expiresAt}:${csrfHash}`;
}

export function readSessionValue(
  value: string,
): { readonly createdAt: number; readonly expiresAt: number; readonly csrfHash: string } | undefined {
  const [, createdAt, expiresAt, csrfHash] = /^(\d{1,16}):(\d{1,16}):((?:[0-9a-f]{64})?)$/.exec(value) ?? [];
  if (csrfHash === undefined) return undefined;
  return { createdAt: Number(createdAt), expiresAt: Number(expiresAt), csrfHash };
}
