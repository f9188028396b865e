/**
 * Consumers of the outbox, such as search, over HTTP. They belong to the whole node: whoever runs a community sees how they stand,
 * and what of their own community could not be taken (I13); only operators of the default community change them.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import type { Community } from '../communities.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { OUTBOX_REASONS } from '../core/hidden.js';
import { DEFAULT_SLUG } from '../store/communities.js';
import {
  type ConsumerState,
  pageLetters,
  progressOf,
  readConsumer,
  readConsumers,
} from '../store/consumer-admin.js';
import { pause, rebuild, replay, resume, retry, type Steered } from '../store/consumer-steps.js';
import type { DeadLetter, Rebuild } from '../store/consumers.js';
import { type Call, type Route, route } from './contract.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage } from './schemas.js';

const CONSUMERS = '/admin/consumers';
const ONE = `${CONSUMERS}/:name`;
const count = z.number().int();
const seq = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const params = z.strictObject({ name: z.string().min(1).max(100) });

const rebuilding = z.strictObject({
  generation: count,
  reason: z.string(),
  phase: z.enum(['waiting', 'scanning', 'replaying']),
  percent: count.describe('Of this phase'),
  scanned: count,
  expected: count.describe('Events of the view when it began'),
  pinned_seq: count.nullable(),
  last_seq: count.nullable().describe('How far the outbox has been replayed'),
  requested_at: milliseconds,
  started_at: milliseconds.nullable(),
});

const consumer = z.strictObject({
  name: z.string(),
  generation: count.describe('0: nothing is whole yet'),
  last_seq: count,
  head_seq: count,
  lag_rows: count.describe('Numbers that it has not passed yet'),
  lag_seconds: z.number().describe('How long the oldest row that it has not read has been waiting'),
  behind: z.boolean().describe('Further behind than the outbox reaches: it is rebuilt'),
  rows_per_second: z.number(),
  applied: count,
  dead_letters: count.describe('In all communities'),
  held: z.boolean().describe('An instance has the turn to work on it'),
  paused_at: milliseconds.nullable(),
  updated_at: milliseconds,
  failing_since: milliseconds.nullable(),
  error: z
    .string()
    .nullable()
    .describe('Told to operators of the default community only: it may quote an event'),
  rebuild: rebuilding.nullable(),
});

const letter = z.strictObject({
  seq: count,
  op: z.enum(['upsert', 'delete']),
  reason: z.enum(Object.values(OUTBOX_REASONS)).nullable(),
  event_id: z.string(),
  author: pubkey,
  kind: count,
  topics: z.array(z.string()),
  effective_key: z.string().nullable(),
  created_at: count.describe('Seconds since 1970, as the event has it'),
  ingested_at: milliseconds,
  attempts: count,
  error: z.string(),
  failed_at: milliseconds,
  retry_asked: z.boolean(),
});

function showRebuild(rebuild: Rebuild, headSeq: number): z.output<typeof rebuilding> {
  return {
    generation: rebuild.generation,
    reason: rebuild.reason,
    ...progressOf(rebuild, headSeq),
    scanned: rebuild.scanned,
    expected: rebuild.expected,
    pinned_seq: rebuild.pinnedSeq,
    last_seq: rebuild.lastSeq,
    requested_at: rebuild.requestedAt,
    started_at: rebuild.startedAt,
  };
}

function show(state: ConsumerState, community: Community): z.output<typeof consumer> {
  return {
    name: state.consumer,
    generation: state.generation,
    last_seq: state.lastSeq,
    head_seq: state.headSeq,
    lag_rows: state.lagRows,
    lag_seconds: state.lagSeconds,
    behind: state.behind,
    rows_per_second: state.rowsPerSecond,
    applied: state.applied,
    dead_letters: state.deadLetters,
    held: state.held,
    paused_at: state.pausedAt,
    updated_at: state.updatedAt,
    failing_since: state.failingSince,
    error: isOfNode(community) ? state.error : null,
    rebuild: state.rebuild === undefined ? null : showRebuild(state.rebuild, state.headSeq),
  };
}

function showLetter(dead: DeadLetter): z.output<typeof letter> {
  return {
    seq: dead.seq,
    op: dead.op,
    reason: dead.reason,
    event_id: dead.id,
    author: dead.author,
    kind: dead.kind,
    topics: [...dead.topics],
    effective_key: dead.effectiveKey,
    created_at: dead.createdAt,
    ingested_at: dead.ingestedAt,
    attempts: dead.attempts,
    error: dead.error,
    failed_at: dead.failedAt,
    retry_asked: dead.retryAsked,
  };
}

const isOfNode = ({ slug }: Community) => slug === DEFAULT_SLUG;

const NOT_OF_NODE = denial('OPERATORS_ONLY', {
  explanation:
    'Consumers belong to the whole node: only an operator of the default community may change them, asking there.',
});

type Named = Call<'operator', z.output<typeof params>>;

function steered({ community, params: { name }, pubkey, now }: Named): Steered {
  return { community: community.id, consumer: name, actor: pubkey, now };
}

export function consumerRoutes({ pool }: { readonly pool: Pool }): Route[] {
  const shared = { tags: ['admin: consumers'], who: 'operator' } as const;
  /** A change of a consumer, answered with how it stands then. */
  const step = <B extends z.ZodType<object>>(
    told: { readonly url: string; readonly summary: string; readonly description?: string },
    errors: readonly ('REPLAY_OUT_OF_REACH' | 'NOT_FOUND')[],
    body: B,
    work: (of: Steered, body: z.output<B>) => Promise<ConsumerState | Denial>,
  ): Route =>
    route({
      ...shared,
      ...told,
      method: 'POST',
      params,
      body,
      response: consumer,
      errors,
      handler: async (call) => {
        if (!isOfNode(call.community)) return NOT_OF_NODE;
        const state = await work(steered(call), call.body);
        return isDenial(state) ? state : show(state, call.community);
      },
    });
  const nothing = z.strictObject({});
  return [
    route({
      ...shared,
      method: 'GET',
      url: CONSUMERS,
      summary: 'How the consumers of the outbox stand',
      response: z.strictObject({ items: z.array(consumer) }),
      errors: [],
      handler: async ({ community, now }) => ({
        items: (await readConsumers(pool, now)).map((state) => show(state, community)),
      }),
    }),
    step({ url: `${ONE}/pause`, summary: 'Let a consumer rest where it is' }, ['NOT_FOUND'], nothing, (of) =>
      pause(pool, of),
    ),
    step({ url: `${ONE}/resume`, summary: 'Let it go on' }, ['NOT_FOUND'], nothing, (of) => resume(pool, of)),
    step(
      {
        url: `${ONE}/rebuild`,
        summary: 'Build it anew from the view and the outbox',
        description:
          'What it has stays readable until the new one takes its place. One that is under way goes on as it is.',
      },
      ['NOT_FOUND'],
      z.strictObject({ reason: plainText(200).optional() }),
      (of, { reason }) => rebuild(pool, of, reason ?? 'an operator asked for it'),
    ),
    step(
      {
        url: `${ONE}/replay`,
        summary: 'Apply rows of the outbox again',
        description: 'Goes back, and no further than the outbox reaches.',
      },
      ['NOT_FOUND', 'REPLAY_OUT_OF_REACH'],
      z.strictObject({ from: seq.min(1).describe('The first number that is applied again') }),
      (of, { from }) => replay(pool, of, from),
    ),
    route({
      ...shared,
      method: 'GET',
      url: `${ONE}/dead-letters`,
      summary: 'Rows of this community that a consumer failed at, by their numbers',
      params,
      query: pageQuery,
      response: pageOf(letter),
      errors: ['NOT_FOUND'],
      handler: async ({ community, params: { name }, query, now }) => {
        const state = await readConsumer(pool, name, now);
        if (isDenial(state)) return state;
        return showPage(
          await pageLetters(pool, { consumer: name, community: community.id }, query),
          showLetter,
        );
      },
    }),
    route({
      ...shared,
      method: 'POST',
      url: `${ONE}/dead-letters/retry`,
      summary: 'Try one of them again, or all',
      description: 'They are tried within a moment, each once; one that fails again is there again.',
      params,
      body: z.strictObject({ seq: seq.optional().describe('All of them unless told, in every community') }),
      status: 202,
      response: z.strictObject({ asked: count.describe('How many will be tried') }),
      errors: ['NOT_FOUND'],
      handler: async (call) =>
        isOfNode(call.community) ? retry(pool, steered(call), call.body.seq) : NOT_OF_NODE,
    }),
  ];
}
