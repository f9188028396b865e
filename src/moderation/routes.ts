/**
 * Routes for moderation cases: list them, show one with what was done about it, and act on one or many.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import type { NostrEvent } from '../events/rules/event.js';
import type { EventRef, EventStore } from '../events/store.js';
import { type KeptLabel, labelsAbout } from '../labels/labels.sql.js';
import { LABELS, labelSchema } from '../labels/rules.js';
import type { Log } from '../node/log.js';
import type { Page } from '../postgres/page.js';
import { reportsOfCase } from '../reports/reports.sql.js';
import { eventId, reportShape, showReport } from '../reports/routes.js';
import { REPORT_REASONS } from '../reports/rules.js';
import type { PagePools } from '../search/search.sql.js';
import { topicIdText } from '../topics/schemas.js';
import { actInBatch, closeCaseBatch, openCaseBatch } from './case-batches.sql.js';
import { readCaseEvent, readCaseEvents } from './case-event.js';
import {
  type Acting,
  type Action,
  act,
  type Case,
  type CaseFilter,
  findAction,
  findCase,
  listActions,
  listCases,
  openByHand,
} from './cases.sql.js';
import { moderationFigureRoutes } from './figures/routes.js';
import { moderationBatchRoutes } from './routes-batches.js';
import { moderationRuleRoutes } from './routes-rules.js';
import { CASE_ACTIONS, CASE_STATUSES, HAD_EFFECT } from './rules.js';

const CASES = '/admin/moderation/cases';
const NOTE_MAX = 2_000;

export interface ModerationOptions {
  readonly pool: Pool;
  readonly events: Pick<EventStore, 'stored'>;
  readonly adminPubkeys: readonly string[];
  /** Carries out the pending actions on an event now. If it fails, a worker does it later. */
  readonly carryOut: (about: EventRef) => Promise<unknown>;
  readonly search: PagePools;
  readonly log: Log;
}

export function moderationRoutes(options: ModerationOptions): Route[] {
  return [
    ...moderationRuleRoutes(options),
    ...moderationBatchRoutes(options),
    ...moderationFigureRoutes(options),
    ...caseRoutes(options),
    actRoute(options),
    actOnManyRoute(options),
  ];
}

const oneCase = z.strictObject({
  case_id: z.uuid(),
  status: z
    .enum(CASE_STATUSES)
    .describe('held: a rule hides the event until a moderator decides; resolved: it was removed or restored'),
  target_event: eventId.nullable().describe('Null when it is about the person'),
  target_pubkey: pubkey,
  reason: z.string(),
  rule_id: z.uuid().nullable(),
  topics: z.array(z.string()).describe('Topics of the event when the case was opened'),
  appeal: z
    .string()
    .nullable()
    .describe('Of the author; it waits for a decision while the case is open or held'),
  appealed_at: milliseconds.nullable(),
  reports: z.number().int().describe('Number of reports in the case, without withdrawn ones'),
  reports_with_standing: z
    .number()
    .int()
    .describe('Those whose reporters had standing when they reported; a report is weighed within seconds'),
  report_weight: z.number().describe('The sum of the standings of their reporters, each from 0 to 1'),
  opened_at: milliseconds,
  updated_at: milliseconds,
  closed_at: milliseconds.nullable(),
});

function showCase(found: Case): z.output<typeof oneCase> {
  return {
    case_id: found.caseId,
    status: found.status,
    target_event: found.targetEvent,
    target_pubkey: found.targetPubkey,
    reason: found.reason,
    rule_id: found.ruleId,
    topics: [...found.topics],
    appeal: found.appeal,
    appealed_at: found.appealedAt,
    reports: found.reports,
    reports_with_standing: found.reportsWithStanding,
    report_weight: found.reportWeight,
    opened_at: found.openedAt,
    updated_at: found.updatedAt,
    closed_at: found.closedAt,
  };
}

const action = z.strictObject({
  action_id: z.uuid(),
  action: z.enum(CASE_ACTIONS),
  at: milliseconds,
  done_at: milliseconds.nullable(),
  outcome: z
    .string()
    .nullable()
    .describe(
      'removed, restored, done, or why it had no effect (deleted, expired, purged …); null: still pending',
    ),
  rule_id: z.uuid().nullable(),
  actor: pubkey.nullable().describe('Null for a rule, or for the command line on the machine of the node'),
  note: z.string().nullable(),
});

function showAction(taken: Action): z.output<typeof action> {
  return {
    action_id: taken.actionId,
    action: taken.action,
    at: taken.at,
    done_at: taken.doneAt,
    outcome: taken.outcome,
    rule_id: taken.ruleId,
    actor: taken.actor,
    note: taken.note,
  };
}

const label = z.strictObject({
  label: z.enum(LABELS),
  confidence: z.number(),
  policy: z.string(),
  rule_id: z.uuid().nullable(),
  created_at: milliseconds,
  lapses_at: z.number().int().describe('Seconds since 1970'),
  withdrawn_at: milliseconds.nullable(),
  label_event: eventId.nullable().describe('The event of kind 1985; null until it is published'),
});

function showLabel(put: KeptLabel): z.output<typeof label> {
  return {
    label: put.label,
    confidence: put.confidence,
    policy: put.policy,
    rule_id: put.ruleId,
    created_at: put.createdAt,
    lapses_at: put.lapsesAt,
    withdrawn_at: put.withdrawnAt,
    label_event: put.labelEvent,
  };
}

const POST_TEXT_MAX = 500;

/** A case in a list, with the beginning of the text that it is about. */
const listedCase = oneCase.extend({
  post: z
    .strictObject({
      kind: z.number().int(),
      created_at: z.number().int().describe('Seconds since 1970'),
      text: z.string().describe(`At most ${POST_TEXT_MAX} characters`),
      is_cut: z.boolean(),
    })
    .nullable()
    .describe('Also while it is held or removed; null: about a person, deleted by its author, or purged'),
});

function showPost(event: NostrEvent | undefined): z.output<typeof listedCase>['post'] {
  if (event === undefined) return null;
  const { kind, created_at, content } = event;
  const characters = [...content.slice(0, 2 * POST_TEXT_MAX + 2)];
  const is_cut = characters.length > POST_TEXT_MAX;
  return { kind, created_at, text: characters.slice(0, POST_TEXT_MAX).join(''), is_cut };
}

/** With the beginnings of the texts. */
async function showCases(
  { pool, events: { stored } }: ModerationOptions,
  community: number,
  page: Page<Case>,
): Promise<CaseList> {
  const ids = page.items.flatMap(({ targetEvent }) => targetEvent ?? []);
  const events = await readCaseEvents(pool, stored, community, ids);
  return {
    items: page.items.map((one) => ({ ...showCase(one), post: showPost(events.get(one.targetEvent ?? '')) })),
    next_cursor: page.cursor ?? null,
  };
}
const caseList = pageOf(listedCase);
type CaseList = z.output<typeof caseList>;

const wholeCase = oneCase.extend({
  event: z
    .record(z.string(), z.unknown())
    .nullable()
    .describe('Also while it is held or removed; null: its author deleted it, or it was purged'),
  report_list: z.array(reportShape),
  actions: z.array(action),
  labels: z.array(label),
});

async function wholeOf(
  { pool, events: { stored } }: ModerationOptions,
  { id: community }: Community,
  found: Case,
): Promise<z.output<typeof wholeCase>> {
  const { caseId, targetEvent: event, targetPubkey } = found;
  const shown = event === null ? undefined : await readCaseEvent(pool, stored, { community, id: event });
  const labels = await labelsAbout(pool, { community, event: event ?? undefined, pubkey: targetPubkey });
  return {
    ...showCase(found),
    event: shown === undefined ? null : { ...shown },
    report_list: (await reportsOfCase(pool, caseId)).map(showReport),
    actions: (await listActions(pool, found, community)).map(showAction),
    labels: labels.map(showLabel),
  };
}

const time = z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const caseQuery = {
  status: z.enum(CASE_STATUSES).optional(),
  topic: topicIdText.optional(),
  author: pubkey.optional(),
  reason: z.enum(REPORT_REASONS).optional().describe('The reason of one of its reports'),
  rule_id: z.uuid().optional(),
  since: time.optional().describe('Opened at this time or later, in milliseconds'),
  until: time.optional().describe('Opened before this time, in milliseconds'),
  appealed: z.stringbool().optional().describe('Whether an appeal waits for a decision'),
};

function caseFilter(
  { id: community }: Community,
  { rule_id: ruleId, ...same }: z.output<z.ZodObject<typeof caseQuery>>,
): CaseFilter {
  return { community, ruleId, ...same };
}

const params = z.strictObject({ case_id: z.uuid() });
const shared = { tags: ['admin: moderation'], who: 'operator', role: 'moderator' } as const;

function caseRoutes(options: ModerationOptions): Route[] {
  const { pool } = options;
  return [
    route({
      ...shared,
      method: 'GET',
      url: CASES,
      summary: 'Cases, the newest first',
      description: 'A case must match every parameter that is given.',
      query: pageQuery.extend(caseQuery),
      response: caseList,
      errors: [],
      handler: async ({ community, query: { limit, cursor, ...filter } }) => {
        const page = await listCases(pool, caseFilter(community, filter), { limit, cursor });
        return isDenial(page) ? page : showCases(options, community.id, page);
      },
    }),
    route({
      ...shared,
      method: 'POST',
      url: CASES,
      summary: 'Open a case about an event or a person, or get the one that is open',
      body: z
        .strictObject({
          event_id: eventId.optional(),
          pubkey: pubkey.optional(),
          note: plainText(NOTE_MAX).default(''),
        })
        .refine((body) => (body.event_id === undefined) !== (body.pubkey === undefined), {
          error: 'give either event_id or pubkey',
        }),
      status: 201,
      response: oneCase,
      errors: ['NOT_FOUND'],
      handler: async ({ community, pubkey: actor, body, now }) => {
        const { event_id: event, pubkey: person, note } = body;
        const opening = { community: community.id, event, pubkey: person, note, actor };
        const opened = await openByHand(pool, options.events.stored, opening, now);
        return isDenial(opened) ? opened : showCase(opened);
      },
    }),
    route({
      ...shared,
      method: 'GET',
      url: `${CASES}/:case_id`,
      summary: 'A case with its event, reports, actions and labels',
      params,
      response: wholeCase,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params: { case_id: caseId } }) => {
        const found = await findCase(pool, community.id, caseId);
        return isDenial(found) ? found : wholeOf(options, community, found);
      },
    }),
  ];
}

const ABOUT = `\`remove\` hides the event and \`restore\` serves it again, within \`moderation.undoDays\`.
Both take effect at once and resolve the case. An event that its author deleted meanwhile, or that expired,
is not restored: 409 \`NOT_DONE\` with the outcome. \`ban\` blocks the author. \`label\` and \`unlabel\`
need \`label\`. A held case cannot be dismissed: remove or restore its event.`;

const acting = z
  .strictObject({
    action: z.enum(CASE_ACTIONS),
    note: plainText(NOTE_MAX).default('').describe('The reason, stored for moderators and operators'),
    label: labelSchema.optional(),
  })
  .refine(
    ({ action: name, label: put }) => (name === 'label' || name === 'unlabel') === (put !== undefined),
    { error: 'the actions label and unlabel need a label; other actions do not take one', path: ['label'] },
  );

function actRoute(options: ModerationOptions): Route {
  const { pool } = options;
  return route({
    ...shared,
    method: 'POST',
    url: `${CASES}/:case_id/actions`,
    summary: 'Act on a case',
    description: ABOUT,
    params,
    body: acting,
    status: 201,
    response: action,
    errors: ['NOT_FOUND', 'STATUS_CONFLICT', 'NOT_DONE', 'FIXED_OPERATOR', 'BLOCK_LIMIT_REACHED'],
    handler: async ({ community, pubkey: actor, params: { case_id: caseId }, body, now }) => {
      const privateKinds = community.settings['auth.privateKinds'];
      const events = options.events.stored;
      const request = { community: community.id, caseId, actor, privateKinds, events, ...body };
      const taken = await act(pool, request, { fixed: options.adminPubkeys }, now);
      return isDenial(taken) ? taken : settle(options, request, taken);
    },
  });
}

const CASES_MAX = 100;

/** Acts on the cases one after another; a refusal of one does not stop the others. Undone as one batch. */
function actOnManyRoute(options: ModerationOptions): Route {
  const { pool, adminPubkeys } = options;
  return route({
    ...shared,
    method: 'POST',
    url: `${CASES}/actions`,
    summary: 'Do the same to many cases',
    description: `${ABOUT}

Each case has its own result: the action, or the error code that a single request would return. To undo all
of it: \`POST /v1/admin/moderation/batches/{batch_id}/undo\`.`,
    body: acting.safeExtend({ case_ids: z.array(z.uuid()).min(1).max(CASES_MAX) }),
    status: 201,
    response: z.strictObject({
      batch_id: z.uuid().nullable().describe('Null: nothing was done'),
      items: z.array(
        z.strictObject({ case_id: z.uuid(), action: action.nullable(), refused: z.string().nullable() }),
      ),
    }),
    errors: [],
    handler: async ({ community, pubkey: actor, body: { case_ids: caseIds, ...same }, now }) => {
      const privateKinds = community.settings['auth.privateKinds'];
      const chosen = [...new Set(caseIds)];
      const scope = { community: community.id, actor, ...same };
      const batch = await openCaseBatch(pool, { ...scope, caseIds: chosen }, now);
      const items = [];
      for (const caseId of chosen) {
        const request = { ...scope, caseId, privateKinds, events: options.events.stored };
        const taken = await actInBatch(pool, batch, request, { fixed: adminPubkeys }, now);
        const done = isDenial(taken) ? taken : await settle(options, request, taken);
        items.push(
          isDenial(done)
            ? { case_id: caseId, action: null, refused: done.denied }
            : { case_id: caseId, action: done, refused: null },
        );
      }
      return { batch_id: (await closeCaseBatch(pool, batch)) ?? null, items };
    },
  });
}

/** Carries out a pending action at once. If that fails, it stays pending and a worker does it later. */
async function settle(
  { pool, carryOut, log }: ModerationOptions,
  { community, caseId }: Acting,
  taken: Action,
): Promise<z.output<typeof action> | Denial> {
  if (taken.doneAt !== null) return showAction(taken);
  const found = await findCase(pool, community, caseId);
  if (isDenial(found) || found.targetEvent === null) return showAction(taken);
  await carryOut({ community, id: found.targetEvent }).catch((error: unknown) =>
    log.warn(
      { error: String(error) },
      'a moderation action failed and stays pending; a worker will retry it',
    ),
  );
  const done = await findAction(pool, taken.actionId);
  if (done.outcome === null || HAD_EFFECT[taken.action as 'remove' | 'restore'].includes(done.outcome))
    return showAction(done);
  return denial('NOT_DONE', { outcome: done.outcome, action_id: done.actionId });
}
