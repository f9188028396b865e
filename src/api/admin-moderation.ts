/** Cases of moderation over HTTP: what should be looked at, what was done about it, and what a moderator does now. */
import type { Pool } from 'pg';
import { z } from 'zod';
import type { Community } from '../communities.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { LABELS, labelSchema } from '../core/labels.js';
import { CASE_ACTIONS, CASE_STATUSES, HAD_EFFECT } from '../core/moderation.js';
import { REPORT_REASONS } from '../core/report.js';
import type { Log } from '../log.js';
import { type KeptLabel, labelsAbout } from '../store/labels.js';
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
} from '../store/moderation-cases.js';
import { readCaseEvent } from '../store/moderation-event.js';
import { reportsOfCase } from '../store/reports.js';
import type { EventRef } from '../store/restore.js';
import { moderationBatchRoutes } from './admin-moderation-batches.js';
import { moderationRuleRoutes } from './admin-moderation-rules.js';
import { type Route, route } from './contract.js';
import { eventId, reportShape, showReport } from './reports.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage, topicIdText } from './schemas.js';

const CASES = '/admin/moderation/cases';
const NOTE_MAX = 2_000;

export interface ModerationOptions {
  readonly pool: Pool;
  readonly adminPubkeys: readonly string[];
  /** Does what is ordered about an event, now; what fails is done by a worker later. */
  readonly carryOut: (about: EventRef) => Promise<unknown>;
  readonly log: Log;
}

export function moderationRoutes(options: ModerationOptions): Route[] {
  return [
    ...moderationRuleRoutes(options),
    ...moderationBatchRoutes(options),
    ...caseRoutes(options),
    actRoute(options),
    actOnManyRoute(options),
  ];
}

const oneCase = z.strictObject({
  case_id: z.uuid(),
  status: z
    .enum(CASE_STATUSES)
    .describe('held: a rule has taken the event out until a moderator decides; resolved: that was done'),
  target_event: eventId.nullable().describe('Null: it is about the person'),
  target_pubkey: pubkey,
  reason: z.string(),
  rule_id: z.uuid().nullable(),
  topics: z.array(z.string()).describe('Of the event, when the case was opened'),
  appeal: z.string().nullable().describe('Of the author; it waits while the case is open or held'),
  appealed_at: milliseconds.nullable(),
  reports: z.number().int().describe('That are part of it; those withdrawn do not count'),
  reports_with_standing: z
    .number()
    .int()
    .describe(
      'Of them, by reporters who had standing when they reported; a report is weighed within seconds',
    ),
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
      'removed, restored, done, or why it had no effect (deleted, expired, purged …); null: not carried out yet',
    ),
  rule_id: z.uuid().nullable(),
  actor: pubkey.nullable().describe('Null: a rule, or the command line on the machine of the node'),
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
  label_event: eventId.nullable().describe('Of kind 1985; null while it is not published'),
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

const wholeCase = oneCase.extend({
  event: z
    .record(z.string(), z.unknown())
    .nullable()
    .describe('Also while it is held or removed; null: its author deleted it, or it is gone'),
  report_list: z.array(reportShape),
  actions: z.array(action),
  labels: z.array(label),
});

async function wholeOf(
  pool: Pool,
  { id: community }: Community,
  found: Case,
): Promise<z.output<typeof wholeCase>> {
  const { caseId, targetEvent: event, targetPubkey } = found;
  const shown = event === null ? undefined : await readCaseEvent(pool, { community, id: event });
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
  reason: z.enum(REPORT_REASONS).optional().describe('Of one of its reports'),
  rule_id: z.uuid().optional(),
  since: time.optional().describe('Opened at this time or later, in milliseconds'),
  until: time.optional().describe('Opened before this time, in milliseconds'),
  appealed: z.stringbool().optional().describe('Whether an appeal of the author waits'),
};

function caseFilter(
  { id: community }: Community,
  { rule_id: ruleId, ...same }: z.output<z.ZodObject<typeof caseQuery>>,
): CaseFilter {
  return { community, ruleId, ...same };
}

const params = z.strictObject({ case_id: z.uuid() });
const shared = { tags: ['admin: moderation'], who: 'operator' } as const;

function caseRoutes({ pool }: ModerationOptions): Route[] {
  return [
    route({
      ...shared,
      method: 'GET',
      url: CASES,
      summary: 'Cases, the newest first',
      description: 'All that is asked must hold.',
      query: pageQuery.extend(caseQuery),
      response: pageOf(oneCase),
      errors: [],
      handler: async ({ community, query: { limit, cursor, ...asked } }) =>
        showPage(await listCases(pool, caseFilter(community, asked), { limit, cursor }), showCase),
    }),
    route({
      ...shared,
      method: 'POST',
      url: CASES,
      summary: 'Open a case about an event or a person; one that is open already is given back',
      body: z
        .strictObject({
          event_id: eventId.optional(),
          pubkey: pubkey.optional(),
          note: plainText(NOTE_MAX).default(''),
        })
        .refine((body) => (body.event_id === undefined) !== (body.pubkey === undefined), {
          error: 'either event_id or pubkey',
        }),
      status: 201,
      response: oneCase,
      errors: ['NOT_FOUND'],
      handler: async ({ community, pubkey: actor, body, now }) => {
        const { event_id: event, pubkey: person, note } = body;
        const asked = { community: community.id, event, pubkey: person, note, actor };
        const opened = await openByHand(pool, asked, now);
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
        return isDenial(found) ? found : wholeOf(pool, community, found);
      },
    }),
  ];
}

const ABOUT = `\`remove\` takes the event out of the view and \`restore\` puts it back, for \`moderation.undoDays\`; both are done at once, and both resolve the case.
What its author deleted meanwhile, or what expired, stays away: 409 \`NOT_DONE\` with the outcome. \`ban\` blocks the author. \`label\` and \`unlabel\` need
\`label\`. A held case is not dismissed, it is removed or restored.`;

const acting = z
  .strictObject({
    action: z.enum(CASE_ACTIONS),
    note: plainText(NOTE_MAX).default('').describe('For operators; kept'),
    label: labelSchema.optional(),
  })
  .refine(
    ({ action: name, label: put }) => (name === 'label' || name === 'unlabel') === (put !== undefined),
    { error: 'label and unlabel need a label, and nothing else has one', path: ['label'] },
  );

function actRoute(options: ModerationOptions): Route {
  const { pool } = options;
  return route({
    ...shared,
    method: 'POST',
    url: `${CASES}/:case_id/actions`,
    summary: 'Do something about a case',
    description: ABOUT,
    params,
    body: acting,
    status: 201,
    response: action,
    errors: ['NOT_FOUND', 'STATUS_CONFLICT', 'NOT_DONE', 'FIXED_OPERATOR', 'BLOCK_LIMIT_REACHED'],
    handler: async ({ community, pubkey: actor, params: { case_id: caseId }, body, now }) => {
      const privateKinds = community.settings['auth.privateKinds'];
      const asked = { community: community.id, caseId, actor, privateKinds, ...body };
      const taken = await act(pool, asked, { fixed: options.adminPubkeys }, now);
      return isDenial(taken) ? taken : settle(options, asked, taken);
    },
  });
}

const CASES_MAX = 100;

/** One after another, each as if it were the only one: what one refuses does not hold up the next. */
function actOnManyRoute(options: ModerationOptions): Route {
  const { pool, adminPubkeys } = options;
  return route({
    ...shared,
    method: 'POST',
    url: `${CASES}/actions`,
    summary: 'Do the same about many cases',
    description: `${ABOUT} Each case has its own answer: the action, or the code of the refusal that it would have had alone.`,
    body: acting.safeExtend({ case_ids: z.array(z.uuid()).min(1).max(CASES_MAX) }),
    status: 201,
    response: z.strictObject({
      items: z.array(
        z.strictObject({ case_id: z.uuid(), action: action.nullable(), refused: z.string().nullable() }),
      ),
    }),
    errors: [],
    handler: async ({ community, pubkey: actor, body: { case_ids: caseIds, ...same }, now }) => {
      const privateKinds = community.settings['auth.privateKinds'];
      const items = [];
      for (const caseId of new Set(caseIds)) {
        const asked = { community: community.id, caseId, actor, privateKinds, ...same };
        const taken = await act(pool, asked, { fixed: adminPubkeys }, now);
        const done = isDenial(taken) ? taken : await settle(options, asked, taken);
        items.push(
          isDenial(done)
            ? { case_id: caseId, action: null, refused: done.denied }
            : { case_id: caseId, action: done, refused: null },
        );
      }
      return { items };
    },
  });
}

/** An order is carried out at once; where that fails it stays an order. */
async function settle(
  { pool, carryOut, log }: ModerationOptions,
  { community, caseId }: Acting,
  taken: Action,
): Promise<z.output<typeof action> | Denial> {
  if (taken.doneAt !== null) return showAction(taken);
  const found = await findCase(pool, community, caseId);
  if (isDenial(found) || found.targetEvent === null) return showAction(taken);
  await carryOut({ community, id: found.targetEvent }).catch((error: unknown) =>
    log.warn({ error: String(error) }, 'an order of moderation waits for a worker'),
  );
  const done = await findAction(pool, taken.actionId);
  if (done.outcome === null || HAD_EFFECT[taken.action as 'remove' | 'restore'].includes(done.outcome))
    return showAction(done);
  return denial('NOT_DONE', { outcome: done.outcome, action_id: done.actionId });
}
