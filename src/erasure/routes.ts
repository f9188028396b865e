/**
 * Erasures over HTTP. An operator requests the erasure of a member, follows its progress and can hold it for
 * legal reasons. Only operators of the node (MINATO_ADMIN_PUBKEYS) erase a whole community, with requests at
 * the default community; the operators of that community can see it (I13).
 */
import { Readable } from 'node:stream';
import { z } from 'zod';
import { type Call, Flow, type Route, route } from '../api/contract.js';
import { type EndingReader, type FollowOptions, SignOfLife, watcher } from '../api/following.js';
import { isNodeOperator } from '../api/node-operators.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import { DEFAULT_SLUG } from '../communities/communities.sql.js';
import type { Unacknowledged } from '../outbox/rules-follower.js';
import { Streams } from '../outbox/streams.js';
import { certificateAnswer, sendCertificate } from './certificates/routes.js';
import {
  cancelErasure,
  type Erasure,
  listErasures,
  readErasure,
  requestErasure,
  shownStage,
  stepErasure,
} from './erasures.sql.js';
import { openAlarms } from './people.sql.js';
import { type PreviewOptions, previewRoute } from './routes-preview.js';
import { ERASURE_CAUSES, SHOWN_STAGES, sum } from './rules.js';

const ERASURES = '/admin/erasures';
const ONE = `${ERASURES}/:erasure_id`;
const SSE = 'text/event-stream';
const POLL_MS = 500;
const GRACE_DAYS_MAX = { member: 30, community: 365 } as const;

export interface ErasureOptions extends FollowOptions, PreviewOptions {
  /** Wakes the job that carries them out. */
  readonly eraseSoon: () => Promise<void>;
  /** How long a stream without news waits before it sends a keep-alive; ten seconds by default. */
  readonly signOfLifeMs?: number;
}

const count = z.number().int();
const params = z.strictObject({ erasure_id: z.uuid() });
const summary = z.strictObject({
  erasure_id: z.uuid(),
  community: z.string().describe('Its slug'),
  type: z.enum(['member', 'community']),
  cause: z.enum(ERASURE_CAUSES),
  stage: z.enum(SHOWN_STAGES),
  pubkey: pubkey.nullable().describe('Of a member; null when the erasure is completed or cancelled'),
  requested_at: milliseconds,
  updated_at: milliseconds,
  grace_until: milliseconds.describe('Until then it can be cancelled'),
  fenced_at: milliseconds.nullable().describe('From then on nothing new was accepted'),
  counted_at: milliseconds.nullable(),
  completed_at: milliseconds.nullable(),
  held_at: milliseconds.nullable(),
  hold_reason: z.string().nullable(),
  failed_at: milliseconds.nullable(),
  tries: count.describe('How often a store failed'),
  rows_counted: count,
  rows_deleted: count,
});
const unacknowledged = z.strictObject({
  follower: z.string(),
  acknowledged_seq: count,
  needed_seq: count,
  time_limit_seconds: count,
});
const detailed = summary.extend({
  stores: z.array(
    z.strictObject({
      name: z.string(),
      counted: count.nullable().describe('Found before; null: not known'),
      added: count.describe('Added after that, such as the deletes in the outbox'),
      deleted: count,
      otherwise: count.describe(
        'Deleted by something else: counted + added = deleted + otherwise + verified',
      ),
      verified: count.nullable().describe('After; null: not looked yet'),
      failure: z.string().nullable(),
      kept: z.strictObject({ rows: count, until: milliseconds, why: z.string() }).nullable(),
    }),
  ),
  waits_for: z
    .array(unacknowledged.extend({ until: milliseconds.describe('Then it goes on without it') }))
    .describe('Followers of the outbox that have not acknowledged its deletes yet'),
  unacknowledged: z.array(unacknowledged).describe('Followers that it continued without'),
});
const alarm = z.strictObject({
  store: z.string(),
  subject: z.string().describe('The keyed hash of an erased member'),
  found: count,
  at: milliseconds.describe('When it was first found'),
  seen_at: milliseconds.describe('When it was last found'),
});
const news = z.strictObject({
  stage: z.enum(SHOWN_STAGES),
  rows_counted: count,
  rows_deleted: count,
  stores_done: count,
  failures: z.record(z.string(), z.string()),
});

function showSummary(erasure: Erasure): z.output<typeof summary> {
  return {
    erasure_id: erasure.erasureId,
    community: erasure.slug,
    type: erasure.type,
    cause: erasure.cause,
    stage: shownStage(erasure),
    pubkey: erasure.pubkey,
    requested_at: erasure.requestedAt,
    updated_at: erasure.updatedAt,
    grace_until: erasure.graceUntil,
    fenced_at: erasure.fencedAt,
    counted_at: erasure.countedAt,
    completed_at: erasure.completedAt,
    held_at: erasure.heldAt,
    hold_reason: erasure.holdReason,
    failed_at: erasure.failedAt,
    tries: erasure.tries,
    rows_counted: sum(erasure.counted) + sum(erasure.added),
    rows_deleted: sum(erasure.deleted),
  };
}

function show(erasure: Erasure): z.output<typeof detailed> {
  const { counted, added, deleted, otherwise, verified, failures, kept } = erasure;
  const names = new Set([counted, deleted, verified, failures, kept].flatMap((by) => Object.keys(by)));
  return {
    ...showSummary(erasure),
    stores: [...names].sort().map((name) => ({
      name,
      counted: counted[name] ?? null,
      added: added[name] ?? 0,
      deleted: deleted[name] ?? 0,
      otherwise: otherwise[name] ?? 0,
      verified: verified[name] ?? null,
      failure: failures[name] ?? null,
      kept: kept[name] ?? null,
    })),
    waits_for: erasure.waits.map((follower) => ({
      ...showUnacknowledged(follower),
      until: follower.until,
    })),
    unacknowledged: erasure.unacknowledged.map(showUnacknowledged),
  };
}

function showUnacknowledged(follower: Unacknowledged): z.output<typeof unacknowledged> {
  return {
    follower: follower.name,
    acknowledged_seq: follower.acknowledgedSeq,
    needed_seq: follower.neededSeq,
    time_limit_seconds: follower.limitSeconds,
  };
}

function showNews(erasure: Erasure): z.output<typeof news> {
  const { rows_counted, rows_deleted, stage } = showSummary(erasure);
  const { done, failures } = erasure;
  return { stage, rows_counted, rows_deleted, stores_done: done.length, failures: { ...failures } };
}

// ── Who may see and change what ────────────────────────────────────────────────────────────────────────────

type Caller = Pick<Call<'operator'>, 'community' | 'pubkey'>;
type Named = Caller & { readonly params: z.output<typeof params> };

async function readSeen(options: ErasureOptions, call: Named): Promise<Erasure | Denial> {
  const erasure = await readErasure(options.pool, call.params.erasure_id);
  const isSeen =
    erasure?.community === call.community.id ||
    (erasure?.type === 'community' && isNodeOperator(options, call));
  return erasure !== undefined && isSeen ? erasure : denial('NOT_FOUND');
}

async function readSteered(options: ErasureOptions, call: Named): Promise<Erasure | Denial> {
  const erasure = await readSeen(options, call);
  if (isDenial(erasure) || erasure.type === 'member' || isNodeOperator(options, call)) return erasure;
  return NOT_OF_NODE;
}

const NOT_OF_NODE = denial('OPERATORS_ONLY', {
  explanation: 'Only operators of MINATO_ADMIN_PUBKEYS erase whole communities, at the default community.',
});
const FIXED = denial('FIXED_OPERATOR', {
  explanation: 'Remove the key from MINATO_ADMIN_PUBKEYS and restart the node before it is erased.',
});
const IS_DEFAULT = denial('STATUS_CONFLICT', {
  explanation:
    'The default community is the node itself and is not erased; erase its members, or drop the database.',
});

const graceDays = (max: number) =>
  count
    .min(0)
    .max(max)
    .optional()
    .describe('Days in which it can be cancelled; by default those of the setting');
const wanted = z.union([
  z.strictObject({ pubkey, grace_days: graceDays(GRACE_DAYS_MAX.member) }),
  z.strictObject({
    community: z.string().min(1).max(63).describe('The slug of a whole community'),
    grace_days: graceDays(GRACE_DAYS_MAX.community),
  }),
]);

// ── Routes ─────────────────────────────────────────────────────────────────────────────────────────────────

export function erasureRoutes(options: ErasureOptions): Route[] {
  const { pool } = options;
  const shared = { tags: ['admin: erasures'], who: 'operator' } as const;
  return [
    route({
      ...shared,
      method: 'GET',
      url: '/admin/erasure-alarms',
      summary: 'Rows of erased members that the daily check has found again',
      description:
        'Empty, unless rows came back without the node, for example from a restored backup. ' +
        'The member is named by a keyed hash.',
      response: z.strictObject({ alarms: z.array(alarm) }),
      errors: [],
      handler: async ({ community }) => ({
        alarms: (await openAlarms(pool, community.id)).map(({ store, subject, found, at, seenAt }) => ({
          store,
          subject,
          found,
          at,
          seen_at: seenAt,
        })),
      }),
    }),
    route({
      ...shared,
      method: 'GET',
      url: ERASURES,
      summary: 'Erasures of this community, the newest first',
      description: 'Operators of the node see those of whole communities as well, at the default community.',
      query: pageQuery.extend({
        open: z.enum(['true', 'false']).default('false').describe('true: only those that have not ended'),
        pubkey: pubkey.optional().describe('Of this member; an erasure that has ended names nobody'),
      }),
      response: pageOf(summary),
      errors: [],
      handler: async (call) => {
        const { open, pubkey: of, ...page } = call.query;
        const chosen = {
          community: call.community.id,
          pubkey: of,
          open: open === 'true',
          communities: isNodeOperator(options, call),
        };
        return showPage(await listErasures(pool, chosen, page), showSummary);
      },
    }),
    askRoute(options),
    route({
      ...shared,
      method: 'GET',
      url: ONE,
      summary: 'One erasure, store by store',
      params,
      response: detailed,
      errors: ['NOT_FOUND'],
      handler: async (call) => {
        const erasure = await readSeen(options, call);
        return isDenial(erasure) ? erasure : show(erasure);
      },
    }),
    ...stepRoutes(options),
    previewRoute(options),
    progressRoute(options),
    route({
      ...shared,
      ...certificateAnswer,
      method: 'GET',
      url: `${ONE}/certificate`,
      summary: 'The certificate of an erasure that is completed',
      description: 'A signed event, or with Accept: text/html a page to print.',
      params,
      errors: ['NOT_FOUND', 'NOT_READY'],
      handler: async (call) => {
        const erasure = await readSeen(options, call);
        return isDenial(erasure) ? erasure : sendCertificate(pool, erasure.erasureId, call.type);
      },
    }),
  ];
}

function askRoute(options: ErasureOptions): Route {
  const { pool, adminPubkeys, communities } = options;
  /** Whose data is erased, or why it is refused. */
  const targetOf = (
    call: Call<'operator', object, object, z.output<typeof wanted>>,
  ): { readonly of: Community; readonly pubkey?: string; readonly days: number } | Denial => {
    const { community, body } = call;
    if ('pubkey' in body) {
      if (adminPubkeys.includes(body.pubkey)) return FIXED;
      const days = body.grace_days ?? community.settings['erasure.memberGraceDays'];
      return { of: community, pubkey: body.pubkey, days };
    }
    if (!isNodeOperator(options, call)) return NOT_OF_NODE;
    if (body.community === DEFAULT_SLUG) return IS_DEFAULT;
    const of = communities.find(undefined, body.community);
    if (of === undefined) return denial('COMMUNITY_NOT_FOUND');
    return { of, days: body.grace_days ?? of.settings['erasure.communityGraceDays'] };
  };
  return route({
    tags: ['admin: erasures'],
    who: 'operator',
    method: 'POST',
    url: ERASURES,
    summary: 'Erase a member, or a whole community',
    description:
      'From every store. While an erasure of the same subject is open, another request returns that one.',
    body: wanted,
    status: 202,
    response: detailed,
    errors: ['FIXED_OPERATOR', 'STATUS_CONFLICT', 'COMMUNITY_NOT_FOUND'],
    handler: async (call) => {
      const target = targetOf(call);
      if (isDenial(target)) return target;
      const { of, pubkey: erased, days } = target;
      const asked = {
        community: of.id,
        slug: of.slug,
        pubkey: erased,
        cause: 'operator',
        graceDays: days,
      } as const;
      const erasure = await requestErasure(pool, { ...asked, actor: call.pubkey }, call.now);
      if (isDenial(erasure)) return erasure;
      options.eraseSoon().catch(() => undefined);
      return show(erasure);
    },
  });
}

function stepRoutes(options: ErasureOptions): Route[] {
  const { pool } = options;
  const step = <B extends z.ZodType<object>>(
    shown: { readonly name: string; readonly summary: string; readonly description?: string },
    body: B,
    work: (
      ref: { community: number; erasureId: string; actor: string },
      body: z.output<B>,
      now: number,
    ) => Promise<Erasure | Denial>,
  ): Route =>
    route({
      tags: ['admin: erasures'],
      who: 'operator',
      method: 'POST',
      url: `${ONE}/${shown.name}`,
      summary: shown.summary,
      ...(shown.description === undefined ? {} : { description: shown.description }),
      params,
      body,
      response: detailed,
      errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
      handler: async (call) => {
        const steered = await readSteered(options, call);
        if (isDenial(steered)) return steered;
        const { community, erasureId } = steered;
        const erasure = await work({ community, erasureId, actor: call.pubkey }, call.body, call.now);
        if (isDenial(erasure)) return erasure;
        options.eraseSoon().catch(() => undefined);
        return show(erasure);
      },
    });
  const nothing = z.strictObject({});
  return [
    step(
      {
        name: 'cancel',
        summary: 'Cancel an erasure',
        description: 'Possible during the grace period, until the fence; after that it runs to its end.',
      },
      nothing,
      (ref, _body, now) => cancelErasure(pool, ref, now),
    ),
    step(
      {
        name: 'hold',
        summary: 'Stop it for legal reasons, in any stage',
        description: 'It is noted in the audit log with its reason.',
      },
      z.strictObject({ reason: plainText(500).min(1).describe('For the audit log') }),
      (ref, { reason }, now) => stepErasure(pool, 'hold', { ...ref, reason }, now),
    ),
    step({ name: 'release', summary: 'Continue an erasure that is held' }, nothing, (ref, _body, now) =>
      stepErasure(pool, 'release', ref, now),
    ),
    step({ name: 'retry', summary: 'Try the stores that failed again now' }, nothing, (ref, _body, now) =>
      stepErasure(pool, 'retry', ref, now),
    ),
  ];
}

// ── Progress ───────────────────────────────────────────────────────────────────────────────────────────────

function progressRoute(options: ErasureOptions): Route {
  const streams = new Streams(options.communities);
  return route({
    tags: ['admin: erasures'],
    who: 'operator',
    method: 'GET',
    url: `${ONE}/progress`,
    summary: 'Progress of an erasure, as server-sent events',
    description:
      'An event `progress` now and after each change; the stream ends with the erasure. ' +
      '`closed`: you may no longer read.',
    params,
    produces: { [SSE]: news },
    response: z.custom<Flow>(),
    errors: ['NOT_FOUND'],
    handler: async (call) => {
      const erasure = await readSeen(options, call);
      if (isDenial(erasure)) return erasure;
      const full = streams.refuse(call);
      if (full !== undefined) return full;
      const lines = progress(options, watcher(options, call), erasure);
      const stream = Readable.from(lines, { objectMode: false });
      streams.hold(call, stream);
      return new Flow(stream);
    },
  });
}

async function* progress(
  options: ErasureOptions,
  refusal: EndingReader,
  first: Erasure,
): AsyncGenerator<string> {
  const life = new SignOfLife(options.signOfLifeMs);
  let sent = '';
  for (let erasure: Erasure | undefined = first; erasure !== undefined; ) {
    const json = JSON.stringify(showNews(erasure));
    if (json !== sent || life.isDue()) {
      // A line that begins with a colon is a comment, and keeps the connection alive.
      yield json === sent ? ':\n\n' : `event: progress\ndata: ${json}\n\n`;
      life.given();
      sent = json;
    }
    if (erasure.stage === 'completed' || erasure.stage === 'cancelled') return;
    const ending = await refusal(POLL_MS);
    if (ending === 'gone') return;
    if (ending !== undefined) return yield `event: closed\ndata: ${JSON.stringify({ code: ending })}\n\n`;
    erasure = await readErasure(options.pool, erasure.erasureId);
  }
}
