/**
 * The state of a dry run: which rows the earlier jobs would have taken. Each job counts only what is left, so
 * that the counts together are those of a real run. It is kept in temporary tables of the dry run's own
 * session, so nothing else sees it.
 */
import type { ClientBase } from 'pg';
import { int2Array, int8Array } from '../../postgres/binary.js';
import { topicsOf } from '../../topics/rules.js';
import { isCounted, type Size } from '../rules/capacity.js';
import { type NostrEvent, serializeEvent } from '../rules/event.js';
import { factKey, type RowRef } from '../rules/facts.js';
import type { Keep } from '../rules/keep.js';
import { type Scope, WHOLE } from './capacity.js';

/** An event that would leave the view, or whose hidden row would be purged. */
export interface TakenEvent {
  readonly community: number;
  readonly row: Pick<RowRef, 'seq'>;
  readonly event: NostrEvent;
  readonly bytes: number;
}

/** For rows named `e`: no earlier job has taken it. */
export const IS_LEFT = 'NOT EXISTS (SELECT 1 FROM would_go g WHERE g.seq = e.seq)';
/** For rows named `e` of one partition: the row would stay there. */
export const IS_LEFT_HERE = `${IS_LEFT} AND NOT EXISTS (SELECT 1 FROM would_move m WHERE m.seq = e.seq)`;

const keyOf = ({ community, topic }: Scope) => `${community}/${topic}`;

export class DryRunState {
  private readonly freed = new Map<string, { events: number; bytes: number }>();
  /** Superseded versions that a job of this dry run would mark as deleted. */
  readonly deletedNow: TakenEvent[] = [];

  /** Of events without rows; as many as previews return. */
  private readonly named = new Set<string>();

  private constructor(private readonly client: ClientBase) {}

  static async open(client: ClientBase): Promise<DryRunState> {
    await client.query('CREATE TEMPORARY TABLE would_go (seq bigint PRIMARY KEY)');
    await client.query(
      'CREATE TEMPORARY TABLE would_move (seq bigint PRIMARY KEY, ingested_at bigint, keep smallint)',
    );
    return new DryRunState(client);
  }

  /** The rows that no earlier job has taken. */
  async left<T extends { readonly row: Pick<RowRef, 'seq'> }>(rows: readonly T[]): Promise<T[]> {
    if (rows.length === 0) return [];
    const taken = await this.client.query<{ seq: number }>(
      'SELECT seq FROM would_go WHERE seq = ANY ($1::bigint[])',
      [int8Array(rows.map(({ row }) => row.seq))],
    );
    const seqs = new Set(taken.rows.map(({ seq }) => seq));
    return rows.filter(({ row }) => !seqs.has(row.seq));
  }

  /** Marks rows as taken. Served events free space of their community and topics; hidden ones occupy none. */
  async take(rows: readonly TakenEvent[], { served }: { readonly served: boolean }): Promise<void> {
    if (rows.length === 0) return;
    await this.client.query('INSERT INTO would_go SELECT unnest($1::bigint[]) ON CONFLICT (seq) DO NOTHING', [
      int8Array(rows.map(({ row }) => row.seq)),
    ]);
    if (!served) return;
    for (const { community, event, bytes } of rows) this.free(community, event, bytes);
  }

  /** Marks rows that would move to another bucket because of changed rules. They stay served. */
  async move(rows: readonly RowRef[]): Promise<void> {
    if (rows.length === 0) return;
    await this.client.query(
      `INSERT INTO would_move SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::smallint[])
       ON CONFLICT (seq) DO NOTHING`,
      [
        int8Array(rows.map(({ seq }) => seq)),
        int8Array(rows.map(({ ingestedAt }) => ingestedAt)),
        int2Array(rows.map(({ keep }) => keep)),
      ],
    );
  }

  /** Would a row move into this time range of a bucket, and stay there? */
  async movesInto(keep: number, from: number, to: number): Promise<boolean> {
    const { rows } = await this.client.query(
      `SELECT 1 FROM would_move e WHERE keep = $1 AND ingested_at >= $2 AND ingested_at < $3 AND ${IS_LEFT}
       LIMIT 1`,
      [keep, from, to],
    );
    return rows.length > 0;
  }

  /** Rows that would move to another bucket and then be taken by a later job. */
  async movedAndTaken(): Promise<{ keep: Keep; ingestedAt: number }[]> {
    const { rows } = await this.client.query<{ keep: Keep; ingestedAt: number }>(
      `SELECT keep, ingested_at AS "ingestedAt" FROM would_move e WHERE NOT (${IS_LEFT})`,
    );
    return rows;
  }

  /** The size after the jobs so far. */
  sizeOf(scope: Scope, { events, bytes }: Size): Size {
    const freed = this.freed.get(keyOf(scope)) ?? { events: 0, bytes: 0 };
    return { events: events - freed.events, bytes: bytes - freed.bytes };
  }

  /** For events without rows, by their ids. False when an earlier job has taken it. */
  takeNamed(community: number, event: NostrEvent, { served }: { readonly served: boolean }): boolean {
    const key = factKey(community, event.id);
    if (this.named.has(key)) return false;
    this.named.add(key);
    if (!served) return true;
    this.free(community, event, Buffer.byteLength(serializeEvent(event)));
    return true;
  }

  private free(community: number, event: NostrEvent, bytes: number): void {
    if (!isCounted(event)) return;
    for (const topic of [WHOLE, ...topicsOf(event)]) {
      const key = keyOf({ community, topic });
      const freed = this.freed.get(key) ?? { events: 0, bytes: 0 };
      freed.events += 1;
      freed.bytes += bytes;
      this.freed.set(key, freed);
    }
  }
}
