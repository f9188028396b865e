/**
 * The cookie of an operator's session, and the token against forged requests that goes with it. The cookie names the key and holds 32
 * random bytes, which are made anew at each sign-in: what a browser brings along is never taken over. The second token is made of the
 * first with a secret of the node, so that it can be told again, and nobody who only sees one of them knows the other.
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Community } from '../communities.js';
import { type Denial, denial } from '../core/errors.js';
import type { Session, SessionRef, Sessions } from '../sessions/shared.js';

export const SESSION_COOKIE = 'minato_session';
export const CSRF_HEADER = 'x-csrf-token';
const TOKEN_BYTES = 32;
const HOUR_MS = 3_600_000;

export interface SessionOptions {
  readonly sessions: Sessions;
  /** The same on every instance, known to nobody else. */
  readonly tokenSecret: string;
}

/** A session that a request has shown its cookie of. */
export interface OpenSession extends SessionRef {
  readonly expiresAt: number;
  readonly csrfToken: string;
}

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

function csrfTokenOf(secret: string, token: string): string {
  const key = createHmac('sha256', secret).update('csrf').digest();
  return createHmac('sha256', key).update(token).digest('base64url');
}

/** A new one, and the value of its cookie. */
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

/** What a request shows instead of a signature. */
export interface Shown {
  readonly cookie: string;
  readonly method: string;
  readonly csrfToken: string | undefined;
}

/** Does the cookie hold, and for this method? When nobody can tell, it does not. */
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

/** Hashes have one length, and are compared in constant time. */
function holds(csrfToken: string | undefined, { csrfHash }: Session): boolean {
  if (csrfToken === undefined) return false;
  return timingSafeEqual(Buffer.from(sha256(csrfToken), 'hex'), Buffer.from(csrfHash, 'hex'));
}
