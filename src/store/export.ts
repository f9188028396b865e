/**
 * The effective events of a community in the order in which they became so. A page is one ordered walk along the
 * index on `seq` of each partition, bounded in rows, in bytes, and in the places of other communities that it passes.
 */
import type { Pool } from 'pg';
import type { NostrEvent } from '../core/event.js';
import { isExpired } from '../core/expiration.js';
import { Keep } from '../core/keep.js';
import { NOT_VANISHED } from './query.js';

const PAGE_ROWS_MAX = 1_000;
const PAGE_BYTES_MAX = 4 * 1_048_576;
const PAGE_SEQS_MAX = 200_000;

export interface ExportPage {
  readonly payloads: readonly string[];
  /** Everything up to this `seq` has been read. */
  readonly seq: number;
}

/** The size of a payload is known without reading it, so what lies past the bytes' bound is never read. */
export const EXPORT_PAGE_SQL = `
  SELECT seq, payload FROM (
    SELECT seq, payload, sum(octet_length(payload)) OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
      AS bytes_before
    FROM (
      SELECT e.seq, e.payload FROM events e
      WHERE e.seq > $1::bigint AND e.seq <= $2::bigint AND e.community = $3::int
        AND e.hidden IS NULL AND e.keep <> ${Keep.history} AND ${NOT_VANISHED}
      ORDER BY e.seq LIMIT ${PAGE_ROWS_MAX}) walked
  ) measured
  WHERE bytes_before IS NULL OR bytes_before < ${PAGE_BYTES_MAX}
  ORDER BY seq`;

/** The next page after `after`, at most up to `head`. An empty one still moves on. */
export async function readExportPage(
  pool: Pool,
  community: number,
  after: number,
  head: number,
  now: number,
): Promise<ExportPage> {
  const upTo = Math.min(head, after + PAGE_SEQS_MAX);
  const { rows } = await pool.query<[number, string]>({
    name: 'export-page',
    text: EXPORT_PAGE_SQL,
    values: [after, upTo, community],
    rowMode: 'array',
  });
  const nowSeconds = Math.floor(now / 1_000);
  const served = rows.map(([, payload]) => payload).filter((payload) => !isPast(payload, nowSeconds));
  return { payloads: served, seq: rows.at(-1)?.[0] ?? upTo };
}

/** From its second of expiry on an event is not exported either, also before the sweep comes by (I7). */
function isPast(payload: string, nowSeconds: number): boolean {
  return payload.includes('["expiration",') && isExpired(JSON.parse(payload) as NostrEvent, nowSeconds);
}
