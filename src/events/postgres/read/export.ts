/**
 * Reads a community page by page for an export: its effective events in the order in which they became
 * effective, or its history, that is, superseded versions that nobody deleted. A page is one ordered scan
 * along the index on `seq` of each partition. It is bounded in rows, in bytes, and in offsets of other
 * communities that it passes (I14).
 */
import type { Pool } from 'pg';
import { asMatched, type MatchedEvent, UNBOUND } from '../../../topics/rules.js';
import { addressOf } from '../../rules/classify.js';
import type { NostrEvent } from '../../rules/event.js';
import { isExpired } from '../../rules/expiration.js';
import { HIDDEN_CODES } from '../../rules/hidden.js';
import { Keep } from '../../rules/keep.js';
import {
  asKept,
  type HistoryRetention,
  historySince,
  type Retention,
  surelySince,
} from '../../rules/retention.js';
import type { ReadEvent } from '../../store.js';
import { addressHash, readHistoryDeletions } from '../history.js';
import { NOT_VANISHED } from './hidden-at-read.js';

const PAGE_ROWS_MAX = 1_000;
const PAGE_BYTES_MAX = 4 * 1_048_576;
const PAGE_SEQS_MAX = 200_000;

export interface ExportPage {
  readonly events: readonly ExportedEvent[];
  /** Everything up to this `seq` has been read. */
  readonly seq: number;
}

export interface ExportedEvent extends Pick<ReadEvent, 'seq' | 'payload'> {
  /** As filters see it. */
  readonly matched: () => MatchedEvent;
}

/**
 * PostgreSQL knows the size of a payload without reading it, so payloads past the byte limit are never read.
 */
const pageSql = (which: string) => `
  SELECT seq, ingested_at, payload, bound FROM (
    SELECT seq, ingested_at, payload, bound,
      sum(octet_length(payload)) OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
      AS bytes_before
    FROM (
      SELECT e.seq, e.ingested_at, e.payload, e.bound FROM events e
      WHERE e.seq > $1::bigint AND e.seq <= $2::bigint AND e.community = $3::int
        AND ${which} AND ${NOT_VANISHED}
      ORDER BY e.seq LIMIT ${PAGE_ROWS_MAX}) walked
  ) measured
  WHERE bytes_before IS NULL OR bytes_before < ${PAGE_BYTES_MAX}
  ORDER BY seq`;
export const EXPORT_PAGE_SQL = pageSql(`e.hidden IS NULL AND e.keep <> ${Keep.history}`);
export const HISTORY_EXPORT_SQL = pageSql(
  `e.hidden = ${HIDDEN_CODES.superseded} AND e.keep = ${Keep.history} AND e.ingested_at >= $4::bigint`,
);

export type Exported = 'served' | 'history';

/** The next page after `after`, at most up to `head`. An empty page still advances `seq`. */
export async function readExportPage(
  pool: Pool,
  community: Retention & HistoryRetention & { readonly id: number },
  after: number,
  head: number,
  now: number,
  what: Exported = 'served',
): Promise<ExportPage> {
  const upTo = Math.min(head, after + PAGE_SEQS_MAX);
  const { rows } = await pool.query<[number, number, string, string[] | null]>({
    name: `export-${what}`,
    text: what === 'served' ? EXPORT_PAGE_SQL : HISTORY_EXPORT_SQL,
    values: [after, upTo, community.id, ...(what === 'served' ? [] : [historySince(community, now)])],
    rowMode: 'array',
  });
  const nowSeconds = Math.floor(now / 1_000);
  const surely = surelySince(community, now);
  // An event is not exported from the second of its expiration on, nor past its days, even before a sweep has
  // purged it (I7, I8).
  const inTime = rows.flatMap(([seq, ingestedAt, payload, topics]): ExportedEvent[] => {
    const bound = topics ?? UNBOUND;
    const parsed = () => JSON.parse(payload) as NostrEvent;
    if (payload.includes('["expiration",') && isExpired(parsed(), nowSeconds)) return [];
    if (ingestedAt >= surely) return [{ seq, payload, matched: () => asMatched(parsed(), bound) }];
    const kept = asKept(community, parsed(), { bound, ingestedAt }, now);
    return kept === undefined ? [] : [{ seq, payload, matched: () => kept }];
  });
  const events = what === 'served' ? inTime : await withoutDeleted(pool, community.id, inTime);
  return { events, seq: rows.at(-1)?.[0] ?? upTo };
}

/**
 * A job carries out the deletion of a long history. Versions that it has not reached yet are left out here
 * (I6).
 */
async function withoutDeleted(
  pool: Pool,
  community: number,
  rows: readonly ExportedEvent[],
): Promise<ExportedEvent[]> {
  const versions = rows.map((row) => {
    const event = row.matched();
    return { row, createdAt: event.created_at, hash: addressHash(addressOf(event)!) };
  });
  const deletions = await readHistoryDeletions(pool, community, [
    ...new Set(versions.map(({ hash }) => hash)),
  ]);
  return versions
    .filter(({ hash, createdAt }) => createdAt > (deletions.get(hash) ?? Number.NEGATIVE_INFINITY))
    .map(({ row }) => row);
}
