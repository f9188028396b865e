/** Sign-in: a signed challenge (NIP-42) gives a token. Also revokes tokens. */
import { z } from 'zod';
import { type AuthOptions, invalid, refuseSignature, refuseSpent } from '../api/auth.js';
import { type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pubkey } from '../api/schemas.js';
import { addressesOf } from '../communities/addresses.js';
import type { Community } from '../communities/communities.js';
import { firstTagValue, type NostrEvent, parseEvent } from '../events/rules/event.js';
import { isRefusal } from '../events/rules/reply.js';
import type { LineClient } from '../limits/rules-lines.js';
import { refuseMember } from '../members/members.sql.js';
import { refuseAuth } from '../relay/rules-auth.js';
import { CHALLENGE_MS, isChallenge, makeChallenge, makeToken } from './tokens.js';
import { revokeToken, revokeTokensOf } from './tokens.sql.js';

/** Longer than a challenge is valid, in case the clock of another instance is off. */
const CHALLENGE_KEPT_MS = 2 * CHALLENGE_MS;
const TAGS = ['auth'] as const;

export interface SignInOptions extends AuthOptions {
  /** The public addresses of the node. */
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
      relay: z.string().describe('The value for the relay tag'),
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
      'The event has kind 22242 and the tags `["challenge", …]` and `["relay", …]`, as in NIP-42. ' +
      'A challenge works once.',
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
    handler: async ({ community, client, body, now }) => {
      const event = await checkAnswer(options, { community, client }, body.event, now);
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

/** Cheap checks come first, then the signature. The challenge is marked as used only when all checks pass. */
async function checkAnswer(
  options: SignInOptions,
  { community, client }: { readonly community: Community; readonly client: LineClient },
  input: unknown,
  now: number,
): Promise<NostrEvent | Denial> {
  const event = parseEvent(input);
  if (isRefusal(event)) return invalid('event', event.why);
  const challenge = firstTagValue(event, 'challenge') ?? '';
  if (!isChallenge(options.tokenSecret, community.id, challenge, now)) {
    return invalid(
      'challenge',
      'the challenge belongs to another community or has expired; request a new one',
    );
  }
  const refused = refuseAuth(event, {
    challenge,
    addresses: addressesOf(community, options.bases()),
    nowSeconds: Math.floor(now / 1_000),
  });
  if (refused !== undefined) return invalid('event', refused.why);
  const unsigned = await refuseSignature(options, event, { community: community.id, client });
  if (unsigned !== undefined) return unsigned;
  return (await refuseSpent(options, `challenge:${challenge}`, CHALLENGE_KEPT_MS, now)) ?? event;
}

function revokeRoute({ pool }: SignInOptions): Route {
  return route({
    method: 'POST',
    url: '/auth/revoke',
    summary: 'Revoke the token of this request, or all of yours',
    description:
      'Takes effect at once on every instance. ' +
      'A signed request has no token of its own, so it must set `all`.',
    tags: TAGS,
    who: 'member',
    body: z.strictObject({ all: z.boolean().default(false) }),
    response: z.strictObject({ revoked: z.enum(['token', 'all']) }),
    errors: [],
    handler: async ({ community, pubkey: key, token, body: { all }, now }) => {
      const holder = { community: community.id, pubkey: key };
      if (!all && token === undefined) {
        const message = 'a signed request has no token to revoke: set it to true';
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
