/**
 * What each store holds about one person, as rows for that person to read. Beside the person's own words there is nothing of
 * anybody else: who reviewed, invited or reported stays out.
 *
 * I14: rows come through a cursor in portions. Some of these tables are read by nothing else in this direction and have no
 * index for it (ids, heads, tombstones, outbox): an export is rare and runs in the background, while an index would cost every
 * event that is written.
 */
import type { ClientBase } from 'pg';
import { KIND_GIFT_WRAP } from '../core/deletion.js';
import { hiddenOf } from '../core/hidden.js';
import { type AuditEntry, findHeld } from './audit.js';
import { bytes } from './config-change.js';
import { named } from './named.js';
import { fixTagHashSeed } from './node-state.js';
import { eventAt } from './query.js';
import { createTagHash } from './tag-hash.js';

export interface Person {
  readonly community: number;
  readonly pubkey: string;
  /** The key of ["p", pubkey] in event_tags. */
  readonly recipient: bigint;
}

export async function findPerson(db: ClientBase, community: number, pubkey: string): Promise<Person> {
  const tagHash = await createTagHash(await fixTagHashSeed(db));
  return { community, pubkey, recipient: tagHash(community, 'p', pubkey) };
}

interface Select {
  readonly columns: string;
  /** FROM … WHERE …, with :community, :pubkey (bytes), :hex and :recipient. */
  readonly from: string;
  readonly shape?: (row: Record<string, unknown>) => object;
  /** Of one portion; an event may have a megabyte. */
  readonly portionRows?: number;
}

const PORTION_ROWS = 500;
const EVENT_PORTION_ROWS = 32;

const hex = (column: string) => `encode(${column}, 'hex') AS ${column.replace(/^\w+\./, '')}`;
const OF_PUBKEY = 'WHERE community = :community AND pubkey = :pubkey';
const OF_AUTHOR = 'WHERE community = :community AND author = :pubkey';

const eventOf = ({ payload }: Record<string, unknown>): object => JSON.parse(payload as string) as object;
const hiddenWord = (code: unknown) => (code === null ? null : hiddenOf(code as number));
const hiddenEventOf = (row: Record<string, unknown>): object => ({
  hidden: hiddenWord(row.hidden),
  hidden_at: row.hidden_at,
  event: eventOf(row),
});

const IS_WRAP = `e.community = :community AND e.kind = ${KIND_GIFT_WRAP} AND e.pubkey <> :pubkey
  AND strpos(e.payload, '["p","' || :hex || '"') > 0`;
const ABOUT_THEM = `(target = :hex OR coalesce(details->>'pubkey', '') = :hex)`;

export const PERSONAL_SELECTS = {
  events: {
    columns: 'e.payload',
    from: `FROM events e WHERE e.community = :community AND e.pubkey = :pubkey AND e.hidden IS NULL
      ORDER BY e.created_at DESC`,
    shape: eventOf,
    portionRows: EVENT_PORTION_ROWS,
  },
  'hidden-events': {
    columns: 'e.hidden, e.hidden_at, e.payload',
    from: 'FROM events e WHERE e.community = :community AND e.pubkey = :pubkey AND e.hidden IS NOT NULL',
    shape: hiddenEventOf,
    portionRows: EVENT_PORTION_ROWS,
  },
  'gift-wraps': {
    columns: 'w.hidden, w.hidden_at, w.payload',
    from: `FROM (
        SELECT e.hidden, e.hidden_at, e.payload
        FROM (SELECT * FROM event_tags WHERE tag = :recipient OFFSET 0) g ${eventAt('g')}
        WHERE e.hidden IS NULL AND ${IS_WRAP}
        UNION ALL
        SELECT e.hidden, e.hidden_at, e.payload FROM events e WHERE e.hidden IS NOT NULL AND ${IS_WRAP}) w`,
    shape: hiddenEventOf,
    portionRows: EVENT_PORTION_ROWS,
  },
  'event-ids': {
    columns: `${hex('event_id')}, first_seen_at, last_seen_at, seen_count, hidden, gone_at`,
    from: `FROM event_dedupe ${OF_AUTHOR}`,
    shape: (row) => ({ ...row, hidden: hiddenWord(row.hidden) }),
  },
  'newest-versions': {
    columns: `kind, created_at, ${hex('event_id')}, topics`,
    from: `FROM event_heads ${OF_PUBKEY}`,
  },
  deletions: {
    columns: `${hex('target')}, is_address, requested_at, applied_at, ${hex('deletion_event')}`,
    from: `FROM deletion_tombstones ${OF_AUTHOR}`,
  },
  'deletions-by-day': { columns: 'day, targets', from: `FROM deletion_quotas ${OF_AUTHOR}` },
  'deletions-under-way': {
    columns: `kind, ${hex('address_hash')}, requested_at`,
    from: `FROM history_deletions ${OF_AUTHOR}`,
  },
  vanish: { columns: `until, erased_at, ${hex('request')}`, from: `FROM vanish_marks ${OF_PUBKEY}` },
  outbox: {
    columns: `seq, op, reason, ${hex('event_id')}, kind, topics, effective_key, created_at, ingested_at`,
    from: `FROM events_outbox ${OF_AUTHOR}`,
  },
  'search-documents': {
    columns: `${hex('event_id')}, kind, created_at, deleted_at, tsvector_to_array(words) AS words`,
    from: `FROM post_search_documents ${OF_AUTHOR}`,
  },
  'failed-changes': {
    columns: `consumer, seq, op, reason, ${hex('event_id')}, kind, topics, effective_key, error, failed_at`,
    from: `FROM consumer_dead_letters ${OF_AUTHOR}`,
  },
  member: {
    columns: 'status, note, name, left_at, plan, plan_until, tokens_from, created_at, updated_at',
    from: `FROM members ${OF_PUBKEY}`,
  },
  'topic-requests': {
    columns: 'request_id, topic, name, requested_services, status, review_note, created_at, reviewed_at',
    from: `FROM topic_subscription_requests ${OF_PUBKEY} ORDER BY created_at, request_id`,
  },
  reviews: {
    columns: 'status, reviewed_at',
    from: 'FROM topic_subscription_requests WHERE community = :community AND reviewed_by = :pubkey',
  },
  'topic-subscriptions': {
    columns: 'subscription_id, request_id, topic, services, plan, status, started_at, updated_at, ended_at',
    from: `FROM topic_subscriptions ${OF_PUBKEY} ORDER BY started_at, subscription_id`,
  },
  consents: {
    columns: `consent_id, type, version, locale, ${hex('content_hash')}, consented_at, withdrawn_at`,
    from: `FROM consents ${OF_PUBKEY} ORDER BY consented_at, consent_id`,
  },
  usage: { columns: 'day, metric, used', from: `FROM usage_counters ${OF_PUBKEY} ORDER BY day, metric` },
  'usage-requests': {
    columns: 'metric, request_id, counted_at',
    from: `FROM usage_requests ${OF_PUBKEY}`,
  },
  'plan-changes': {
    columns: 'event_id, plan, plan_until, received_at',
    from: `FROM plan_events ${OF_PUBKEY} ORDER BY received_at, event_id`,
  },
  'revoked-tokens': { columns: 'token_id, expires_at', from: `FROM revoked_tokens ${OF_PUBKEY}` },
  reports: {
    columns: `report_id, ${hex('target_event')}, ${hex('target_pubkey')}, reason, comment, ${hex('event_id')}, created_at`,
    from: `FROM reports ${OF_PUBKEY} ORDER BY created_at, report_id`,
  },
  'trust-contacts': {
    columns: `CASE WHEN author = :pubkey THEN 'out' ELSE 'in' END AS direction, ${hex('event_id')}, kind, at, gone`,
    from: `FROM (SELECT * FROM trust_contacts WHERE community = :community AND author = :pubkey
      UNION ALL SELECT * FROM trust_contacts WHERE community = :community AND named = :pubkey) c ORDER BY at, event_id`,
  },
  'trust-reports': {
    columns: `${hex('subject')}, ${hex('target_event')}, ${hex('source')}, reason, weight, at`,
    from: 'FROM trust_reports WHERE community = :community AND reporter = :pubkey ORDER BY at, source, subject',
  },
  'trust-scores': {
    columns: `claim, score, rank, computed_at, ${hex('assertion')}, asserted_rank, asserted_at`,
    from: 'FROM trust_scores WHERE community = :community AND subject = :pubkey ORDER BY claim',
  },
  'first-seen': { columns: 'first_seen_at, stands_from', from: `FROM trust_authors ${OF_PUBKEY}` },
  labels: {
    columns: `label, confidence, policy, ${hex('target_event')}, created_at, lapses_at, withdrawn_at, topics,
      ${hex('label_event')}, ${hex('label_address_event')}`,
    from: 'FROM labels WHERE community = :community AND target_pubkey = :pubkey ORDER BY created_at, label_id',
  },
  moderation: {
    columns: `action, at, done_at, outcome, ${hex('target_event')}, note, actor IS NULL AND rule_id IS NOT NULL AS by_a_rule`,
    from: 'FROM moderation_actions WHERE community = :community AND target_pubkey = :pubkey ORDER BY position',
  },
  appeals: {
    columns: `${hex('target_event')}, appeal, appealed_at`,
    from: `FROM moderation_cases WHERE community = :community AND target_pubkey = :pubkey AND appealed_at IS NOT NULL
      ORDER BY appealed_at, case_id`,
  },
  'moderation-by-you': {
    columns: 'action, at, outcome',
    from: 'FROM moderation_actions WHERE community = :community AND actor = :pubkey ORDER BY position',
  },
  'moderation-rules': {
    columns: 'action, enabled, created_at',
    from: 'FROM moderation_rules WHERE community = :community AND strpos(conditions::text, :hex) > 0',
  },
  'moderation-batches': {
    columns:
      'action, status, created_at, coalesce(actor = :pubkey, false) AS by_you, coalesce(undone_by = :pubkey, false) AS undone_by_you',
    from: `FROM moderation_batches WHERE community = :community AND (actor = :pubkey OR undone_by = :pubkey OR strpos(conditions::text, :hex) > 0)
      ORDER BY created_at, batch_id`,
  },
  'moderation-rates': {
    columns: `${hex('event_id')}, at`,
    from: `FROM moderation_rates ${OF_PUBKEY} ORDER BY at`,
  },
  invites: {
    columns: `invite_id, topic, coalesce(created_by = :pubkey, false) AS made_by_you,
      coalesce(used_by = :pubkey, false) AS used_by_you, created_at, expires_at, revoked_at, used_at`,
    from: 'FROM invites WHERE community = :community AND (created_by = :pubkey OR used_by = :pubkey)',
  },
  operators: {
    columns: `CASE WHEN pubkey = :pubkey THEN 'operator' ELSE 'added another operator' END AS role, created_at`,
    from: 'FROM operators WHERE community = :community AND (pubkey = :pubkey OR added_by = :pubkey)',
  },
  followers: {
    columns: 'name, limit_seconds, registered_at',
    from: 'FROM outbox_followers WHERE community = :community AND registered_by = :pubkey ORDER BY name',
  },
  sessions: {
    columns: 'created_at, expires_at',
    from: `FROM operator_sessions ${OF_PUBKEY} ORDER BY created_at, token_hash`,
  },
  blocks: { columns: 'reason, created_at', from: `FROM blocked_authors ${OF_PUBKEY}` },
  settings: {
    columns: 'key, updated_at',
    from: `FROM community_settings WHERE community = :community AND strpos(value::text, :hex) > 0`,
  },
  'audit-log': {
    columns: `at, action, coalesce(actor = :pubkey, false) AS by_you, ${ABOUT_THEM} AS about_you,
      CASE WHEN ${ABOUT_THEM} THEN target END AS target, CASE WHEN ${ABOUT_THEM} THEN details END AS details`,
    from: `FROM audit_log WHERE community = :community
      AND (actor = :pubkey OR target = :hex OR strpos(details::text, :hex) > 0) ORDER BY position`,
  },
  erasures: {
    columns: 'erasure_id, cause, stage, requested_at, grace_until, fenced_at, held_at, hold_reason',
    from: `FROM erasures ${OF_PUBKEY} ORDER BY requested_at, erasure_id`,
  },
  'personal-data-requests': {
    columns:
      'request_id, kind, status, note, error, bytes, request_key, tries, created_at, started_at, finished_at, expires_at',
    from: `FROM personal_data_requests ${OF_PUBKEY} ORDER BY created_at, request_id`,
  },
} as const satisfies Record<string, Select>;

/** The rows of the store `audit-log` that have been moved elsewhere, but for those that are here as well: the same rows, the same shape. */
export async function shapeMovedAudit(
  client: ClientBase,
  { pubkey }: Person,
  entries: readonly AuditEntry[],
): Promise<object[]> {
  const held = await findHeld(client, entries);
  return entries
    .filter(({ position }) => !held.has(position))
    .filter(
      ({ actor, target, details }) =>
        actor === pubkey || target === pubkey || JSON.stringify(details).includes(pubkey),
    )
    .map(({ at, action, actor, target, details }) => {
      const about = target === pubkey || details.pubkey === pubkey;
      const words = about ? { target, details } : { target: null, details: null };
      return { at, action, by_you: actor === pubkey, about_you: about, ...words };
    });
}

export type PersonalStoreName = keyof typeof PERSONAL_SELECTS;

function bind(text: string, { community, pubkey, recipient }: Person): { text: string; values: unknown[] } {
  return named(text, {
    community: ['int', community],
    pubkey: ['bytea', bytes(pubkey)],
    hex: ['text', pubkey],
    recipient: ['bigint', recipient],
  });
}

/** Everything that is read in `work` is of one moment. */
export async function inSnapshot<T>(client: ClientBase, work: () => Promise<T>): Promise<T> {
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
  try {
    return await work();
  } finally {
    // After a failure of the session there is nothing to take back, and the first error is the one that counts.
    await client.query('ROLLBACK').catch(() => undefined);
  }
}

/** Within a transaction; one store at a time. */
export async function* readPersonal(
  client: ClientBase,
  name: PersonalStoreName,
  person: Person,
): AsyncGenerator<object> {
  const { columns, from, shape, portionRows = PORTION_ROWS }: Select = PERSONAL_SELECTS[name];
  const { text, values } = bind(`SELECT ${columns} ${from}`, person);
  await client.query(`DECLARE personal NO SCROLL CURSOR FOR ${text}`, values);
  try {
    for (let read = portionRows; read === portionRows; ) {
      const { rows } = await client.query<Record<string, unknown>>(`FETCH ${portionRows} FROM personal`);
      for (const row of rows) yield shape === undefined ? row : shape(row);
      read = rows.length;
    }
  } finally {
    await client.query('CLOSE personal').catch(() => undefined);
  }
}

export async function countPersonal(
  client: ClientBase,
  name: PersonalStoreName,
  person: Person,
): Promise<number> {
  const { from }: Select = PERSONAL_SELECTS[name];
  const { text, values } = bind(`SELECT count(*) AS rows FROM (SELECT 1 ${from}) held`, person);
  const { rows } = await client.query<{ rows: number }>(text, values);
  return rows[0]!.rows;
}
