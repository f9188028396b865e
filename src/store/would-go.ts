/**
 * What the jobs before this one would have taken, while a dry run goes from job to job: each counts what is left for it, so that the
 * counts together are those of a real run. Kept in temporary tables of the dry run's own session, so nothing else sees it.
 */
import type { ClientBase } from 'pg';
import type { Size } from '../core/capacity.js';
import type { NostrEvent } from '../core/event.js';
import type { RowRef } from '../core/plan.js';
import { topicsOf } from '../core/topic.js';
import { int2Array, int8Array } from './binary.js';
import { type Scope, WHOLE } from './capacity.js';

/** An event that would leave the view, or whose hidden row would be purged. */
export interface Going {
  readonly community: number;
  readonly row: Pick<RowRef, 'seq'>;
  readonly event: NostrEvent;
  readonly bytes: number;
}

/** For rows named `e`: no job before has taken it. */
export const IS_LEFT = 'NOT EXISTS (SELECT 1 FROM would_go g WHERE g.seq = e.seq)';
/** For rows named `e` of one partition: it would stay there. */
export const IS_LEFT_HERE = `${IS_LEFT} AND NOT EXISTS (SELECT 1 FROM would_move m WHERE m.seq = e.seq)`;

const keyOf = ({ community, topic }: Scope) => `${community}/${topic}`;

export class WouldGo {
  private readonly freed = new Map<string, { events: number; bytes: number }>();
  /** Superseded versions that would be hidden as deleted from now on. */
  readonly deletedNow: Going[] = [];

  private constructor(private readonly client: ClientBase) {}

  static async open(client: ClientBase): Promise<WouldGo> {
    await client.query('CREATE TEMPORARY TABLE would_go (seq bigint PRIMARY KEY)');
    await client.query(
      'CREATE TEMPORARY TABLE would_move (seq bigint PRIMARY KEY, ingested_at bigint, keep smallint)',
    );
    return new WouldGo(client);
  }

  /** Those of them that are still there. */
  async left<T extends { readonly row: Pick<RowRef, 'seq'> }>(rows: readonly T[]): Promise<T[]> {
    if (rows.length === 0) return [];
    const gone = await this.client.query<{ seq: number }>(
      'SELECT seq FROM would_go WHERE seq = ANY ($1::bigint[])',
      [int8Array(rows.map(({ row }) => row.seq))],
    );
    const seqs = new Set(gone.rows.map(({ seq }) => seq));
    return rows.filter(({ row }) => !seqs.has(row.seq));
  }

  /** Served events make room for their community and their topics; hidden ones take none. */
  async take(rows: readonly Going[], { served }: { readonly served: boolean }): Promise<void> {
    if (rows.length === 0) return;
    await this.client.query('INSERT INTO would_go SELECT unnest($1::bigint[]) ON CONFLICT (seq) DO NOTHING', [
      int8Array(rows.map(({ row }) => row.seq)),
    ]);
    if (!served) return;
    for (const { community, event, bytes } of rows)
      for (const topic of [WHOLE, ...topicsOf(event)]) this.free({ community, topic }, bytes);
  }

  /** To another bucket, by changed rules: it is still served. */
  async move(rows: readonly RowRef[]): Promise<void> {
    if (rows.length === 0) return;
    await this.client.query(
      `INSERT INTO would_move SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::smallint[]) ON CONFLICT (seq) DO NOTHING`,
      [
        int8Array(rows.map(({ seq }) => seq)),
        int8Array(rows.map(({ ingestedAt }) => ingestedAt)),
        int2Array(rows.map(({ keep }) => keep)),
      ],
    );
  }

  /** Does a row move into this stretch of a bucket? */
  async movesInto(keep: number, from: number, to: number): Promise<boolean> {
    const { rows } = await this.client.query(
      'SELECT 1 FROM would_move WHERE keep = $1 AND ingested_at >= $2 AND ingested_at < $3 LIMIT 1',
      [keep, from, to],
    );
    return rows.length > 0;
  }

  /** What it would hold by now. */
  sizeOf(scope: Scope, { events, bytes }: Size): Size {
    const freed = this.freed.get(keyOf(scope)) ?? { events: 0, bytes: 0 };
    return { events: events - freed.events, bytes: bytes - freed.bytes };
  }

  private free(scope: Scope, bytes: number): void {
    const freed = this.freed.get(keyOf(scope)) ?? { events: 0, bytes: 0 };
    freed.events += 1;
    freed.bytes += bytes;
    this.freed.set(keyOf(scope), freed);
  }
}
