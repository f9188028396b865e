/** Sessions of operators in a browser: begun with a signature, shown by a cookie, ended by either. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { addressesOf } from '../addresses.js';
import type { Community } from '../communities.js';
import { denial } from '../core/errors.js';
import { rateKey } from '../limits/keys.js';
import type { Rates } from '../limits/rates.js';
import { noteSession } from '../store/sessions.js';
import { type Route, route, WithCookie } from './contract.js';
import { tooMany } from './limit.js';
import { flag, milliseconds, pubkey } from './schemas.js';
import { type OpenSession, SESSION_COOKIE, type SessionOptions, startSession } from './session-cookie.js';

const SESSION = '/admin/session';
const SHARED = { url: SESSION, tags: ['admin: session'], who: 'operator' } as const;
/** Of one key in one community: so many sessions there are at most for each hour that one lives. */
const SIGN_INS_PER_HOUR = 30;

export interface AdminSessionOptions extends SessionOptions {
  readonly pool: Pool;
  readonly rates: Pick<Rates, 'take'>;
  /** The node's own addresses. */
  readonly bases: () => readonly string[];
}

export function sessionRoutes(options: AdminSessionOptions): Route[] {
  return [startRoute(options), showRoute(), endRoute(options)];
}

const shown = z.strictObject({
  pubkey,
  csrf_token: z.string().describe('For the header X-CSRF-Token; the same for as long as the session lives'),
  expires_at: milliseconds,
});

const show = ({ pubkey: key, csrfToken, expiresAt }: OpenSession): z.output<typeof shown> => ({
  pubkey: key,
  csrf_token: csrfToken,
  expires_at: expiresAt,
});

/** Sent back by browsers to this host only, not by its scripts, and never on behalf of another site. */
function cookieOf(community: Community, bases: readonly string[], value: string, maxAgeSeconds: number) {
  const secure = /^(wss|https):/.test(addressesOf(community, bases)[0] ?? '');
  return { name: SESSION_COOKIE, value, secure, maxAgeSeconds };
}

function startRoute(options: AdminSessionOptions): Route {
  const { pool, rates, bases, sessions } = options;
  return route({
    ...SHARED,
    method: 'POST',
    summary: 'Sign in with a browser: a session that its cookie stands for',
    description:
      'Signed (NIP-98), not by a token or another session. The cookie counts for routes of operators only, and a request that is not GET or HEAD needs the csrf_token beside it.',
    signedOnly: true,
    status: 201,
    response: shown,
    errors: [],
    handler: async ({ community, pubkey: key, now }) => {
      const bucket = rateKey(community.id, 'session', key);
      const verdict = await rates.take(bucket, SIGN_INS_PER_HOUR / 3_600, SIGN_INS_PER_HOUR, now);
      if (!verdict.allowed) return tooMany(verdict);
      const started = await startSession(options, community, key, now).catch(() => undefined);
      if (started === undefined) return denial('UNAVAILABLE');
      const { open, cookie } = started;
      try {
        await noteSession(pool, open, 'session.start', now);
      } catch (error) {
        // Nobody has its cookie yet.
        await sessions.end(open).catch(() => undefined);
        throw error;
      }
      const seconds = Math.floor((open.expiresAt - now) / 1_000);
      return new WithCookie(show(open), cookieOf(community, bases(), cookie, seconds));
    },
  });
}

function showRoute(): Route {
  return route({
    ...SHARED,
    method: 'GET',
    summary: 'Who is signed in with this cookie, until when, and the csrf_token again',
    response: shown,
    errors: ['NOT_FOUND'],
    handler: ({ session }) => (session === undefined ? denial('NOT_FOUND') : show(session)),
  });
}

function endRoute({ pool, sessions, bases }: AdminSessionOptions): Route {
  return route({
    ...SHARED,
    method: 'DELETE',
    summary: 'Sign out: this session ends, or with `all` every one of yours here',
    description: 'At once, on every instance. A signed request has no session of its own: it says `all`.',
    query: z.strictObject({ all: flag.default('false') }),
    response: z.strictObject({ ended: z.number().int().describe('Sessions') }),
    errors: ['NOT_FOUND'],
    handler: async ({ community, pubkey: key, session, query: { all }, now }) => {
      const holder = { community: community.id, pubkey: key };
      if (session === undefined && all === 'false') return denial('NOT_FOUND');
      const ending =
        all === 'true' || session === undefined
          ? sessions.endAll(holder)
          : sessions.end(session).then((there) => (there ? 1 : 0));
      const ended = await ending.catch(() => undefined);
      if (ended === undefined) return denial('UNAVAILABLE');
      if (ended > 0) await noteSession(pool, holder, 'session.end', now);
      return new WithCookie({ ended }, cookieOf(community, bases(), '', 0));
    },
  });
}
