/**
 * Reports, over HTTP or as events of kind 1984, in one list. Reports by events are written and withdrawn in
 * the lane's transaction of the event. A report over HTTP is made and withdrawn by its reporter.
 */
import { createHash } from 'node:crypto';
import type { ClientBase, Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import type { ReportedTarget, Tombstone } from '../events/rules/writes.js';
import type { StoredEvents } from '../events/stored-events.js';
import { hexArray, int4Array, int8Array, textArray } from '../postgres/binary.js';
import { NEWEST_FIRST, type Page, type PageOf, readPage } from '../postgres/page.js';
import { BEGIN_BRIEFLY, inTransaction } from '../postgres/transaction.js';
import { bytes, bytesOrNull, type Db, isUuid } from '../postgres/values.js';
import { caseReport } from './cases.sql.js';
import type { ReportReason } from './rules.js';

// ── In the lane ────────────────────────────────────────────────────────────────────────────────────────────

const WRITE_SQL = `
  INSERT INTO reports
    (report_id, community, created_at, pubkey, target_event, target_pubkey, event_id, reason, comment)
  SELECT gen_random_uuid(), community, created_at, pubkey, nullif(target_event, ''),
    nullif(target_pubkey, ''), event_id,
    reason, comment
  FROM unnest($1::int[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[], $7::text[],
      $8::text[])
    AS r (community, created_at, pubkey, target_event, target_pubkey, event_id, reason, comment)
  ON CONFLICT DO NOTHING`;

export async function writeReports(client: ClientBase, reports: readonly ReportedTarget[]): Promise<void> {
  await client.query({
    name: 'reports',
    text: WRITE_SQL,
    values: [
      int4Array(reports.map((r) => r.community)),
      int8Array(reports.map((r) => r.createdAt)),
      hexArray(reports.map((r) => r.reporter)),
      hexArray(reports.map((r) => r.event ?? '')),
      hexArray(reports.map((r) => r.pubkey ?? '')),
      hexArray(reports.map((r) => r.eventId)),
      textArray(reports.map((r) => r.reason)),
      textArray(reports.map((r) => r.comment)),
    ],
  });
}

interface Withdrawn {
  readonly community: number;
  readonly event: { readonly id: string; readonly pubkey: string };
}

/** Sends no statement when there is nothing to withdraw. */
export async function withdrawReports(client: ClientBase, events: readonly Withdrawn[]): Promise<void> {
  if (events.length === 0) return;
  await client.query({
    name: 'withdraw-reports',
    text: `DELETE FROM reports r
      USING unnest($1::int[], $2::bytea[], $3::bytea[]) AS g (community, event_id, pubkey)
      WHERE r.community = g.community AND r.event_id = g.event_id AND r.pubkey = g.pubkey`,
    values: [
      int4Array(events.map(({ community }) => community)),
      hexArray(events.map(({ event }) => event.id)),
      hexArray(events.map(({ event }) => event.pubkey)),
    ],
  });
}

/**
 * A report outlives its event when that is purged by retention. Deleting that event later withdraws the
 * report too.
 */
export function withdrawDeleted(client: ClientBase, tombstones: readonly Tombstone[]): Promise<void> {
  const unseen = tombstones.flatMap(({ community, target, author, applied }) =>
    target.type === 'id' && !applied ? [{ community, event: { id: target.id, pubkey: author } }] : [],
  );
  return withdrawReports(client, unseen);
}

// ── Over HTTP ──────────────────────────────────────────────────────────────────────────────────────────────

export interface Report {
  readonly reportId: string;
  /** The reporter. */
  readonly pubkey: string;
  readonly targetEvent: string | null;
  readonly targetPubkey: string | null;
  readonly reason: ReportReason;
  readonly comment: string;
  /** The event that made the report; null for a report over HTTP. */
  readonly eventId: string | null;
  readonly createdAt: number;
}

const COLUMNS = `r.report_id AS "reportId", encode(r.pubkey, 'hex') AS pubkey,
  encode(r.target_event, 'hex') AS "targetEvent", encode(r.target_pubkey, 'hex') AS "targetPubkey",
  r.reason, r.comment, encode(r.event_id, 'hex') AS "eventId", r.created_at AS "createdAt"`;
/** Reports of a vanished member are not shown, even while the erasure is still running. */
const IS_SHOWN = `NOT EXISTS (SELECT 1 FROM vanish_marks v
  WHERE v.community = r.community AND v.pubkey = r.pubkey AND r.created_at < (v.until + 1) * 1000)`;

export interface NewReport {
  readonly community: number;
  readonly pubkey: string;
  readonly targetEvent: string | undefined;
  readonly targetPubkey: string | undefined;
  readonly reason: ReportReason;
  readonly comment: string;
}

/**
 * The same text about the same target is the same report, so that a client without a response may send it
 * again. The report opens a case, or joins the open one. `also` runs in the same transaction.
 */
export async function addReport(
  pool: Pool,
  events: StoredEvents,
  report: NewReport,
  now: number,
  also?: (db: ClientBase, made: Report) => Promise<void>,
): Promise<Report | Denial> {
  return inTransaction(pool, BEGIN_BRIEFLY, async (db) => {
    const made = await writeReport(db, report, now);
    await caseReport(db, events, { community: report.community, reportId: made.reportId }, now);
    await also?.(db, made);
    return made;
  });
}

async function writeReport(db: Db, report: NewReport, now: number): Promise<Report> {
  const { community, pubkey, targetEvent, targetPubkey, reason, comment } = report;
  const { rows } = await db.query<Report>(
    `INSERT INTO reports AS r
       (report_id, community, pubkey, target_event, target_pubkey, reason, comment, created_at)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (report_id) DO UPDATE SET comment = excluded.comment
     RETURNING ${COLUMNS}`,
    [
      reportIdOf(report),
      community,
      bytes(pubkey),
      bytesOrNull(targetEvent),
      bytesOrNull(targetPubkey),
      reason,
      comment,
      now,
    ],
  );
  return rows[0]!;
}

/** A version 8 UUID, computed from the content of the report. */
function reportIdOf({ community, pubkey, targetEvent, targetPubkey, reason, comment }: NewReport): string {
  const said = JSON.stringify([community, pubkey, targetEvent, targetPubkey, reason, comment]);
  const hex = createHash('sha256').update(said).digest('hex');
  const parts = [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(13, 16)}`, `8${hex.slice(17, 20)}`];
  return [...parts, hex.slice(20, 32)].join('-');
}

interface ReportRef {
  readonly community: number;
  readonly pubkey: string;
  readonly reportId: string;
}

async function readReport(db: Db, { community, pubkey, reportId }: ReportRef): Promise<Report | undefined> {
  if (!isUuid(reportId)) return undefined;
  const { rows } = await db.query<Report>(
    `SELECT ${COLUMNS} FROM reports r
     WHERE r.report_id = $1 AND r.community = $2 AND r.pubkey = $3 AND ${IS_SHOWN}`,
    [reportId, community, bytes(pubkey)],
  );
  return rows[0];
}

/**
 * Only the member's own report; any other id is answered as not found. A report by an event is withdrawn by
 * deleting that event.
 */
export async function withdrawReport(pool: Pool, ref: ReportRef): Promise<Report | Denial> {
  const report = await readReport(pool, ref);
  if (report === undefined) return denial('NOT_FOUND');
  if (report.eventId !== null) return denial('STATUS_CONFLICT', { report_event: report.eventId });
  await pool.query('DELETE FROM reports WHERE report_id = $1', [report.reportId]);
  return report;
}

export interface ReportFilter {
  readonly community: number;
  readonly pubkey?: string | undefined;
  readonly targetEvent?: string | undefined;
  readonly targetPubkey?: string | undefined;
  readonly reason?: ReportReason | undefined;
}

/** Newest first. */
export function listReports(db: Db, filter: ReportFilter, page: PageOf): Promise<Page<Report> | Denial> {
  const { community, pubkey, targetEvent, targetPubkey, reason } = filter;
  const conditions: [string, unknown][] = [
    ['pubkey', bytesOrNull(pubkey)],
    ['target_event', bytesOrNull(targetEvent)],
    ['target_pubkey', bytesOrNull(targetPubkey)],
    ['reason', reason ?? null],
  ];
  const given = conditions.filter(([, value]) => value !== null);
  const narrowed = given.map(([column], at) => `AND r.${column} = $${at + 5}`).join(' ');
  return readPage(
    page,
    NEWEST_FIRST,
    ({ createdAt, reportId }: Report) => [createdAt, reportId],
    async ([before, beforeId], limit) => {
      const { rows } = await db.query<Report>(
        `SELECT ${COLUMNS} FROM reports r
         WHERE r.community = $1 AND (r.created_at, r.report_id) < ($2, $3) ${narrowed} AND ${IS_SHOWN}
         ORDER BY r.created_at DESC, r.report_id DESC LIMIT $4`,
        [community, before, beforeId, limit, ...given.map(([, value]) => value)],
      );
      return rows;
    },
  );
}

const OF_CASE_MAX = 200;

/** Oldest first. */
export async function reportsOfCase(db: Db, caseId: string): Promise<Report[]> {
  const { rows } = await db.query<Report>(
    `SELECT ${COLUMNS} FROM reports r WHERE r.case_id = $1 AND ${IS_SHOWN}
     ORDER BY r.created_at, r.report_id LIMIT ${OF_CASE_MAX}`,
    [caseId],
  );
  return rows;
}
