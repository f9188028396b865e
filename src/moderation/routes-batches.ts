/** Routes for batches, one action on many stored events: preview, start, show the progress, undo. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import type { EventStore } from '../events/store.js';
import { LABELS, labelSchema } from '../labels/rules.js';
import type { SearchPools } from '../search/search.sql.js';
import { type Batch, findBatch, listBatches, startBatch, undoBatch } from './batches.sql.js';
import { findCase } from './cases.sql.js';
import {
  BATCH_ACTIONS,
  BATCH_SEARCH_MAX,
  BATCH_STATUSES,
  type BatchSpec,
  batchOfRule,
  CASE_ACTIONS,
  selectionSchema,
} from './rules.js';
import { type Preview, previewBatch, selectBySearch } from './selection.sql.js';
import { findRule } from './stored-rules.sql.js';

const BATCHES = '/admin/moderation/batches';
const NOTE_MAX = 2_000;
/** Previews and searches that run at the same time in this process: each reads thousands of events. */
const PREVIEWS_MAX = 2;
const count = z.number().int();
const seconds = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const params = z.strictObject({ batch_id: z.uuid() });

const SELECTION = `Give one of three: \`rule_id\` of a stored rule without a rate (its own action is the
default); \`conditions\` as in a rule but without a rate, such as \`{"authors": […]}\` or \`{"words":
[…]}\`; or \`case_id\` of a case about a person, for all of their events.

Conditions may also have a \`search\`: what members would find with it, in every topic, at most the newest
${BATCH_SEARCH_MAX} events (\`stopped_early\` is true when there are more). \`index\` says how far the
search index is behind. A batch with a \`search\` needs \`as_of\`, from its preview or any other time:
events that arrived later are not part of it.`;

const selected = z
  .strictObject({
    rule_id: z.uuid().optional(),
    conditions: selectionSchema.optional(),
    case_id: z.uuid().optional(),
    since: seconds.optional().describe('Of `created_at`'),
    until: seconds.optional().describe('Of `created_at`'),
    as_of: milliseconds
      .min(0)
      .max(Number.MAX_SAFE_INTEGER)
      .optional()
      .describe('Events that arrived later are not part of it; default: now. Use `as_of` of the preview'),
    action: z.enum(BATCH_ACTIONS).optional().describe('Required without a rule'),
    label: labelSchema.optional(),
    note: plainText(NOTE_MAX).default('').describe('The reason, stored for moderators and operators'),
  })
  .refine(
    (body) => [body.rule_id, body.conditions, body.case_id].filter((one) => one !== undefined).length === 1,
    { error: 'give one of rule_id, conditions and case_id' },
  )
  .refine((body) => body.rule_id !== undefined || body.action !== undefined, {
    error: 'an action is needed',
    path: ['action'],
  })
  .refine((body) => body.action === undefined || (body.action === 'label') === (body.label !== undefined), {
    error: 'the action label needs a label; other actions do not take one',
    path: ['label'],
  })
  .refine((body) => body.conditions?.rate === undefined, {
    error: 'a batch cannot have a rate',
    path: ['conditions', 'rate'],
  });
type BatchBody = z.output<typeof selected>;

const started = selected.refine((body) => body.conditions?.search === undefined || body.as_of !== undefined, {
  error: 'a search needs the as_of of its preview',
  path: ['as_of'],
});

const index = z
  .strictObject({ behind: count, rebuilding: z.boolean() })
  .nullable()
  .describe('For a search: how many changes the index is behind, and whether older posts may be missing');

async function specOf(
  pool: Pool,
  { id: community }: Community,
  body: BatchBody,
): Promise<BatchSpec | Denial> {
  const { action = 'remove', label, since, until, note, as_of: asOf } = body;
  const same = { since, until, note, asOf };
  if (body.rule_id !== undefined) {
    const rule = await findRule(pool, community, body.rule_id);
    if (isDenial(rule)) return rule;
    const own = batchOfRule(rule);
    if (own === undefined)
      return denial('STATUS_CONFLICT', { rule: 'has a rate, so it cannot be applied to stored events' });
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
  action: z
    .enum([...new Set([...BATCH_ACTIONS, ...CASE_ACTIONS, 'release'] as const)])
    .describe('release: a deleted rule releases what it held; actions on cases: the same for many cases'),
  conditions: z.record(z.string(), z.unknown()),
  label: z
    .strictObject({ label: z.enum(LABELS), confidence: z.number(), days: count, policy: z.string() })
    .nullable(),
  since: count.nullable(),
  until: count.nullable(),
  as_of: milliseconds.nullable().describe('Events that arrived later are not part of it; null: created_at'),
  index,
  note: z.string(),
  actor: pubkey.nullable().describe('Null for the command line on the machine of the node'),
  created_at: milliseconds,
  updated_at: milliseconds,
  looked_at: count.describe('Events, or cases, read so far'),
  matched: count,
  stopped_early: z.boolean().describe('It has reached the limit of a batch; start another for the rest'),
  outcomes: z
    .record(z.string(), count)
    .describe('Number of actions by outcome, such as `remove: removed` and `restore: deleted`'),
});

function show(found: Batch): z.output<typeof batch> {
  const { as_of: asOf, index: lacks, case_action: _, ...conditions } = found.conditions;
  return {
    batch_id: found.batchId,
    status: found.status,
    action: found.action,
    conditions,
    label: found.label,
    since: found.since,
    until: found.until,
    as_of: asOf ?? null,
    index: lacks ?? null,
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
  as_of: milliseconds.describe('Give it to the batch: events that arrive later are not part of it'),
  index,
  authors: z.array(z.strictObject({ pubkey, events: count })).describe('The most frequent first'),
  kinds: z.array(z.strictObject({ kind: count, events: count })),
  samples: z.array(
    z.strictObject({ event_id: z.string(), pubkey, kind: count, created_at: count, excerpt: z.string() }),
  ),
});

function showPreview({ found, asOf }: BatchSpec, result: Preview, now: number): z.output<typeof preview> {
  return {
    looked_at: result.lookedAt,
    matched: result.met,
    stopped_early: result.stoppedEarly,
    as_of: asOf ?? now,
    index: found === undefined ? null : { behind: found.behind, rebuilding: found.isRebuilding },
    authors: result.authors.map(([author, events]) => ({ pubkey: author, events })),
    kinds: result.kinds.map(([kind, events]) => ({ kind, events })),
    samples: result.samples.map(({ id, createdAt, ...same }) => ({
      event_id: id,
      created_at: createdAt,
      ...same,
    })),
  };
}

const shared = { tags: ['admin: moderation'], who: 'operator', role: 'moderator' } as const;

export interface BatchOptions {
  readonly pool: Pool;
  readonly events: Pick<EventStore, 'stored'>;
  readonly search: SearchPools;
}

export function moderationBatchRoutes({ pool, search, events }: BatchOptions): Route[] {
  const withinLimit = limitedTo(PREVIEWS_MAX);
  /** The specification, with the ids that its search finds now. */
  const specWithFound = async (
    community: Community,
    body: BatchBody,
    now: number,
  ): Promise<BatchSpec | Denial> => {
    const spec = await specOf(pool, community, body);
    if (isDenial(spec) || spec.conditions.search === undefined) return spec;
    const found = await selectBySearch(search, community, spec.conditions, { ...spec, now });
    return isDenial(found) ? found : { ...spec, found };
  };
  return [
    route({
      ...shared,
      method: 'POST',
      url: `${BATCHES}/preview`,
      summary: 'Preview a batch: count what it would act on; nothing is done',
      description: SELECTION,
      body: selected,
      response: preview,
      errors: ['NOT_FOUND', 'STATUS_CONFLICT', 'SEARCH_NOT_READY', 'UNAVAILABLE'],
      handler: ({ community, body, now }) =>
        withinLimit(async () => {
          const spec = await specWithFound(community, body, now);
          if (isDenial(spec)) return spec;
          return showPreview(spec, await previewBatch(pool, events.stored, community, spec, now), now);
        }),
    }),
    route({
      ...shared,
      method: 'POST',
      url: BATCHES,
      summary: 'Start a batch: act on every stored event that matches; a worker carries it out',
      description: SELECTION,
      body: started,
      status: 202,
      response: batch,
      errors: ['NOT_FOUND', 'STATUS_CONFLICT', 'BATCH_LIMIT_REACHED', 'SEARCH_NOT_READY', 'UNAVAILABLE'],
      handler: ({ community, pubkey: actor, body, now }) =>
        withinLimit(async () => {
          const spec = await specWithFound(community, body, now);
          if (isDenial(spec)) return spec;
          return shown(await startBatch(pool, { community: community.id, actor }, spec, now));
        }),
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
      summary: 'A batch with its progress and outcomes',
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
      summary: 'Undo a whole batch',
      description: `Possible within \`moderation.undoDays\`. Removed events are restored, released ones are
removed, labels are withdrawn, and cases get their earlier status. Later decisions about an event or a case
stay. An event that its author deleted meanwhile stays deleted; \`outcomes\` counts it.`,
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

/** Runs at most `max` of them at the same time in this process. */
function limitedTo(max: number) {
  let underWay = 0;
  return async <T>(work: () => Promise<T | Denial>): Promise<T | Denial> => {
    if (underWay >= max) return denial('RATE_LIMITED', { retry_after_seconds: 1 });
    underWay += 1;
    try {
      return await work();
    } finally {
      underWay -= 1;
    }
  };
}
