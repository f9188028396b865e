/**
 * The HTTP API for followers of the outbox: an external service registers and acknowledges what it has
 * applied, so that an erasure can wait until its deletes have arrived there (I17).
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { type Denial, isDenial } from '../api/rules-errors.js';
import { followerName, milliseconds, pubkey } from '../api/schemas.js';
import type { Communities } from '../communities/communities.js';
import {
  acknowledge,
  type Follower,
  listFollowers,
  registerFollower,
  removeFollower,
} from './followers.sql.js';
import { FOLLOWER_LIMIT_SECONDS } from './rules-follower.js';

const FOLLOWERS = '/admin/followers';
const ONE = `${FOLLOWERS}/:name`;
const count = z.number().int();
const seq = count.min(0).max(Number.MAX_SAFE_INTEGER);
const params = z.strictObject({ name: followerName });

const follower = z.strictObject({
  name: z.string(),
  acknowledged_seq: count.describe('The follower has applied everything up to this offset'),
  acknowledged_at: milliseconds.nullable(),
  head_seq: count,
  lag_rows: count.describe('The number of offsets between its own and the head'),
  lag_seconds: z.number().describe('The age of the oldest row that it has not acknowledged'),
  time_limit_seconds: count.describe('How long an erasure waits for it'),
  registered_at: milliseconds,
  registered_by: pubkey
    .nullable()
    .describe('Null: the command line on the machine of the node, or an erased member'),
  seen_at: milliseconds.describe('When it last read or acknowledged'),
  must_rebuild: z
    .boolean()
    .describe(
      'It has missed rows: an erasure continued without it, or the outbox no longer has its next rows',
    ),
  overrun_at: milliseconds.nullable().describe('When an erasure continued without it'),
  awaited: z.boolean().describe('An erasure waits for it'),
  rebuilding_from: count.nullable().describe('The pin of the view that it rebuilds from'),
});

function show(found: Follower): z.output<typeof follower> {
  return {
    name: found.name,
    acknowledged_seq: found.acknowledgedSeq,
    acknowledged_at: found.acknowledgedAt,
    head_seq: found.headSeq,
    lag_rows: found.lagRows,
    lag_seconds: found.lagSeconds,
    time_limit_seconds: found.limitSeconds,
    registered_at: found.registeredAt,
    registered_by: found.registeredBy,
    seen_at: found.seenAt,
    must_rebuild: found.mustRebuild,
    overrun_at: found.overrunAt,
    awaited: found.isAwaited,
    rebuilding_from: found.pinnedSeq,
  };
}
const shown = (found: Follower | Denial) => (isDenial(found) ? found : show(found));

export interface FollowerOptions {
  readonly pool: Pool;
  readonly communities: Communities;
  /** Starts the job of erasures: one may wait for this acknowledgement. */
  readonly eraseSoon: () => Promise<void>;
}

export function followerRoutes({ pool, communities, eraseSoon }: FollowerOptions): Route[] {
  const shared = { tags: ['admin: outbox'], who: 'operator', allowsClosing: true } as const;
  return [
    route({
      ...shared,
      method: 'GET',
      url: FOLLOWERS,
      role: 'viewer',
      summary: 'List the followers of the outbox and their offsets',
      response: z.strictObject({ items: z.array(follower) }),
      errors: [],
      handler: async ({ community, now }) => ({
        items: (await listFollowers(pool, community.id, now)).map(show),
      }),
    }),
    route({
      ...shared,
      method: 'PUT',
      url: ONE,
      summary: 'Register a service as a follower',
      description: REGISTERING,
      params,
      body: z.strictObject({
        time_limit_seconds: count
          .min(FOLLOWER_LIMIT_SECONDS.min)
          .max(FOLLOWER_LIMIT_SECONDS.max)
          .optional()
          .describe(`How long an erasure waits for it; ${FOLLOWER_LIMIT_SECONDS.default} by default`),
        seq: seq.optional().describe('The offset at which a new follower begins; by default 0'),
      }),
      response: follower,
      errors: ['COMMUNITY_NOT_FOUND', 'FOLLOWER_LIMIT_REACHED', 'OFFSET_OUT_OF_RANGE', 'OUTBOX_BEHIND'],
      handler: async ({ community: { id }, params: { name }, body, pubkey: actor, now }) => {
        const { time_limit_seconds: limitSeconds, seq: at } = body;
        const isClosing = communities.get(id) === undefined;
        const registration = { community: id, name, actor, limitSeconds, seq: at, isClosing };
        return shown(await registerFollower(pool, registration, now));
      },
    }),
    route({
      ...shared,
      method: 'POST',
      url: `${ONE}/acknowledge`,
      summary: 'Acknowledge that everything up to an offset is applied',
      description: ACKNOWLEDGING,
      params,
      body: z.strictObject({
        seq: seq.describe('The offset that was saved with its effect'),
        rebuilt: z.boolean().default(false).describe('It was rebuilt from the view that is pinned there'),
      }),
      response: follower,
      errors: ['NOT_FOUND', 'OFFSET_OUT_OF_RANGE', 'OUTBOX_BEHIND'],
      handler: async ({ community, params: { name }, body, now }) => {
        const found = await acknowledge(pool, { community: community.id, name, ...body }, now);
        if (!isDenial(found) && found.isAwaited) eraseSoon().catch(() => undefined);
        return shown(found);
      },
    }),
    route({
      ...shared,
      method: 'DELETE',
      url: ONE,
      summary: 'Remove a follower',
      description: 'No erasure waits for it any more. The node no longer knows whether its copy is deleted.',
      params,
      response: follower,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params: { name }, pubkey: actor, now }) =>
        shown(await removeFollower(pool, { community: community.id, name, actor }, now)),
    }),
  ];
}

const REGISTERING = `From now on an erasure waits for its acknowledgement, up to its time limit. Then the
erasure continues, its certificate names the follower, and the follower must rebuild. Registering a known name
again changes at most its time limit.`;
const ACKNOWLEDGING = `Save first, then acknowledge. An offset only grows. \`OUTBOX_BEHIND\`: the follower has
missed rows. It rebuilds from the view (with \`follower\`), and acknowledges the pin with \`rebuilt\`.`;
