/** What is done to many stored events as one, over HTTP: look at it in numbers, start it, follow it, undo it. */
import type { Pool } from 'pg';
import { z } from 'zod';
import type { Community } from '../communities.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { LABELS, labelSchema } from '../core/labels.js';
import {
  BATCH_ACTIONS,
  BATCH_STATUSES,
  type BatchSpec,
  batchOfRule,
  conditionsSchema,
} from '../core/moderation.js';
import {
  type Batch,
  findBatch,
  listBatches,
  type Preview,
  previewBatch,
  startBatch,
  undoBatch,
} from '../store/moderation-batches.js';
import { findCase } from '../store/moderation-cases.js';
import { findRule } from '../store/moderation-rules.js';
import { type Route, route } from './contract.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage } from './schemas.js';

const BATCHES = '/admin/moderation/batches';
const NOTE_MAX = 2_000;
/** Previews of this process at a time: each reads thousands of events. */
const PREVIEWS_MAX = 2;
const count = z.number().int();
const seconds = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const params = z.strictObject({ batch_id: z.uuid() });

const SELECTION = `Either \`rule_id\` (a kept rule without a rate; its own action by default), or \`conditions\` as a rule has them, such as
\`{"authors": […]}\` or \`{"words": […]}\`, without a rate; or \`case_id\` of a case about a person: all of their events.`;

const asked = z
  .strictObject({
    rule_id: z.uuid().optional(),
    conditions: conditionsSchema.optional(),
    case_id: z.uuid().optional(),
    since: seconds.optional().describe('Of `created_at`'),
    until: seconds.optional().describe('Of `created_at`'),
    action: z.enum(BATCH_ACTIONS).optional().describe('Needed without a rule'),
    label: labelSchema.optional(),
    note: plainText(NOTE_MAX).default('').describe('For operators; kept'),
  })
  .refine(
    (body) => [body.rule_id, body.conditions, body.case_id].filter((one) => one !== undefined).length === 1,
    { error: 'one of rule_id, conditions and case_id' },
  )
  .refine((body) => body.rule_id !== undefined || body.action !== undefined, {
    error: 'an action is needed',
    path: ['action'],
  })
  .refine((body) => body.action === undefined || (body.action === 'label') === (body.label !== undefined), {
    error: 'label needs a label, and nothing else has one',
    path: ['label'],
  })
  .refine((body) => body.conditions?.rate === undefined, { error: 'no rate', path: ['conditions', 'rate'] });
type Asked = z.output<typeof asked>;

async function specOf(pool: Pool, { id: community }: Community, body: Asked): Promise<BatchSpec | Denial> {
  const { action = 'remove', label, since, until, note } = body;
  const same = { since, until, note };
  if (body.rule_id !== undefined) {
    const rule = await findRule(pool, community, body.rule_id);
    if (isDenial(rule)) return rule;
    const own = batchOfRule(rule);
    if (own === undefined)
      return denial('STATUS_CONFLICT', { rule: 'has a rate, which stored events do not have' });
    const done = body.action === undefined ? own : { action, label };
    const said = note === '' ? `rule: ${rule.name}` : note;
    return { ...same, ...done, note: said, conditions: rule.conditions, byRule: true };
  }
  if (body.conditions !== undefined)
    return { ...same, action, label, conditions: body.conditions, byRule: false };
  const found = await findCase(pool, community, body.case_id ?? '');
  if (isDenial(found)) return found;
  if (found.targetEvent !== null) return denial('STATUS_CONFLICT', { case_is_about: 'an event; act on it' });
  return { ...same, action, label, conditions: { authors: [found.targetPubkey] }, byRule: false };
}

const batch = z.strictObject({
  batch_id: z.uuid(),
  status: z.enum(BATCH_STATUSES),
  action: z.enum([...BATCH_ACTIONS, 'release']).describe('release: what a deleted rule held'),
  conditions: z.record(z.string(), z.unknown()),
  label: z
    .strictObject({ label: z.enum(LABELS), confidence: z.number(), days: count, policy: z.string() })
    .nullable(),
  since: count.nullable(),
  until: count.nullable(),
  note: z.string(),
  actor: pubkey.nullable().describe('Null: the command line on the machine of the node'),
  created_at: milliseconds,
  updated_at: milliseconds,
  looked_at: count.describe('Events so far'),
  matched: count,
  stopped_early: z.boolean().describe('It has acted on as many as a batch can; start another for the rest'),
  outcomes: z
    .record(z.string(), count)
    .describe('Actions by what became of them, such as `remove: removed` and `restore: deleted`'),
});

function show(found: Batch): z.output<typeof batch> {
  return {
    batch_id: found.batchId,
    status: found.status,
    action: found.action,
    conditions: found.conditions,
    label: found.label,
    since: found.since,
    until: found.until,
    note: found.note,
    actor: found.actor,
    created_at: found.createdAt,
    updated_at: found.updatedAt,
    looked_at: found.lookedAt,
    matched: found.matched,
    stopped_early: found.stoppedEarly,
    outcomes: found.outcomes,
  };
}

const shown = (found: Batch | Denial) => (isDenial(found) ? found : show(found));

const preview = z.strictObject({
  looked_at: count,
  matched: count,
  stopped_early: z.boolean().describe('There are more events than a preview looks at'),
  authors: z.array(z.strictObject({ pubkey, events: count })).describe('The most frequent first'),
  kinds: z.array(z.strictObject({ kind: count, events: count })),
  samples: z.array(
    z.strictObject({ event_id: z.string(), pubkey, kind: count, created_at: count, excerpt: z.string() }),
  ),
});

function showPreview(result: Preview): z.output<typeof preview> {
  return {
    looked_at: result.lookedAt,
    matched: result.met,
    stopped_early: result.stoppedEarly,
    authors: result.authors.map(([author, events]) => ({ pubkey: author, events })),
    kinds: result.kinds.map(([kind, events]) => ({ kind, events })),
    samples: result.samples.map(({ id, createdAt, ...same }) => ({
      event_id: id,
      created_at: createdAt,
      ...same,
    })),
  };
}

const shared = { tags: ['admin: moderation'], who: 'operator' } as const;

export function moderationBatchRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    previewRoute(pool),
    route({
      ...shared,
      method: 'POST',
      url: BATCHES,
      summary: 'Do something to every stored event that matches; a worker carries it out',
      description: SELECTION,
      body: asked,
      status: 202,
      response: batch,
      errors: ['NOT_FOUND', 'STATUS_CONFLICT', 'BATCH_LIMIT_REACHED'],
      handler: async ({ community, pubkey: actor, body, now }) => {
        const spec = await specOf(pool, community, body);
        if (isDenial(spec)) return spec;
        return shown(await startBatch(pool, { community: community.id, actor }, spec, now));
      },
    }),
    route({
      ...shared,
      method: 'GET',
      url: BATCHES,
      summary: 'Batches, the newest first',
      query: pageQuery,
      response: pageOf(batch),
      errors: [],
      handler: async ({ community, query }) => showPage(await listBatches(pool, community.id, query), show),
    }),
    route({
      ...shared,
      method: 'GET',
      url: `${BATCHES}/:batch_id`,
      summary: 'How far a batch has come, and what became of it',
      params,
      response: batch,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params: { batch_id: batchId } }) =>
        shown(await findBatch(pool, community.id, batchId)),
    }),
    route({
      ...shared,
      method: 'POST',
      url: `${BATCHES}/:batch_id/undo`,
      summary: 'Undo a batch as one',
      description: `Within \`moderation.undoDays\`. What it removed is restored, what it released is removed, its labels are withdrawn, cases are as
they were. What somebody has decided about since stays so, and what its author deleted meanwhile stays away: \`outcomes\` counts it.`,
      params,
      status: 202,
      response: batch,
      errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
      handler: async ({ community, pubkey: actor, params: { batch_id: batchId }, now }) => {
        const undoDays = community.settings['moderation.undoDays'];
        return shown(await undoBatch(pool, { community: community.id, batchId, actor }, undoDays, now));
      },
    }),
  ];
}

function previewRoute(pool: Pool): Route {
  let underWay = 0;
  return route({
    ...shared,
    method: 'POST',
    url: `${BATCHES}/preview`,
    summary: 'What a batch would act on, in numbers; nothing is done',
    description: SELECTION,
    body: asked,
    response: preview,
    errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
    handler: async ({ community, body, now }) => {
      const spec = await specOf(pool, community, body);
      if (isDenial(spec)) return spec;
      if (underWay >= PREVIEWS_MAX) return denial('RATE_LIMITED', { retry_after_seconds: 1 });
      underWay += 1;
      try {
        return showPreview(await previewBatch(pool, community, spec, now));
      } finally {
        underWay -= 1;
      }
    },
  });
}
