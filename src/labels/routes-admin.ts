/** Routes of moderators for labels: list those in force, and withdraw one. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { type Denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage } from '../api/schemas.js';
import type { EventStore } from '../events/store.js';
import type { StoredEvents } from '../events/stored-events.js';
import { actInBatch, closeCaseBatch, openCaseBatch } from '../moderation/case-batches.sql.js';
import { act, openByHand } from '../moderation/cases.sql.js';
import { eventId } from '../reports/routes.js';
import { findInForce, type KeptLabel, listInForce } from './labels.sql.js';
import { LABELS } from './rules.js';

const NOTE_MAX = 2_000;

const labelInForce = z.strictObject({
  label_id: z.uuid(),
  label: z.enum(LABELS),
  confidence: z.number(),
  policy: z.string(),
  target_event: eventId.nullable().describe('Null when it is on the person'),
  target_pubkey: pubkey.describe('The person, or the author of the event'),
  topics: z.array(z.string()).describe('Topics of the event'),
  case_id: z.uuid().nullable(),
  rule_id: z.uuid().nullable().describe('The rule that has put it; null: a moderator'),
  created_at: milliseconds,
  lapses_at: z.number().int().describe('Seconds since 1970'),
  label_event: eventId.nullable().describe('The event of kind 1985; null until it is published'),
});

function show(put: KeptLabel): z.output<typeof labelInForce> {
  return {
    label_id: put.labelId,
    label: put.label,
    confidence: put.confidence,
    policy: put.policy,
    target_event: put.targetEvent ?? null,
    target_pubkey: put.targetPubkey,
    topics: [...put.topics],
    case_id: put.caseId,
    rule_id: put.ruleId,
    created_at: put.createdAt,
    lapses_at: put.lapsesAt,
    label_event: put.labelEvent,
  };
}

interface LabelOptions {
  readonly pool: Pool;
  readonly events: Pick<EventStore, 'stored'>;
  readonly adminPubkeys: readonly string[];
}

export function labelAdminRoutes({ pool, adminPubkeys, events }: LabelOptions): Route[] {
  const shared = { tags: ['admin: labels'], who: 'operator' } as const;
  const withdrawn = z.strictObject({
    case_id: z.uuid().describe('The case that has the withdrawal'),
    batch_id: z.uuid().describe('To undo it: `POST /v1/admin/moderation/batches/{batch_id}/undo`'),
  });
  return [
    route({
      ...shared,
      method: 'GET',
      url: '/admin/labels',
      role: 'viewer',
      summary: 'Labels in force, the last to lapse first',
      query: pageQuery.extend({
        label: z.enum(LABELS).optional(),
        target_event: eventId.optional(),
        target_pubkey: pubkey.optional().describe('The person, or the author of the event'),
      }),
      response: pageOf(labelInForce),
      errors: [],
      handler: async ({ community, query: { limit, cursor, label, ...target }, now }) => {
        const { target_event: event, target_pubkey: person } = target;
        const filter = { community: community.id, label, event, pubkey: person };
        return showPage(await listInForce(pool, filter, { limit, cursor }, now), show);
      },
    }),
    route({
      ...shared,
      method: 'POST',
      url: '/admin/labels/:label_id/withdraw',
      role: 'moderator',
      summary: 'Withdraw a label; it can be undone',
      description: 'A label without a case gets one, which is dismissed at once: it records the withdrawal.',
      params: z.strictObject({ label_id: z.uuid() }),
      body: z.strictObject({
        note: plainText(NOTE_MAX).default('').describe('The reason, stored for moderators and operators'),
      }),
      response: withdrawn,
      errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
      handler: async ({ community, pubkey: actor, params: { label_id: labelId }, body: { note }, now }) => {
        const put = await findInForce(pool, community.id, labelId, now);
        if (isDenial(put)) return put;
        const privateKinds = community.settings['auth.privateKinds'];
        const scope = { community: community.id, actor, note, privateKinds, events: events.stored };
        return withdraw(pool, scope, put, { fixed: adminPubkeys }, now);
      },
    }),
  ];
}

interface Withdrawing {
  readonly community: number;
  readonly actor: string;
  readonly note: string;
  readonly privateKinds: Parameters<typeof act>[1]['privateKinds'];
  readonly events: StoredEvents;
}

/** In the case of the label, or in the open case about its target, or in a case that is closed again. */
async function withdraw(
  pool: Pool,
  scope: Withdrawing,
  { caseId: known, label, targetEvent: event, targetPubkey }: KeptLabel,
  fixed: { readonly fixed: readonly string[] },
  now: number,
): Promise<{ case_id: string; batch_id: string } | Denial> {
  const { community, actor, note } = scope;
  const about = { community, event, pubkey: event === undefined ? targetPubkey : undefined, actor };
  const opened =
    known === null ? await openByHand(pool, scope.events, { ...about, note: `label: ${label}` }, now) : known;
  if (typeof opened !== 'string' && isDenial(opened)) return opened;
  const caseId = typeof opened === 'string' ? opened : opened.caseId;
  const acting = { ...scope, caseId, action: 'unlabel', label: wordOf(label) } as const;
  const batch = await openCaseBatch(pool, { ...acting, caseIds: [caseId], note }, now);
  const taken = await actInBatch(pool, batch, acting, fixed, now);
  const batchId = await closeCaseBatch(pool, batch);
  if (typeof opened !== 'string' && opened.openedAt === now)
    await act(pool, { ...scope, caseId, action: 'dismiss' }, fixed, now);
  return isDenial(taken) ? taken : { case_id: caseId, batch_id: batchId! };
}

/** A withdrawal needs only the word of the label. */
const wordOf = (label: KeptLabel['label']) => ({ label, confidence: 1, days: 1, policy: '' });
