/**
 * The cookie of an operator's session, and its token against forged requests (CSRF). The cookie names the
 * public key and holds 32 random bytes, new at each sign-in: a value that the browser sends is never reused.
 * The CSRF token is derived from the cookie's token with a secret of the node. So the node can show it again,
 * and who sees only one of the two does not know the other.
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { type Denial, denial } from '../api/rules-errors.js';
import type { Community } from '../communities/communities.js';
import type { Session, SessionRef, Sessions } from './shared.js';

export const SESSION_COOKIE = 'minato_session';
export const CSRF_HEADER = 'x-csrf-token';
const TOKEN_BYTES = 32;
const HOUR_MS = 3_600_000;

export interface SessionOptions {
  readonly sessions: Sessions;
  /** The same on every instance; otherwise secret. */
  readonly tokenSecret: string;
}

/** A session of which a request has shown the cookie. */
export interface OpenSession extends SessionRef {
  readonly expiresAt: number;
  readonly csrfToken: string;
}

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

function csrfTokenOf(secret: string, token: string): string {
  const key = createHmac('sha256', secret).update('csrf').digest();
  return createHmac('sha256', key).update(token).digest('base64url');
}

/** Creates a session and returns the value of its cookie. */
export async function startSession(
  { sessions, tokenSecret }: SessionOptions,
  { id: community, settings }: Community,
  pubkey: string,
  now: number,
): Promise<{ readonly open: OpenSession; readonly cookie: string }> {
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  const expiresAt = now + settings['auth.sessionHours'] * HOUR_MS;
  const csrfToken = csrfTokenOf(tokenSecret, token);
  const ref = { community, pubkey, tokenHash: sha256(token) };
  await sessions.create(ref, { createdAt: now, expiresAt, csrfHash: sha256(csrfToken) });
  return { open: { ...ref, expiresAt, csrfToken }, cookie: `${pubkey}.${token}` };
}

/** What a request carries instead of a signature. */
export interface Shown {
  readonly cookie: string;
  readonly method: string;
  readonly csrfToken: string | undefined;
}

/**
 * Checks the cookie, and the CSRF token for methods that need it. When the store does not respond, the
 * session is not accepted.
 */
export async function checkSession(
  { sessions, tokenSecret }: SessionOptions,
  community: number,
  { cookie, method, csrfToken }: Shown,
  now: number,
): Promise<OpenSession | Denial> {
  const [, pubkey, token] = /^([0-9a-f]{64})\.([A-Za-z0-9_-]{43})$/.exec(cookie) ?? [];
  if (pubkey === undefined || token === undefined) return denial('INVALID_SESSION');
  const ref = { community, pubkey, tokenHash: sha256(token) };
  const session = await sessions.find(ref, now).catch(() => 'unknown' as const);
  if (session === 'unknown') return denial('UNAVAILABLE');
  if (session === undefined) return denial('INVALID_SESSION');
  if (!isReading(method) && !holds(csrfToken, session)) return denial('CSRF_REQUIRED');
  return { ...ref, expiresAt: session.expiresAt, csrfToken: csrfTokenOf(tokenSecret, token) };
}

export const isReading = (method: string) => method === 'GET' || method === 'HEAD';

/** The hashes have equal length and are compared in constant time. */
function holds(csrfToken: string | undefined, { csrfHash }: Session): boolean {
  if (csrfToken === undefined) return false;
  return timingSafeEqual(Buffer.from(sha256(csrfToken), 'hex'), Buffer.from(csrfHash, 'hex'));
}
