/** Signing in: a challenge, answered with a signature (NIP-42), gives a token; and tokens are revoked. */
import { z } from 'zod';
import { addressesOf } from '../addresses.js';
import type { Community } from '../communities.js';
import { refuseAuth } from '../core/auth.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { firstTagValue, type NostrEvent, parseEvent } from '../core/event.js';
import { isRefusal } from '../core/reply.js';
import { refuseMember } from '../store/members.js';
import { revokeToken, revokeTokensOf } from '../store/tokens.js';
import { type AuthOptions, invalid, refuseSignature, refuseSpent } from './auth.js';
import { type Route, route } from './contract.js';
import { milliseconds, pubkey } from './schemas.js';
import { CHALLENGE_MS, isChallenge, makeChallenge, makeToken } from './tokens.js';

/** Longer than a challenge is fresh on an instance whose clock is somewhat off. */
const CHALLENGE_KEPT_MS = 2 * CHALLENGE_MS;
const TAGS = ['auth'] as const;

export interface SignInOptions extends AuthOptions {
  /** The node's own addresses. */
  readonly bases: () => readonly string[];
}

export function signInRoutes(options: SignInOptions): Route[] {
  return [challengeRoute(options), verifyRoute(options), revokeRoute(options)];
}

function challengeRoute({ tokenSecret, bases }: SignInOptions): Route {
  return route({
    method: 'POST',
    url: '/auth/challenge',
    summary: 'A challenge to sign',
    tags: TAGS,
    who: 'public',
    response: z.strictObject({
      challenge: z.string(),
      relay: z.string().describe('What the relay tag must name'),
      expires_at: milliseconds,
    }),
    errors: [],
    handler: ({ community, now }) => {
      const { challenge, expiresAt } = makeChallenge(tokenSecret, community.id, now);
      return { challenge, relay: addressesOf(community, bases())[0]!, expires_at: expiresAt };
    },
  });
}

function verifyRoute(options: SignInOptions): Route {
  return route({
    method: 'POST',
    url: '/auth/verify',
    summary: 'A token for a signed challenge',
    description:
      'The event has kind 22242 and the tags `["challenge", …]` and `["relay", …]`, as in NIP-42. A challenge works once.',
    tags: TAGS,
    who: 'public',
    body: z.strictObject({ event: z.unknown() }),
    response: z.strictObject({
      token: z.string(),
      token_type: z.literal('Bearer'),
      expires_at: milliseconds,
      pubkey,
    }),
    errors: [
      'INVALID_AUTH',
      'REPLAYED_AUTH',
      'ACCOUNT_DISABLED',
      'ACCOUNT_DELETED',
      'BEING_ERASED',
      'UNAVAILABLE',
    ],
    handler: async ({ community, body, now }) => {
      const event = await checkAnswer(options, community, body.event, now);
      if (isDenial(event)) return event;
      const holder = { community: community.id, pubkey: event.pubkey };
      const refused = await refuseMember(options.pool, community.id, event.pubkey);
      if (refused !== undefined) return refused;
      const life = community.settings['auth.tokenSeconds'];
      const { token, expiresAt } = await makeToken(options, holder, life, now);
      return { token, token_type: 'Bearer' as const, expires_at: expiresAt, pubkey: event.pubkey };
    },
  });
}

/** Cheap checks first, then the signature; the challenge is spent only when all else holds. */
async function checkAnswer(
  options: SignInOptions,
  community: Community,
  input: unknown,
  now: number,
): Promise<NostrEvent | Denial> {
  const event = parseEvent(input);
  if (isRefusal(event)) return invalid('event', event.why);
  const challenge = firstTagValue(event, 'challenge') ?? '';
  if (!isChallenge(options.tokenSecret, community.id, challenge, now)) {
    return invalid(
      'challenge',
      'the challenge is not of this community, or past its time; ask for a new one',
    );
  }
  const refused = refuseAuth(event, {
    challenge,
    addresses: addressesOf(community, options.bases()),
    nowSeconds: Math.floor(now / 1_000),
  });
  if (refused !== undefined) return invalid('event', refused.why);
  const unsigned = await refuseSignature(options, event);
  if (unsigned !== undefined) return unsigned;
  return (await refuseSpent(options, `challenge:${challenge}`, CHALLENGE_KEPT_MS, now)) ?? event;
}

function revokeRoute({ pool }: SignInOptions): Route {
  return route({
    method: 'POST',
    url: '/auth/revoke',
    summary: 'Revoke the token of this request, or all of yours',
    description: 'At once, on every instance. A signed request has no token of its own: it says `all`.',
    tags: TAGS,
    who: 'member',
    body: z.strictObject({ all: z.boolean().default(false) }),
    response: z.strictObject({ revoked: z.enum(['token', 'all']) }),
    errors: [],
    handler: async ({ community, pubkey: key, token, body: { all }, now }) => {
      const holder = { community: community.id, pubkey: key };
      if (!all && token === undefined) {
        const message = 'a signed request has no token to revoke: say true';
        return denial('INVALID_REQUEST', { problems: [{ path: 'body/all', message }] });
      }
      if (token !== undefined && !all) {
        await revokeToken(pool, { ...holder, ...token });
        return { revoked: 'token' as const };
      }
      await revokeTokensOf(pool, holder, now);
      return { revoked: 'all' as const };
    },
  });
}
