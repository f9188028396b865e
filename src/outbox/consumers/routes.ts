/**
 * The HTTP API of the consumers of the outbox, such as search. Consumers belong to the whole node: operators
 * of a community see their state and the dead letters of their own community (I13); only operators of the
 * node change them.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Call, type Route, route } from '../../api/contract.js';
import { isNodeOperator, type NodeOperators, refuseOthers } from '../../api/node-operators.js';
import { type Denial, isDenial } from '../../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage } from '../../api/schemas.js';
import { OUTBOX_REASONS } from '../../events/rules/hidden.js';
import { type ConsumerState, pageLetters, progressOf, readConsumer, readConsumers } from './admin.sql.js';
import type { DeadLetter, Rebuild } from './consumers.sql.js';
import { pause, rebuild, replay, resume, retry, type Steered } from './steps.sql.js';

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
  expected: count.describe('The number of effective events when it began'),
  pinned_seq: count.nullable(),
  last_seq: count.nullable().describe('The offset up to which the outbox has been replayed'),
  requested_at: milliseconds,
  started_at: milliseconds.nullable(),
});

const consumer = z.strictObject({
  name: z.string(),
  generation: count.describe('0: no generation is complete yet'),
  last_seq: count,
  head_seq: count,
  lag_rows: count.describe('The number of offsets between its own and the head'),
  lag_seconds: z.number().describe('The age of the oldest row that it has not read'),
  behind: z.boolean().describe('The outbox no longer has the rows that it needs next: it is rebuilt'),
  rows_per_second: z.number(),
  applied: count,
  dead_letters: count.describe('In all communities'),
  held: z.boolean().describe('An instance holds its lease'),
  paused_at: milliseconds.nullable(),
  updated_at: milliseconds,
  failing_since: milliseconds.nullable(),
  error: z.string().nullable().describe('Shown to operators of the node only: it may quote an event'),
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

function show(state: ConsumerState, isOfNode: boolean): z.output<typeof consumer> {
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
    error: isOfNode ? state.error : null,
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

const WHAT = 'Consumers belong to the whole node';

type Named = Call<'operator', z.output<typeof params>>;

function steered({ community, params: { name }, pubkey, now }: Named): Steered {
  return { community: community.id, consumer: name, actor: pubkey, now };
}

export function consumerRoutes(options: NodeOperators & { readonly pool: Pool }): Route[] {
  const { pool } = options;
  const shared = { tags: ['admin: consumers'], who: 'operator' } as const;
  /** A route that changes a consumer and returns its state. */
  const step = <B extends z.ZodType<object>>(
    about: { readonly url: string; readonly summary: string; readonly description?: string },
    errors: readonly ('REPLAY_OUT_OF_REACH' | 'NOT_FOUND')[],
    body: B,
    work: (of: Steered, body: z.output<B>) => Promise<ConsumerState | Denial>,
  ): Route =>
    route({
      ...shared,
      ...about,
      method: 'POST',
      params,
      body,
      response: consumer,
      errors,
      handler: async (call) => {
        const refused = refuseOthers(options, call, WHAT);
        if (refused !== undefined) return refused;
        const state = await work(steered(call), call.body);
        return isDenial(state) ? state : show(state, true);
      },
    });
  const nothing = z.strictObject({});
  return [
    route({
      ...shared,
      method: 'GET',
      url: CONSUMERS,
      role: 'viewer',
      summary: 'List the consumers of the outbox and their state',
      response: z.strictObject({ items: z.array(consumer) }),
      errors: [],
      handler: async (call) => ({
        items: (await readConsumers(pool, call.now)).map((state) =>
          show(state, isNodeOperator(options, call)),
        ),
      }),
    }),
    step({ url: `${ONE}/pause`, summary: 'Pause a consumer at its offset' }, ['NOT_FOUND'], nothing, (of) =>
      pause(pool, of),
    ),
    step({ url: `${ONE}/resume`, summary: 'Resume a consumer' }, ['NOT_FOUND'], nothing, (of) =>
      resume(pool, of),
    ),
    step(
      {
        url: `${ONE}/rebuild`,
        summary: 'Rebuild a consumer from the effective events and the outbox',
        description:
          'Its data stays readable until the new generation replaces it. A running rebuild continues.',
      },
      ['NOT_FOUND'],
      z.strictObject({ reason: plainText(200).optional() }),
      (of, { reason }) => rebuild(pool, of, reason ?? 'an operator asked for it'),
    ),
    step(
      {
        url: `${ONE}/replay`,
        summary: 'Apply rows of the outbox again',
        description: 'Moves the consumer back, at most to the oldest row of the outbox.',
      },
      ['NOT_FOUND', 'REPLAY_OUT_OF_REACH'],
      z.strictObject({ from: seq.min(1).describe('The first offset that is applied again') }),
      (of, { from }) => replay(pool, of, from),
    ),
    route({
      ...shared,
      method: 'GET',
      url: `${ONE}/dead-letters`,
      role: 'viewer',
      summary: 'List the changes of this community that a consumer could not apply, by offset',
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
      summary: 'Retry one dead letter, or all',
      description: 'They are retried within seconds, each once. One that fails again is listed again.',
      params,
      body: z.strictObject({ seq: seq.optional().describe('By default all of them, in every community') }),
      status: 202,
      response: z.strictObject({ asked: count.describe('How many will be retried') }),
      errors: ['NOT_FOUND'],
      handler: async (call) => refuseOthers(options, call, WHAT) ?? retry(pool, steered(call), call.body.seq),
    }),
  ];
}
