/**
 * Counts and deletes the rows of a member or a community in a table, as the table is declared (I12). Both use
 * the same steps, so that what is counted is what is deleted. Batches are bounded (I14).
 */
import type { ClientBase } from 'pg';
import { labelsTable } from '../labels/tables.sql.js';
import { moderationActionsTable, moderationCasesTable } from '../moderation/tables.sql.js';
import { named } from '../postgres/named.js';
import { type ErasedTable, type MemberRows, memberRowsOf } from '../postgres/table.js';
import { bytes } from '../postgres/values.js';
import type { Store } from './all-tables.sql.js';
import type { Subject } from './rules.js';
import { untilMs } from './rules.js';

/** In this order; none where no row can belong to the subject. */
export function stepsOf({ erased }: ErasedTable, subject: Subject): MemberRows[] {
  const { community, through, uncounted = false } = erased;
  const within = through ?? 't.community = :community';
  if (subject.type === 'community')
    return [{ where: community === undefined ? within : `${within} AND ${community}`, uncounted }];
  const rows = memberRowsOf(erased);
  return through === undefined
    ? rows.map((step) => ({ ...step, where: `${within} AND ${step.where}` }))
    : rows;
}

/** `staying`: events of theirs that are not erased, where the tables of events do not know them. */
export function subjectValues(subject: Subject, staying: readonly string[] = []) {
  const isMember = subject.type === 'member';
  return {
    community: ['int', subject.community],
    pubkey: ['bytea', isMember ? bytes(subject.pubkey) : Buffer.alloc(0)],
    hex: ['text', isMember ? subject.pubkey : ''],
    until: ['bigint', isMember ? (subject.until ?? Number.MAX_SAFE_INTEGER) : Number.MAX_SAFE_INTEGER],
    ms: ['bigint', isMember ? untilMs(subject) : Number.MAX_SAFE_INTEGER],
    vanishes: ['boolean', isMember && subject.vanishes === true],
    bounded: ['boolean', isMember && subject.until !== undefined],
    staying: ['bytea[]', staying.map(bytes)],
  } as const;
}

/** Counts many stores in one statement: most of them hold nothing, and a query for each would cost more. */
export async function countStores(
  client: ClientBase,
  stores: readonly Store[],
  subject: Subject,
  staying: readonly string[] = [],
): Promise<Map<string, number>> {
  const counts = stores.map(({ tables }) => countOf(tables, subject));
  const { rows } = await client.query<{ counts: number[] }>(
    named(`SELECT ARRAY[${counts.join(', ')}]::bigint[] AS counts`, subjectValues(subject, staying)),
  );
  return new Map(stores.map(({ name }, at) => [name, Number(rows[0]!.counts[at])]));
}

/** A row that two steps of its table match is counted once. */
function countOf(tables: readonly ErasedTable[], subject: Subject): string {
  const each = tables.flatMap((table) => {
    const counted = stepsOf(table, subject).filter(({ uncounted }) => !uncounted);
    return counted.map(({ where }, at) => {
      const apart = counted.slice(0, at).map((before) => ` AND (${before.where}) IS NOT TRUE`);
      return `(SELECT count(*) FROM ${table.name} t WHERE ${where}${apart.join('')})`;
    });
  });
  return each.length === 0 ? '0::bigint' : each.join(' + ');
}

/** Counts one store. */
export async function countRowsOf(
  client: ClientBase,
  tables: readonly ErasedTable[],
  subject: Subject,
  staying: readonly string[] = [],
): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    named(`SELECT ${countOf(tables, subject)} AS count`, subjectValues(subject, staying)),
  );
  return rows[0]!.count;
}

/** The ids of the next labels to delete. */
export async function chooseLabels(
  client: ClientBase,
  subject: Subject,
  staying: readonly string[],
  limit: number,
): Promise<string[]> {
  const [step] = stepsOf(labelsTable, subject);
  const { rows } = await client.query<{ id: string }>(
    named(
      `SELECT t.label_id AS id FROM labels t WHERE ${step!.where} LIMIT ${limit}`,
      subjectValues(subject, staying),
    ),
  );
  return rows.map(({ id }) => id);
}

/** The events of a member that rows are about. */
export async function readTargets(client: ClientBase, subject: Subject): Promise<string[]> {
  const targets = TARGETED.map(
    ({ name }) => `SELECT t.target_event FROM ${name} t
      WHERE t.community = :community AND t.target_pubkey = :pubkey AND t.target_event IS NOT NULL`,
  );
  const { rows } = await client.query<{ id: string }>(
    named(
      `SELECT DISTINCT encode(target_event, 'hex') AS id FROM (${targets.join(' UNION ALL ')}) t`,
      subjectValues(subject),
    ),
  );
  return rows.map(({ id }) => id);
}
const TARGETED = [labelsTable, moderationActionsTable, moderationCasesTable];

interface BatchOf {
  readonly subject: Subject;
  readonly staying?: readonly string[];
  readonly now: number;
  readonly limit: number;
}

/**
 * One batch of a step. Rows are chosen by their place, so that the planner never reads the whole table and
 * looks for no row twice. In a table with partitions a place is in one of them.
 */
export async function deleteRowsOf(
  client: ClientBase,
  { name, erased: { isPartitioned = false } }: ErasedTable,
  { where, release, follow }: MemberRows,
  { subject, staying, now, limit }: BatchOf,
): Promise<number> {
  const act = release === undefined ? `DELETE FROM ${name} u WHERE` : `UPDATE ${name} u SET ${release} WHERE`;
  const found = `WITH found AS MATERIALIZED (
      SELECT t.tableoid AS part, t.ctid AS place FROM ${name} t WHERE ${where} LIMIT ${limit})`;
  const chosen = `u.ctid = ANY (ARRAY(SELECT place FROM found))
    ${isPartitioned ? 'AND (u.tableoid, u.ctid) IN (SELECT part, place FROM found)' : ''}`;
  const values = { ...subjectValues(subject, staying), now: ['bigint', now] } as const;
  const text =
    follow === undefined
      ? `${found} ${act} ${chosen}`
      : `${found}, changed AS (${act} ${chosen} RETURNING *), followed AS (${follow}) SELECT 1 FROM changed`;
  return (await client.query(named(text, values))).rowCount ?? 0;
}
