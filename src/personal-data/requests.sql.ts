/**
 * Requests of members about their own data, and the files made for them. A member has at most one open
 * request of each kind. A second request returns the open one, and a repeated request id returns the request
 * made with it. A file is stored in portions, so that any instance can serve it.
 *
 * The worker writes a portion only while its request is `running`, under the row's lock. So a cancelled
 * request gets no more portions, and the sweep finds all that were written.
 */
import { randomUUID } from 'node:crypto';
import type { ClientBase, Pool } from 'pg';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { type Change, changeConfig } from '../communities/config-change.sql.js';
import { askErasure, cancelOpen, readErasure, shownStage } from '../erasure/erasures.sql.js';
import { DAY_MS } from '../events/rules/retention.js';
import { ensureMember, readMemberStatus } from '../members/members.sql.js';
import { countWithin } from '../plans/usage.sql.js';
import { NEWEST_FIRST, type Page, type PageOf, readPage } from '../postgres/page.js';
import { bytes, type Db, isUuid } from '../postgres/values.js';
import { CANCEL_STEPS, PERSONAL_STATUSES, type PersonalKind, type PersonalStatus } from './rules.js';

export interface PersonalRequest {
  readonly requestId: string;
  readonly community: number;
  readonly pubkey: string;
  readonly kind: PersonalKind;
  readonly status: PersonalStatus;
  readonly note: string | null;
  /** For the member to read. */
  readonly error: string | null;
  readonly bytes: number;
  readonly createdAt: number;
  readonly startedAt: number | null;
  readonly finishedAt: number | null;
  readonly expiresAt: number | null;
}

const COLUMNS = `request_id AS "requestId", community, encode(pubkey, 'hex') AS pubkey, kind, status, note,
  error, bytes, created_at AS "createdAt", started_at AS "startedAt", finished_at AS "finishedAt",
  expires_at AS "expiresAt"`;

export interface NewPersonalRequest {
  readonly community: number;
  readonly pubkey: string;
  readonly kind: PersonalKind;
  readonly note?: string | undefined;
  /** The request id that the client sent. */
  readonly requestKey?: string | undefined;
  /** Limit of pending and running exports over all members. */
  readonly waitingMax?: number | undefined;
  /** For a deletion: the erasure that carries it out has the same id as the request. */
  readonly erasure?: { readonly slug: string; readonly graceDays: number } | undefined;
  /** The operator who requests it for the member; it is written to the audit log. */
  readonly actor?: string | undefined;
}

/** Limit per member and day of requests that ended without a result and so did not count as use. */
const IDLE_PER_DAY_MAX = 20;

/** Returns the request made with this request key, or the open one, or a new pending one. */
export function requestPersonal(
  pool: Pool,
  wanted: NewPersonalRequest,
  now: number,
): Promise<PersonalRequest | Denial> {
  const { community, pubkey, kind, note, requestKey, actor } = wanted;
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const { db } = change;
    if ((await readMemberStatus(db, community, pubkey)) === 'erasing') return denial('BEING_ERASED');
    if (actor !== undefined && kind === 'export') await change.audit('personal-data.export', pubkey);
    const before = await findExisting(db, wanted);
    if (before !== undefined) {
      if (before.status === 'pending') await requestErasure(change, wanted, before.requestId);
      return before;
    }
    const refused = await refuseMore(db, wanted, now);
    if (refused !== undefined) return refused;
    await ensureMember(change, pubkey);
    const use =
      kind === 'export' ? await countWithin(db, { community, pubkey, metric: 'exports', now }) : undefined;
    if (isDenial(use)) return use;
    const { rows } = await db.query<PersonalRequest>(
      `INSERT INTO personal_data_requests
         (request_id, community, pubkey, kind, status, note, request_key, created_at)
       VALUES ($1, $2, $3, $4, 'pending', $5, $6, $7) RETURNING ${COLUMNS}`,
      [
        (await requestErasure(change, wanted)) ?? randomUUID(),
        community,
        bytes(pubkey),
        kind,
        note ?? null,
        requestKey ?? null,
        now,
      ],
    );
    return rows[0]!;
  });
}

/** Requests the erasure and returns its id. It may be one that somebody else requested before. */
async function requestErasure(
  change: Change,
  { community, pubkey, erasure }: NewPersonalRequest,
  erasureId?: string,
): Promise<string | undefined> {
  if (erasure === undefined) return undefined;
  const wanted = { ...erasure, community, pubkey, cause: 'member', erasureId } as const;
  return (await askErasure(change, wanted)).erasureId;
}

async function findExisting(
  db: Db,
  { community, pubkey, kind, requestKey }: NewPersonalRequest,
): Promise<PersonalRequest | undefined> {
  const { rows } = await db.query<PersonalRequest>(
    `SELECT ${COLUMNS} FROM personal_data_requests
     WHERE community = $1 AND pubkey = $2 AND kind = $3
       AND (status IN ('pending', 'running') OR request_key = $4)
     ORDER BY request_key = $4 DESC NULLS LAST LIMIT 1`,
    [community, bytes(pubkey), kind, requestKey ?? null],
  );
  return rows[0];
}

/**
 * I14: limits the open exports of all members, and the requests without a result of one member. The counts
 * are exact because the caller holds the row of `config_version`.
 */
async function refuseMore(
  db: Db,
  { community, pubkey, kind, waitingMax }: NewPersonalRequest,
  now: number,
): Promise<Denial | undefined> {
  const { rows } = await db.query<{ waiting: number; idle: number }>(
    `SELECT (SELECT count(*) FROM personal_data_requests
             WHERE community = $1 AND kind = 'export' AND status IN ('pending', 'running')) AS waiting,
            (SELECT count(*) FROM personal_data_requests
             WHERE community = $1 AND pubkey = $2 AND kind = $3 AND created_at > $4
               AND status IN ('failed', 'cancelled') AND ${CAME_TO_NOTHING}) AS idle`,
    [community, bytes(pubkey), kind, now - DAY_MS],
  );
  const { waiting, idle } = rows[0]!;
  if (kind === 'export' && waitingMax !== undefined && waiting >= waitingMax)
    return denial('RATE_LIMITED', { limit: waitingMax, of: 'all members' });
  if (idle >= IDLE_PER_DAY_MAX)
    return denial('RATE_LIMITED', {
      limit: IDLE_PER_DAY_MAX,
      of: 'your failed and cancelled requests of a day',
    });
  return undefined;
}

/** A request that has ended without a result: it failed, or it was cancelled before it began. */
const CAME_TO_NOTHING = `(status = 'failed' OR started_at IS NULL)`;

/**
 * Ends requests. Those without a result are subtracted from the usage of the day that counted them. A member
 * has one open export, so one statement subtracts at most one per member.
 */
const ending = (update: string) => `WITH ended AS (${update} RETURNING *),
  given AS (UPDATE usage_counters c SET used = c.used - 1
    FROM (SELECT community, pubkey, created_at FROM ended WHERE kind = 'export' AND ${CAME_TO_NOTHING}) e
    WHERE c.community = e.community AND c.pubkey = e.pubkey AND c.metric = 'exports'
      AND c.day = e.created_at / ${DAY_MS} AND c.used > 0)
  SELECT ${COLUMNS} FROM ended`;

export interface PersonalRef {
  readonly community: number;
  readonly requestId: string;
  readonly kind: PersonalKind;
}

export async function readPersonalRequest(
  db: Db,
  { community, requestId, kind }: PersonalRef,
): Promise<PersonalRequest | undefined> {
  if (!isUuid(requestId)) return undefined;
  const { rows } = await db.query<PersonalRequest>(
    `SELECT ${COLUMNS} FROM personal_data_requests WHERE community = $1 AND request_id = $2 AND kind = $3`,
    [community, requestId, kind],
  );
  return rows[0];
}

/** Only the member's own request; any other id is answered as not found. */
export async function cancelPersonal(
  db: Db,
  ref: PersonalRef & { readonly pubkey: string },
  now: number,
): Promise<PersonalRequest | Denial> {
  const { community, requestId, kind, pubkey } = ref;
  if (!isUuid(requestId)) return denial('NOT_FOUND');
  const steps = CANCEL_STEPS[kind];
  const { rows } = await db.query<PersonalRequest>(
    ending(`UPDATE personal_data_requests SET status = 'cancelled', finished_at = $5
      WHERE community = $1 AND request_id = $2 AND kind = $3 AND pubkey = $4 AND status = ANY ($6)`),
    [
      community,
      requestId,
      kind,
      bytes(pubkey),
      now,
      PERSONAL_STATUSES.filter((status) => steps[status] === 'do'),
    ],
  );
  if (rows[0] !== undefined) return rows[0];
  const found = await readPersonalRequest(db, ref);
  if (found?.pubkey !== pubkey) return denial('NOT_FOUND');
  return steps[found.status] === 'done' ? found : denial('STATUS_CONFLICT', { status: found.status });
}

/**
 * Cancels a request for deletion and its erasure, as long as the erasure has not begun. A member cannot
 * cancel an erasure that an operator requested.
 */
export function cancelDeletion(
  pool: Pool,
  ref: PersonalRef & { readonly pubkey: string },
  now: number,
): Promise<PersonalRequest | Denial> {
  const { community, requestId } = ref;
  return changeConfig(pool, { community, now }, async (change) => {
    const erasure = await readErasure(change.db, requestId);
    const isTheirs = (await readPersonalRequest(change.db, ref))?.pubkey === ref.pubkey;
    if (erasure === undefined || !isTheirs || erasure.stage === 'cancelled')
      return cancelPersonal(change.db, ref, now);
    if (erasure.cause !== 'member')
      return denial('STATUS_CONFLICT', { stage: shownStage(erasure), asked_for_by: erasure.cause });
    if ((await cancelOpen(change, requestId)) === undefined)
      return denial('STATUS_CONFLICT', { stage: shownStage(erasure) });
    return (await readPersonalRequest(change.db, ref))!;
  });
}

/** Notes in the audit log that an operator got the link to a file. */
export async function noteLink(
  pool: Pool,
  {
    community,
    actor,
    pubkey,
  }: { readonly community: number; readonly actor: string; readonly pubkey: string },
  now: number,
): Promise<void> {
  await changeConfig(pool, { community, actor, now }, async (change) => {
    await change.audit('personal-data.link', pubkey);
  });
}

export interface PersonalFilter {
  readonly community: number;
  readonly pubkey?: string | undefined;
  readonly kind?: PersonalKind | undefined;
  readonly status?: PersonalStatus | undefined;
}

/** Newest first, of one member or of all. */
export function listPersonal(
  db: Db,
  { community, pubkey, kind, status }: PersonalFilter,
  page: PageOf,
): Promise<Page<PersonalRequest> | Denial> {
  return readPage(
    page,
    NEWEST_FIRST,
    ({ createdAt, requestId }: PersonalRequest) => [createdAt, requestId],
    async ([at, id], limit) => {
      const { rows } = await db.query<PersonalRequest>(
        `SELECT ${COLUMNS} FROM personal_data_requests
         WHERE community = $1 AND (created_at, request_id) < ($2, $3::uuid)
           AND ($4::bytea IS NULL OR pubkey = $4)
           AND ($5::text IS NULL OR kind = $5) AND ($6::text IS NULL OR status = $6)
         ORDER BY created_at DESC, request_id DESC LIMIT $7`,
        [community, at, id, pubkey === undefined ? null : bytes(pubkey), kind ?? null, status ?? null, limit],
      );
      return rows;
    },
  );
}

// ── The worker ─────────────────────────────────────────────────────────────────────────────────────────────

const TRIES_MAX = 3;

/**
 * Picks the export to make now. Only one job runs at a time, so a request that is already `running` was left
 * by a worker that was killed. That request may be what kills workers: it comes after those with fewer tries,
 * and it fails after three.
 */
export async function claimExport(client: ClientBase, now: number): Promise<PersonalRequest | undefined> {
  await client.query(
    ending(`UPDATE personal_data_requests SET status = 'failed', finished_at = $1, error = $3
      WHERE kind = 'export' AND status = 'running' AND tries >= $2`),
    [now, TRIES_MAX, 'Making the file was started three times and never finished. Ask your operator.'],
  );
  const { rows } = await client.query<PersonalRequest>(
    `UPDATE personal_data_requests SET status = 'running', started_at = $1, tries = tries + 1
     WHERE request_id = (SELECT request_id FROM personal_data_requests
         WHERE kind = 'export' AND status IN ('running', 'pending')
         ORDER BY tries, created_at, request_id LIMIT 1)
       AND status IN ('running', 'pending') RETURNING ${COLUMNS}`,
    [now],
  );
  return rows[0];
}

/** A try that ended because the node stopped does not count. */
export async function leaveExport(client: ClientBase, requestId: string): Promise<void> {
  await client.query(
    `UPDATE personal_data_requests SET tries = tries - 1 WHERE request_id = $1 AND status = 'running'`,
    [requestId],
  );
}

export async function countWaitingExports(client: ClientBase): Promise<number> {
  const { rows } = await client.query<{ rows: number }>(
    `SELECT count(*) AS rows FROM personal_data_requests
     WHERE kind = 'export' AND status IN ('running', 'pending')`,
  );
  return rows[0]!.rows;
}

/** False when the request was cancelled in the meantime. */
export async function writePortion(
  client: ClientBase,
  requestId: string,
  position: number,
  portion: Buffer,
): Promise<boolean> {
  const { rowCount } = await client.query(
    `INSERT INTO personal_data_files (request_id, position, portion)
     SELECT request_id, $2, $3 FROM personal_data_requests
     WHERE request_id = $1 AND status = 'running' FOR SHARE`,
    [requestId, position, portion],
  );
  return rowCount === 1;
}

export type ExportEnd =
  | { readonly status: 'ready'; readonly bytes: number; readonly expiresAt: number }
  | { readonly status: 'failed'; readonly error: string };

/** False when the request was cancelled in the meantime. */
export async function endExport(
  client: ClientBase,
  requestId: string,
  end: ExportEnd,
  now: number,
): Promise<boolean> {
  const ready = end.status === 'ready' ? end : { bytes: 0, expiresAt: null };
  const { rowCount } = await client.query(
    ending(`UPDATE personal_data_requests
        SET status = $2, finished_at = $3, error = $4, bytes = $5, expires_at = $6
      WHERE request_id = $1 AND status = 'running'`),
    [requestId, end.status, now, end.status === 'failed' ? end.error : null, ready.bytes, ready.expiresAt],
  );
  return rowCount === 1;
}

/** Marks the requests of expired files. */
export async function endExports(client: ClientBase, now: number): Promise<number> {
  const { rowCount } = await client.query(
    `UPDATE personal_data_requests SET status = 'expired'
     WHERE kind = 'export' AND status = 'ready' AND expires_at <= $1`,
    [now],
  );
  return rowCount ?? 0;
}

export async function countPastExports(client: ClientBase, now: number): Promise<number> {
  const { rows } = await client.query<{ rows: number }>(
    `SELECT count(*) AS rows FROM personal_data_requests
     WHERE kind = 'export' AND status = 'ready' AND expires_at <= $1`,
    [now],
  );
  return rows[0]!.rows;
}

const LONG_ENDED = `FROM personal_data_requests r
  WHERE r.kind = 'export' AND r.status IN ('failed', 'expired', 'cancelled')
  AND (CASE r.status WHEN 'expired' THEN r.expires_at ELSE r.finished_at END) < $1
  AND NOT EXISTS (SELECT 1 FROM personal_data_files f WHERE f.request_id = r.request_id)`;

/** Deletes exports that ended long ago and have no file any more. */
export async function forgetExports(client: ClientBase, endedBefore: number, limit: number): Promise<number> {
  const { rowCount } = await client.query(
    `DELETE FROM personal_data_requests WHERE request_id IN (SELECT r.request_id ${LONG_ENDED} LIMIT $2)`,
    [endedBefore, limit],
  );
  return rowCount ?? 0;
}

export async function countLongEnded(client: ClientBase, endedBefore: number): Promise<number> {
  const { rows } = await client.query<{ rows: number }>(`SELECT count(*) AS rows ${LONG_ENDED}`, [
    endedBefore,
  ]);
  return rows[0]!.rows;
}

/** Deletes the portions that an earlier, killed try of this request left. */
export async function dropPortionsOf(client: ClientBase, requestId: string, limit: number): Promise<number> {
  const { rowCount } = await client.query(
    `DELETE FROM personal_data_files WHERE (request_id, position) IN
       (SELECT request_id, position FROM personal_data_files WHERE request_id = $1 LIMIT $2)`,
    [requestId, limit],
  );
  return rowCount ?? 0;
}

/** Deletes portions that nobody can download any more. */
export async function dropStalePortions(client: ClientBase, limit: number): Promise<number> {
  const { rowCount } = await client.query(
    `DELETE FROM personal_data_files WHERE (request_id, position) IN
       (SELECT f.request_id, f.position FROM personal_data_files f
          JOIN personal_data_requests r USING (request_id)
        WHERE r.status NOT IN ('running', 'ready') LIMIT $1)`,
    [limit],
  );
  return rowCount ?? 0;
}

// ── The download ───────────────────────────────────────────────────────────────────────────────────────────

/** Undefined when the file has no such portion, or was deleted. */
export async function readPortion(db: Db, requestId: string, position: number): Promise<Buffer | undefined> {
  const { rows } = await db.query<{ portion: Buffer }>(
    `SELECT portion FROM personal_data_files WHERE request_id = $1 AND position = $2`,
    [requestId, position],
  );
  return rows[0]?.portion;
}
