/**
 * Which rows of a table are somebody's, or a community's, and how they go (I12). One list for counting and deleting, so that what is
 * counted is what is deleted. Whoever is found by an index; batches are bounded (I14).
 *
 * `member`: the condition that names them. What is theirs is bound by time where the subject is: `:until` in seconds, `:ms` in
 * milliseconds. `release`: the row is another's or the community's, and only stops naming them.
 */
import type { ClientBase } from 'pg';
import { KIND_VANISH } from '../core/classify.js';
import type { Subject } from '../core/erasure.js';
import { untilMs } from '../core/erasure.js';
import { HIDDEN_CODES } from '../core/hidden.js';
import { KIND_LABEL_CLAIM } from '../core/labels.js';
import { DAY_MS } from '../core/retention.js';
import { bytes } from './config-change.js';
import { named } from './named.js';

export interface TableRows {
  readonly table: string;
  /** None: nothing there is of a member. */
  readonly member?: string;
  /** Which rows of a community, where not all of them. */
  readonly community?: string;
  /** What is set instead of deleting the row, for a member. */
  readonly release?: string;
  /** How a row is known, where the table has partitions. */
  readonly key?: readonly string[];
  /** The same table stands in another entry, which takes the rows of a community. */
  readonly memberOnly?: boolean;
  /** One batch is deleted along, and nothing counted: others may add to it at the same time. */
  readonly uncounted?: boolean;
  /** What follows from the rows of a member that went (`changed`), in the same statement. */
  readonly follow?: string;
}

const MINE = 't.pubkey = :pubkey';
/** An account from before goes as a whole, one that was made since stays as a whole. */
const ACCOUNT = `${MINE} AND EXISTS (SELECT 1 FROM members m
  WHERE m.community = :community AND m.pubkey = :pubkey AND m.created_at <= :ms)`;
/** The topic `<namespace>:user:<pubkey>` is about a person, whoever uses it. An index stands behind it where a table may be large. */
const TOPIC_OF_PERSON = `t.topic LIKE '%user%' AND right(t.topic, 64) = :hex`;
/** What is counted for a day belongs to whoever came back on that day. */
const IS_PAST_DAY = `t.day < CASE WHEN :bounded THEN :ms / ${DAY_MS} ELSE :ms END`;

/** What is noted about an event goes with the event; a newer one that is still here keeps it. */
const about = (
  time: string,
) => `t.target_pubkey = :pubkey AND CASE WHEN t.target_event IS NULL OR NOT :bounded THEN ${time} <= :ms
  ELSE NOT EXISTS (SELECT 1 FROM event_dedupe d JOIN events e ON e.keep = d.keep AND e.ingested_at = d.ingested_at AND e.seq = d.seq
    WHERE d.community = t.community AND d.event_id = t.target_event) END`;
/** What belongs to a case is as old as the case. */
const withCase = (time: string) =>
  `coalesce((SELECT c.opened_at FROM moderation_cases c WHERE c.case_id = t.case_id), ${time})`;

const ERASED_CODES = `${HIDDEN_CODES.vanished}, ${HIDDEN_CODES.erased}`;
const GONE = `t.hidden IN (${ERASED_CODES}) OR t.gone_at IS NOT NULL AND t.first_seen_at <= :ms`;

/** Whose scores stood on it is due. One who is erased as a whole has no score any more. */
const due = (claim: string, subjects: string) => `INSERT INTO trust_due (community, claim, due_at, subject)
  SELECT DISTINCT c.community, '${claim}', :now, s.subject FROM changed c CROSS JOIN LATERAL (VALUES ${subjects}) AS s (subject)
  WHERE :bounded OR s.subject <> :pubkey ORDER BY 1, 4 ON CONFLICT DO NOTHING`;

/**
 * What the node has announced of a label that is no longer there: its address holds the id of the event, and only an erasure deletes
 * labels.
 */
export const isLabelOfErased = (
  row: string,
) => `(${row}.kind = ${KIND_LABEL_CLAIM} AND NOT EXISTS (SELECT 1 FROM labels l WHERE l.community = ${row}.community
  AND (l.target_event = decode(split_part(${row}.effective_key, ':', 3), 'hex')
    OR l.target_event IS NULL AND l.target_pubkey = decode(split_part(${row}.effective_key, ':', 3), 'hex'))))`;

/** Of one who came back, the first that is here since. */
const SEEN_SINCE = `SELECT min(e.ingested_at) FROM events e
  WHERE e.community = :community AND e.pubkey = :pubkey AND e.kind <> ${KIND_VANISH}`;

/** By the name of the store, children before their parents. */
export const STORE_TABLES = {
  search_documents: [
    {
      table: 'post_search_documents',
      member: 't.author = :pubkey AND t.created_at <= :until',
      key: ['generation', 'community', 'event_id'],
    },
    { table: 'search_rules' },
  ],
  labels: [{ table: 'labels', member: about(withCase('t.created_at')) }],
  reports: [
    {
      table: 'reports',
      member: '(t.pubkey = :pubkey OR t.target_pubkey = :pubkey) AND t.created_at <= :ms',
    },
  ],
  moderation_actions: [
    { table: 'moderation_actions', member: about(withCase('t.at')) },
    {
      table: 'moderation_actions',
      member: 't.actor = :pubkey AND t.at <= :ms',
      release: 'actor = NULL',
      memberOnly: true,
    },
  ],
  moderation_cases: [
    {
      table: 'moderation_cases',
      member: `${about('t.opened_at')}
        AND NOT EXISTS (SELECT 1 FROM moderation_actions a WHERE a.case_id = t.case_id)
        AND NOT EXISTS (SELECT 1 FROM labels l WHERE l.case_id = t.case_id)`,
    },
  ],
  moderation_batches: [
    {
      table: 'moderation_batches',
      member: `(t.actor = :pubkey OR t.undone_by = :pubkey) AND t.created_at <= :ms
        AND strpos(t.conditions::text, :hex) = 0`,
      release: 'actor = nullif(u.actor, :pubkey), undone_by = nullif(u.undone_by, :pubkey)',
      memberOnly: true,
    },
    { table: 'moderation_batches', member: 'strpos(t.conditions::text, :hex) > 0 AND t.created_at <= :ms' },
  ],
  moderation_rates: [{ table: 'moderation_rates', member: `${MINE} AND t.at <= :ms` }],
  trust: [
    {
      table: 'trust_contacts',
      member: '(t.author = :pubkey OR t.named = :pubkey) AND t.at <= :ms',
      follow: due('communication-density', '(c.author), (c.named)'),
    },
    {
      table: 'trust_reports',
      member: '(t.reporter = :pubkey OR t.subject = :pubkey) AND t.at <= :ms',
      follow: due('report-based', '(c.subject)'),
    },
    {
      table: 'trust_authors',
      member: `${MINE} AND t.first_seen_at <= :ms AND (NOT :bounded OR t.first_seen_at < coalesce((${SEEN_SINCE}), :ms + 1))`,
      follow: `INSERT INTO trust_authors (community, first_seen_at, pubkey)
        SELECT c.community, l.at, c.pubkey FROM changed c CROSS JOIN (${SEEN_SINCE}) AS l (at) WHERE l.at IS NOT NULL`,
    },
    { table: 'trust_due', member: 't.subject = :pubkey AND t.due_at <= :ms' },
    { table: 'trust_scores', member: 't.subject = :pubkey AND t.computed_at <= :ms' },
    { table: 'trust_rules' },
    { table: 'trust_sweeps' },
  ],
  topic_subscriptions: [
    { table: 'topic_subscriptions', member: ACCOUNT },
    {
      table: 'topic_subscriptions',
      member: `${TOPIC_OF_PERSON} AND t.pubkey <> :pubkey AND t.started_at <= :ms`,
      memberOnly: true,
    },
  ],
  topic_subscription_requests: [
    { table: 'topic_subscription_requests', member: ACCOUNT },
    {
      table: 'topic_subscription_requests',
      member: `${TOPIC_OF_PERSON} AND t.pubkey <> :pubkey AND t.created_at <= :ms
        AND NOT EXISTS (SELECT 1 FROM topic_subscriptions s WHERE s.request_id = t.request_id AND s.started_at > :ms)`,
      memberOnly: true,
    },
    {
      table: 'topic_subscription_requests',
      member: 't.reviewed_by = :pubkey AND t.reviewed_at <= :ms',
      release: 'reviewed_by = NULL',
      memberOnly: true,
    },
  ],
  consents: [{ table: 'consents', member: ACCOUNT }],
  usage: [
    { table: 'usage_counters', member: `${MINE} AND ${IS_PAST_DAY}` },
    { table: 'usage_requests', member: `${MINE} AND t.counted_at <= :ms` },
  ],
  plan_events: [{ table: 'plan_events', member: `${MINE} AND t.received_at <= :ms` }],
  revoked_tokens: [{ table: 'revoked_tokens', member: `${MINE} AND t.expires_at <= :ms` }],
  invites: [
    { table: 'invites', member: 't.used_by = :pubkey AND t.used_at <= :ms' },
    {
      table: 'invites',
      member: `${TOPIC_OF_PERSON} AND t.used_by IS DISTINCT FROM :pubkey AND t.created_at <= :ms`,
      memberOnly: true,
    },
    {
      table: 'invites',
      member: `t.created_by = :pubkey AND t.created_at <= :ms AND (t.topic IS NULL OR NOT (${TOPIC_OF_PERSON}))`,
      release: 'created_by = NULL',
      memberOnly: true,
    },
  ],
  operators: [
    { table: 'operators', member: `${MINE} AND t.created_at <= :ms` },
    {
      table: 'operators',
      member: 't.added_by = :pubkey AND t.created_at <= :ms',
      release: 'added_by = NULL',
      memberOnly: true,
    },
  ],
  blocked_authors: [{ table: 'blocked_authors', member: `${MINE} AND t.created_at <= :ms` }],
  followers: [
    {
      table: 'outbox_followers',
      member: 't.registered_by = :pubkey AND t.registered_at <= :ms',
      release: 'registered_by = NULL',
    },
    { table: 'outbox_streams', uncounted: true },
  ],
  personal_data_requests: [
    {
      table: 'personal_data_files',
      member: `EXISTS (SELECT 1 FROM personal_data_requests r JOIN members m USING (community, pubkey) WHERE r.request_id = t.request_id
        AND r.community = :community AND r.pubkey = :pubkey AND m.created_at <= :ms)`,
    },
    { table: 'personal_data_requests', member: ACCOUNT },
  ],
  members: [{ table: 'members', member: `${MINE} AND t.created_at <= :ms` }],
  topics: [
    { table: 'node_subscriptions', member: `${TOPIC_OF_PERSON} AND t.created_at <= :ms` },
    { table: 'blocked_topics', member: `${TOPIC_OF_PERSON} AND t.created_at <= :ms` },
  ],
  event_dedupe: [
    {
      table: 'event_dedupe',
      member: `t.author = :pubkey AND t.first_seen_at >= 0 AND (NOT :bounded OR ${GONE})`,
    },
    // Gift wraps and the node's own words about them, which others have signed. Whoever is erased beside them has no more use for theirs.
    { table: 'event_dedupe', member: `t.hidden IN (${ERASED_CODES})`, memberOnly: true, uncounted: true },
  ],
  event_heads: [{ table: 'event_heads', member: `${MINE} AND t.created_at >= 0 AND t.created_at <= :until` }],
  deletion_tombstones: [
    {
      table: 'deletion_tombstones',
      member: 't.author = :pubkey AND t.requested_at >= 0 AND t.requested_at <= :until',
    },
    { table: 'deletion_quotas', member: `t.author = :pubkey AND ${IS_PAST_DAY}` },
    { table: 'history_deletions', member: 't.author = :pubkey AND t.requested_at <= :until' },
  ],
  consumer_dead_letters: [
    {
      table: 'consumer_dead_letters',
      member: `t.created_at <= :until AND (t.author = :pubkey OR t.author IN (SELECT k.pubkey FROM node_keys k WHERE k.community = :community)
        AND (strpos(t.effective_key, :hex) > 0 OR ${isLabelOfErased('t')}))`,
    },
  ],
  vanish_marks: [
    {
      table: 'vanish_marks',
      member: `${MINE} AND t.request IS NOT NULL AND t.until <= :until AND NOT :vanishes`,
    },
  ],
  live_bus: [{ table: 'live_bus' }],
  moderation_rules: [
    {
      table: 'moderation_rules',
      member: `t.conditions->'authors' ? :hex AND t.conditions->'authors' <> jsonb_build_array(:hex) AND t.updated_at <= :ms
        AND strpos((t.conditions - 'authors')::text, :hex) = 0`,
      release: `conditions = jsonb_set(u.conditions, '{authors}', (u.conditions->'authors') - :hex)`,
      memberOnly: true,
    },
    // One that looked for nobody else would look for everybody.
    { table: 'moderation_rules', member: 'strpos(t.conditions::text, :hex) > 0 AND t.updated_at <= :ms' },
  ],
  settings: [
    {
      table: 'community_settings',
      member: `jsonb_typeof(t.value) = 'array' AND t.value ? :hex AND strpos((t.value - :hex)::text, :hex) = 0
        AND t.updated_at <= :ms`,
      release: 'value = u.value - :hex',
      memberOnly: true,
    },
    { table: 'community_settings', member: 'strpos(t.value::text, :hex) > 0 AND t.updated_at <= :ms' },
  ],
} as const satisfies Record<string, readonly TableRows[]>;

/** Of a community only, behind everything that refers to them. */
export const COMMUNITY_TABLES = {
  policies: [{ table: 'policy_texts' }, { table: 'policy_versions' }],
  plans: [{ table: 'plans' }, { table: 'webhook_secrets' }],
  blocks: [{ table: 'blocked_words' }, { table: 'blocked_addresses' }],
  counters: [{ table: 'community_totals' }, { table: 'topic_totals' }, { table: 'capacity_steps' }],
  node_keys: [{ table: 'node_keys' }],
  erasures: [
    { table: 'erasures', community: `t.type = 'member' AND t.stage NOT IN ('completed', 'cancelled')` },
    // Its own mark goes on refusing what an instance that slept through it would still take in.
    {
      table: 'erasure_marks',
      community: `t.subject NOT IN (SELECT e.subject FROM erasures e
        WHERE e.community = :community AND e.type = 'community' AND e.subject IS NOT NULL)`,
    },
    { table: 'erasure_alarms' },
  ],
} as const satisfies Record<string, readonly TableRows[]>;

/** A row of these has no community of its own. */
const THROUGH: Record<string, string> = {
  personal_data_files: `EXISTS (SELECT 1 FROM personal_data_requests r WHERE r.request_id = t.request_id AND r.community = :community)`,
};

function conditionOf(rows: TableRows, subject: Subject): string | undefined {
  const within = THROUGH[rows.table] ?? 't.community = :community';
  if (subject.type === 'community') {
    if (rows.memberOnly) return undefined;
    return rows.community === undefined ? within : `${within} AND ${rows.community}`;
  }
  if (rows.member === undefined) return undefined;
  return THROUGH[rows.table] === undefined ? `${within} AND ${rows.member}` : rows.member;
}

export function subjectValues(subject: Subject) {
  const isMember = subject.type === 'member';
  return {
    community: ['int', subject.community],
    pubkey: ['bytea', isMember ? bytes(subject.pubkey) : Buffer.alloc(0)],
    hex: ['text', isMember ? subject.pubkey : ''],
    until: ['bigint', isMember ? (subject.until ?? Number.MAX_SAFE_INTEGER) : Number.MAX_SAFE_INTEGER],
    ms: ['bigint', isMember ? untilMs(subject) : Number.MAX_SAFE_INTEGER],
    vanishes: ['boolean', isMember && subject.vanishes === true],
    bounded: ['boolean', isMember && subject.until !== undefined],
  } as const;
}

/** Of many stores in one statement: most of them have nothing, and each would be a question of its own. */
export async function countStores(
  client: ClientBase,
  stores: readonly (readonly [name: string, tables: readonly TableRows[]])[],
  subject: Subject,
): Promise<Map<string, number>> {
  const counts = stores.map(([, tables]) => countOf(tables, subject));
  const { rows } = await client.query<{ counts: number[] }>(
    named(`SELECT ARRAY[${counts.join(', ')}]::bigint[] AS counts`, subjectValues(subject)),
  );
  return new Map(stores.map(([name], at) => [name, Number(rows[0]!.counts[at])]));
}

/** A row that two entries of its table name is one row. */
function countOf(tables: readonly TableRows[], subject: Subject): string {
  const before = new Map<string, string[]>();
  const each = tables.flatMap((rows) => {
    const where = rows.uncounted ? undefined : conditionOf(rows, subject);
    if (where === undefined) return [];
    const others = before.get(rows.table) ?? [];
    before.set(rows.table, [...others, where]);
    const apart = others.map((other) => ` AND (${other}) IS NOT TRUE`).join('');
    return [`(SELECT count(*) FROM ${rows.table} t WHERE ${where}${apart})`];
  });
  return each.length === 0 ? '0::bigint' : each.join(' + ');
}

/** Of one store by itself. */
export async function countRowsOf(
  client: ClientBase,
  tables: readonly TableRows[],
  subject: Subject,
): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    named(`SELECT ${countOf(tables, subject)} AS count`, subjectValues(subject)),
  );
  return rows[0]!.count;
}

/** Labels that are to go next. */
export async function chooseLabels(client: ClientBase, subject: Subject, limit: number): Promise<string[]> {
  const where = conditionOf(STORE_TABLES.labels[0], subject)!;
  const { rows } = await client.query<{ id: string }>(
    named(`SELECT t.label_id AS id FROM labels t WHERE ${where} LIMIT ${limit}`, subjectValues(subject)),
  );
  return rows.map(({ id }) => id);
}

/** One batch. By the place of the rows, or by their key: neither lets the planner read the whole table again. */
export async function deleteRowsOf(
  client: ClientBase,
  rows: TableRows,
  subject: Subject,
  now: number,
  limit: number,
): Promise<number> {
  const where = conditionOf(rows, subject);
  if (where === undefined) return 0;
  const { table, key, release } = rows;
  const act =
    release !== undefined && subject.type === 'member'
      ? `UPDATE ${table} u SET ${release} WHERE`
      : `DELETE FROM ${table} u WHERE`;
  const chosen =
    key === undefined
      ? `u.ctid = ANY (ARRAY(SELECT t.ctid FROM ${table} t WHERE ${where} LIMIT ${limit}))`
      : `(${key.map((column) => `u.${column}`).join(', ')}) IN (SELECT ${key.map((column) => `t.${column}`).join(', ')}
          FROM ${table} t WHERE ${where} LIMIT ${limit})`;
  const values = { ...subjectValues(subject), now: ['bigint', now] } as const;
  const text =
    rows.follow === undefined || subject.type === 'community'
      ? `${act} ${chosen}`
      : `WITH changed AS (${act} ${chosen} RETURNING *), followed AS (${rows.follow}) SELECT 1 FROM changed`;
  return (await client.query(named(text, values))).rowCount ?? 0;
}
