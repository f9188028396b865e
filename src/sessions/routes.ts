/**
 * Sessions of operators, moderators and viewers in a browser. A signature or a one-time code starts one, a
 * cookie identifies it, and either can end it. Operators can end all sessions of a key.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route, WithCookie } from '../api/contract.js';
import { type Denial, denial } from '../api/rules-errors.js';
import { flag, milliseconds, pubkey } from '../api/schemas.js';
import { addressesOf } from '../communities/addresses.js';
import type { Community } from '../communities/communities.js';
import { rateKey } from '../limits/keys.js';
import type { Rates } from '../limits/rates.js';
import { ROLES, type Role } from '../members/rules-roles.js';
import { tooMany } from '../port/rate.js';
import { type OpenSession, SESSION_COOKIE, type SessionOptions, startSession } from './cookie.js';
import { noteSession } from './sessions.sql.js';
import { LISTED_MAX, type ListedSession } from './shared.js';

const SESSION = '/admin/session';
const SHARED = { url: SESSION, tags: ['admin: session'], who: 'operator', role: 'viewer' } as const;
/**
 * Limit for one key in one community. It also limits how many sessions can exist: this many per hour of their
 * lifetime.
 */
const SIGN_INS_PER_HOUR = 30;

export interface AdminSessionOptions extends SessionOptions {
  readonly pool: Pool;
  readonly rates: Pick<Rates, 'take'>;
  /** The public addresses of the node. */
  readonly bases: () => readonly string[];
  /** Operators of every community. */
  readonly adminPubkeys: readonly string[];
}

export function sessionRoutes(options: AdminSessionOptions): Route[] {
  return [
    startRoute(options),
    showRoute(),
    endRoute(options),
    ...ownRoutes(options),
    ...othersRoutes(options),
  ];
}

export const shownSession = z.strictObject({
  pubkey,
  role: z.enum(ROLES).describe('The current role of this key here'),
  csrf_token: z.string().describe('For the header X-CSRF-Token; the same for the whole session'),
  expires_at: milliseconds,
});

const show = (
  { pubkey: key, csrfToken, expiresAt }: OpenSession,
  role: Role,
): z.output<typeof shownSession> => ({
  pubkey: key,
  role,
  csrf_token: csrfToken,
  expires_at: expiresAt,
});

/**
 * Browsers send this cookie to this host only, hide it from scripts, and do not send it for requests of other
 * sites.
 */
function cookieOf(community: Community, bases: readonly string[], value: string, maxAgeSeconds: number) {
  const secure = /^(wss|https):/.test(addressesOf(community, bases)[0] ?? '');
  return { name: SESSION_COOKIE, value, secure, maxAgeSeconds };
}

interface Starting {
  readonly pubkey: string;
  readonly role: Role;
  readonly by: 'signature' | 'link';
}

/** Starts a session of this key, with its audit row, and gives its cookie. */
export async function signIn(
  options: AdminSessionOptions,
  community: Community,
  { pubkey: key, role, by }: Starting,
  now: number,
): Promise<WithCookie<z.output<typeof shownSession>> | Denial> {
  const { pool, rates, bases, sessions } = options;
  const bucket = rateKey(community.id, 'session', key);
  const verdict = await rates.take(bucket, SIGN_INS_PER_HOUR / 3_600, SIGN_INS_PER_HOUR, now);
  if (!verdict.allowed) return tooMany(verdict);
  const started = await startSession(options, community, key, now).catch(() => undefined);
  if (started === undefined) return denial('UNAVAILABLE');
  const { open, cookie } = started;
  try {
    await noteSession(pool, open, 'session.start', now, { by });
  } catch (error) {
    // The session has no audit row, and its cookie was not sent yet.
    await sessions.end(open).catch(() => undefined);
    throw error;
  }
  const seconds = Math.floor((open.expiresAt - now) / 1_000);
  return new WithCookie(show(open, role), cookieOf(community, bases(), cookie, seconds));
}

function startRoute(options: AdminSessionOptions): Route {
  return route({
    ...SHARED,
    method: 'POST',
    summary: 'Sign in with a browser: starts a session and sets its cookie',
    description:
      'Needs a signature (NIP-98); a token or another session is not enough. The cookie is valid for ' +
      'admin routes only. A request that is not GET or HEAD also needs the csrf_token.',
    signedOnly: true,
    status: 201,
    response: shownSession,
    errors: [],
    handler: ({ community, pubkey: key, role, now }) =>
      signIn(options, community, { pubkey: key, role, by: 'signature' }, now),
  });
}

function showRoute(): Route {
  return route({
    ...SHARED,
    method: 'GET',
    summary: 'The session of this cookie: public key, role, expiry and csrf_token',
    response: shownSession,
    errors: ['NOT_FOUND'],
    handler: ({ session, role }) => (session === undefined ? denial('NOT_FOUND') : show(session, role)),
  });
}

function endRoute({ pool, sessions, bases }: AdminSessionOptions): Route {
  return route({
    ...SHARED,
    method: 'DELETE',
    summary: 'Sign out: ends this session, or with `all` every session of yours in this community',
    description:
      'Takes effect at once on every instance. ' +
      'A signed request has no session of its own, so it must set `all`.',
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

// ── Lists, and sessions of others ──────────────────────────────────────────────────────────────────────────

const listed = z.strictObject({
  session_id: z.string().describe('The hash of its token, which is not enough to use it'),
  created_at: milliseconds,
  expires_at: milliseconds,
  current: z.boolean().describe('The session of this request'),
});
const list = z.strictObject({ items: z.array(listed).describe(`At most ${LISTED_MAX}`) });
const ended = z.strictObject({ ended: z.number().int().describe('Sessions') });

function showListed(found: readonly ListedSession[], current?: OpenSession): z.output<typeof list> {
  const items = found.map(({ tokenHash, createdAt, expiresAt }) => ({
    session_id: tokenHash,
    created_at: createdAt,
    expires_at: expiresAt,
    current: tokenHash === current?.tokenHash,
  }));
  return { items };
}

function ownRoutes({ pool, sessions }: AdminSessionOptions): Route[] {
  const shared = { tags: ['admin: session'], who: 'operator', role: 'viewer' } as const;
  return [
    route({
      ...shared,
      method: 'GET',
      url: '/admin/sessions',
      summary: 'Your sessions in this community, newest first',
      response: list,
      errors: [],
      handler: async ({ community, pubkey: key, session, now }) => {
        const found = await sessions
          .list({ community: community.id, pubkey: key }, now)
          .catch(() => undefined);
        return found === undefined ? denial('UNAVAILABLE') : showListed(found, session);
      },
    }),
    route({
      ...shared,
      method: 'DELETE',
      url: '/admin/sessions/:session_id',
      summary: 'End one of your sessions; takes effect at once on every instance',
      params: z.strictObject({ session_id: z.string().regex(/^[0-9a-f]{64}$/, '64 hex characters') }),
      response: ended,
      errors: ['NOT_FOUND'],
      handler: async ({ community, pubkey: key, params: { session_id: tokenHash }, now }) => {
        const holder = { community: community.id, pubkey: key };
        const was = await sessions.end({ ...holder, tokenHash }).catch(() => undefined);
        if (was === undefined) return denial('UNAVAILABLE');
        if (!was) return denial('NOT_FOUND');
        await noteSession(pool, holder, 'session.end', now);
        return { ended: 1 };
      },
    }),
  ];
}

function othersRoutes({ pool, sessions, adminPubkeys }: AdminSessionOptions): Route[] {
  const shared = {
    url: '/admin/operators/:pubkey/sessions',
    tags: ['admin: operators'],
    who: 'operator',
    params: z.strictObject({ pubkey }),
  } as const;
  return [
    route({
      ...shared,
      method: 'GET',
      summary: 'The sessions of a key in this community, newest first',
      response: list,
      errors: [],
      handler: async ({ community, params, session, now }) => {
        const holder = { community: community.id, pubkey: params.pubkey };
        const found = await sessions.list(holder, now).catch(() => undefined);
        return found === undefined ? denial('UNAVAILABLE') : showListed(found, session);
      },
    }),
    route({
      ...shared,
      method: 'DELETE',
      summary: 'End every session of a key in this community; takes effect at once on every instance',
      description: 'The sessions of operators of MINATO_ADMIN_PUBKEYS are ended only by one of them.',
      response: ended,
      errors: ['FIXED_OPERATOR'],
      handler: async ({ community, pubkey: actor, params, now }) => {
        const { pubkey: key } = params;
        if (adminPubkeys.includes(key) && !adminPubkeys.includes(actor)) return denial('FIXED_OPERATOR');
        const holder = { community: community.id, pubkey: key };
        const count = await sessions.endAll(holder).catch(() => undefined);
        if (count === undefined) return denial('UNAVAILABLE');
        if (count > 0) await noteSession(pool, { ...holder, actor }, 'session.end', now);
        return { ended: count };
      },
    }),
  ];
}
