/**
 * The audit log: what operators did. The transaction of each action writes its row, so that no row is lost.
 * With DynamoDB the rows wait here until a job moves them (audit/jobs.ts). Only an erasure changes rows.
 */
import { npubEncode } from 'nostr-tools/nip19';
import type { Client, ClientBase, Pool } from 'pg';
import { type Denial, isDenial } from '../api/rules-errors.js';
import { NEWEST_POSITION, type Page, type PageOf, readPage } from '../postgres/page.js';
import { BEGIN_BRIEFLY, inTransaction } from '../postgres/transaction.js';
import { bytesOrNull, type Db } from '../postgres/values.js';
import type { AuditAction } from './rules.js';

export interface AuditEntry {
  readonly position: number;
  readonly at: number;
  /**
   * Null for the command line on the node's machine, and for an erased operator (details.actor then holds an
   * alias).
   */
  readonly actor: string | null;
  readonly action: AuditAction;
  readonly target: string;
  readonly details: Readonly<Record<string, unknown>>;
}

/** The order of the log: by time, then by position. */
export type AuditKey = [at: number, position: number];
/** What a list shows; without a filter, everything. */
export interface AuditFilter {
  readonly actor?: string | undefined;
  readonly action?: AuditAction | undefined;
  readonly target?: string | undefined;
  /** Milliseconds, both inclusive. */
  readonly since?: number | undefined;
  readonly until?: number | undefined;
}
/** Newest first, only entries older than the key that match the filter. */
export type ReadAudit = (
  community: number,
  before: AuditKey,
  limit: number,
  filter?: AuditFilter,
) => Promise<readonly AuditEntry[]>;

const COLUMNS = `position, at, encode(actor, 'hex') AS actor, action, target, details`;

/**
 * Newest first, merged from both stores when there is an archive. A row is written to the archive before it
 * is deleted here, so this store is read first: a row that moves in between is found twice, never missed.
 */
export function listAudit(
  db: Db,
  community: number,
  page: PageOf,
  readArchive?: ReadAudit,
  filter: AuditFilter = {},
): Promise<Page<AuditEntry> | Denial> {
  return readPage(
    page,
    NEWEST_POSITION,
    ({ at, position }: AuditEntry) => [at, position],
    async (before, limit) => {
      const here = await readNewest(db, community, before, limit, filter);
      return readArchive === undefined
        ? here
        : merge(here, await readArchive(community, before, limit, filter), limit);
    },
  );
}

/** Actor, action and target have an index each, in the order of the list. */
async function readNewest(
  db: Db,
  community: number,
  before: AuditKey,
  limit: number,
  { actor, action, target, since, until }: AuditFilter,
): Promise<AuditEntry[]> {
  const values: unknown[] = [community, ...before, limit];
  const conditions = (
    [
      ['actor =', actor === undefined ? undefined : bytesOrNull(actor)],
      ['action =', action],
      ['target =', target],
      ['at >=', since],
      ['at <=', until],
    ] as const
  )
    .filter(([, value]) => value !== undefined)
    .map(([condition, value]) => ` AND ${condition} $${values.push(value)}`);
  const { rows } = await db.query<AuditEntry>(
    `SELECT ${COLUMNS} FROM audit_log WHERE community = $1 AND (at, position) < ($2, $3)${conditions.join('')}
     ORDER BY at DESC, position DESC LIMIT $4`,
    values,
  );
  return rows;
}

/** Who did one of these actions last to each target, and when. Targets without such a row are left out. */
export async function lastActions(
  db: Db,
  community: number,
  actions: readonly AuditAction[],
  targets: readonly string[],
): Promise<Map<string, Pick<AuditEntry, 'actor' | 'at'>>> {
  const { rows } = await db.query<{ target: string; actor: string | null; at: number }>(
    `SELECT asked.target, encode(last.actor, 'hex') AS actor, last.at
     FROM unnest($2::text[]) AS asked (target) CROSS JOIN LATERAL (
       SELECT l.actor, l.at FROM audit_log l
       WHERE l.community = $1 AND l.target = asked.target AND l.action = ANY ($3)
       ORDER BY l.at DESC, l.position DESC LIMIT 1) last`,
    [community, targets, actions],
  );
  return new Map(rows.map(({ target, actor, at }) => [target, { actor, at }]));
}

function merge(here: readonly AuditEntry[], there: readonly AuditEntry[], limit: number): AuditEntry[] {
  const all = new Map([...there, ...here].map((entry) => [entry.position, entry]));
  const newestFirst = (a: AuditEntry, b: AuditEntry) => b.at - a.at || b.position - a.position;
  return [...all.values()].sort(newestFirst).slice(0, limit);
}

// ── Rows of a person or community ──────────────────────────────────────────────────────────────────────────

/** Rows of a community, or of one person in it. */
export interface AuditRows {
  readonly community: number;
  /** Only rows that name this key: as the actor, or anywhere in target or details. */
  readonly pubkey?: string | undefined;
  /** Milliseconds, inclusive. */
  readonly from?: number | undefined;
  readonly to?: number | undefined;
}

/** The two ways in which texts write a key. */
export function spellingsOf(pubkey: string): [hex: string, npub: string] {
  return [pubkey, npubEncode(pubkey)];
}

// $1 community, $2 and $3 the time, $4 the key, $5 and $6 its spellings. Without a key every row matches.
const IN_TIME = 'community = $1 AND at BETWEEN $2 AND $3';
const NAMES = `($4::bytea IS NULL OR actor = $4 OR strpos(target, $5) > 0 OR strpos(target, $6) > 0
  OR strpos(details::text, $5) > 0 OR strpos(details::text, $6) > 0)`;

function valuesOf({ community, pubkey, from = 0, to = Number.MAX_SAFE_INTEGER }: AuditRows): unknown[] {
  const spellings = pubkey === undefined ? [null, null] : spellingsOf(pubkey);
  return [community, from, to, bytesOrNull(pubkey), ...spellings];
}

export async function countAudit(db: Db, rows: AuditRows): Promise<number> {
  const { rows: counted } = await db.query<{ rows: number }>(
    `SELECT count(*) AS rows FROM audit_log WHERE ${IN_TIME} AND ${NAMES}`,
    valuesOf(rows),
  );
  return counted[0]!.rows;
}

/** When the newest of the rows was written. */
export async function findYoungest(db: Db, rows: AuditRows): Promise<number | null> {
  const { rows: found } = await db.query<{ at: number | null }>(
    `SELECT max(at) AS at FROM audit_log WHERE ${IN_TIME} AND ${NAMES}`,
    valuesOf(rows),
  );
  return found[0]!.at;
}

/** The position of a walk through the log, and the rows that its last step changed. */
export interface AuditStretch {
  readonly taken: number;
  readonly last: AuditKey;
}

/** One step of the walk: looks at `limit` rows and deletes those that match. Undefined at the end. */
export function deleteAudit(
  pool: Pool,
  rows: AuditRows,
  after: AuditKey,
  limit: number,
): Promise<AuditStretch | undefined> {
  const change = `DELETE FROM audit_log WHERE position IN (SELECT position FROM stretch WHERE ${NAMES})`;
  return walk(pool, change, [...valuesOf(rows), ...after, limit]);
}

/** Like `deleteAudit`, but keeps the rows and replaces the key with `alias`. */
export function anonymiseAudit(
  pool: Pool,
  rows: AuditRows & { readonly pubkey: string },
  alias: string,
  after: AuditKey,
  limit: number,
): Promise<AuditStretch | undefined> {
  const replaced = (text: string) => `replace(replace(${text}, $5, $10), $6, $10)`;
  const change = `UPDATE audit_log SET actor = nullif(actor, $4), target = ${replaced('target')},
      details = ${replaced('details::text')}::jsonb
        || CASE WHEN actor = $4 THEN jsonb_build_object('actor', $10::text) ELSE '{}' END
    WHERE position IN (SELECT position FROM stretch WHERE ${NAMES})`;
  return walk(pool, change, [...valuesOf(rows), ...after, limit, alias]);
}

/**
 * The lock of moving and changing rows. Without it, a row that was read to be moved could reach the archive
 * as it was before an erasure changed it.
 */
const MOVE_LOCK = 7_447_020;
const BEGIN_UNMOVED = `${BEGIN_BRIEFLY};
  SELECT pg_advisory_xact_lock(${MOVE_LOCK})`;

async function walk(pool: Pool, change: string, values: unknown[]): Promise<AuditStretch | undefined> {
  const walked = await inTransaction(pool, BEGIN_UNMOVED, async (db) => {
    const { rows } = await db.query<{ at: number; position: number; taken: number }>(
      `WITH stretch AS MATERIALIZED (
         SELECT * FROM audit_log WHERE ${IN_TIME} AND (at, position) > ($7, $8)
         ORDER BY at, position LIMIT $9),
       changed AS (${change} RETURNING 1)
       SELECT at, position, (SELECT count(*) FROM changed) AS taken
       FROM stretch ORDER BY at DESC, position DESC LIMIT 1`,
      values,
    );
    return rows[0];
  });
  if (walked === undefined || isDenial(walked)) return undefined;
  return { taken: walked.taken, last: [walked.at, walked.position] };
}

// ── Moving rows to DynamoDB ────────────────────────────────────────────────────────────────────────────────

export interface AuditRow extends AuditEntry {
  readonly community: number;
}

/** A DynamoDB item has at most 400 KB. A larger row stays here for good and is read here. */
const MOVED_BYTES_MAX = 300_000;
const FITS = `octet_length(details::text) + octet_length(target) <= ${MOVED_BYTES_MAX}`;

/** Moves the oldest rows: `put` first, then the delete here. Returns how many. */
export async function moveAudit(
  client: Client,
  limit: number,
  put: (rows: readonly AuditRow[]) => Promise<void>,
): Promise<number> {
  await client.query('SELECT pg_advisory_lock($1)', [MOVE_LOCK]);
  try {
    const { rows } = await client.query<AuditRow>(
      `SELECT community, ${COLUMNS} FROM audit_log WHERE ${FITS} ORDER BY position LIMIT $1`,
      [limit],
    );
    if (rows.length === 0) return 0;
    await put(rows);
    await client.query('DELETE FROM audit_log WHERE position = ANY ($1)', [positionsOf(rows)]);
    return rows.length;
  } finally {
    // When the connection is lost, so is its lock.
    await client.query('SELECT pg_advisory_unlock($1)', [MOVE_LOCK]).catch(() => undefined);
  }
}

export async function countMovable(client: Client): Promise<number> {
  const { rows } = await client.query<{ rows: number }>(
    `SELECT count(*) AS rows FROM audit_log WHERE ${FITS}`,
  );
  return rows[0]!.rows;
}

/** The positions of those entries that are in PostgreSQL as well. */
export async function findHeld(client: ClientBase, entries: readonly AuditEntry[]): Promise<Set<number>> {
  const { rows } = await client.query<{ position: number }>(
    'SELECT position FROM audit_log WHERE position = ANY ($1)',
    [positionsOf(entries)],
  );
  return new Set(rows.map(({ position }) => position));
}

const positionsOf = (entries: readonly AuditEntry[]) => entries.map(({ position }) => position);
