/**
 * The newest changes of the outbox that this process has committed: parsed events, by offset. Consumers that
 * keep up read them here instead of from the database. After a restart, if they lag, and for changes of other
 * instances, they read the outbox. Bounded by bytes (I14). Changes that every consumer of this process has
 * passed are dropped.
 *
 * A page is as exact as one from the database (I8). The transaction of its effect reads what was committed
 * after the newest change here. An event that one of those rows hides has no payload in the page. An offset
 * without a row (a request to vanish, whose effect only the database knows) makes the page unusable.
 */
import { performance } from 'node:perf_hooks';
import type { ClientBase } from 'pg';
import { factKey } from '../../events/rules/facts.js';
import type { BatchWrites, NewRow } from '../../events/rules/writes.js';
import { type Change, committedChange, readSince } from '../changes.sql.js';
import { OutboxBehind } from '../outbox.sql.js';
import type { Page } from './batches.js';

/** Bytes of payloads; a parsed event takes several times as much. */
const BYTES_MAX = 16 * 1_048_576;
/** Part of BYTES_MAX from which consumers do not rest: a burst of some 10,000 events stays below it. */
const PRESSING = 0.75;
/** With more rows than this after the newest change, another instance writes: the outbox is read. */
const AHEAD_MAX = 2_000;
/**
 * After this time without progress, changes are not kept for a consumer: it is paused, failing, or runs on
 * another instance.
 */
const READER_MS = 60_000;

export class RecentChanges {
  /** The changes of the offsets after `before`, without a gap. */
  private changes: Change[] = [];
  private before = 0;
  private bytes = 0;
  /** Offsets of upserts by event: a hidden event loses its payload. */
  private readonly offsets = new Map<string, number>();
  private readonly readers = new Map<string, { readonly offset: number; readonly at: number }>();

  constructor(private readonly bytesMax = BYTES_MAX) {}

  get size(): number {
    return this.changes.length;
  }

  private get head(): number {
    return this.before + this.changes.length;
  }

  /** Called in commit order. */
  onCommit(writes: BatchWrites): void {
    const { outbox, lastSeq } = writes;
    if (lastSeq === this.head) return;
    if (this.isUnread() || !isWithoutGap(writes)) {
      this.restart(lastSeq);
      return;
    }
    const begin = outbox[0]!.seq - 1;
    if (begin !== this.head) this.restart(begin);
    for (const { community, id } of writes.hidden) this.hide(factKey(community, id));
    const rows = new Map<number, NewRow>(writes.rows.map((row) => [row.seq, row]));
    for (const entry of outbox) {
      const row = rows.get(entry.seq);
      this.add(committedChange(entry, row?.hidden === undefined ? row : undefined));
    }
    this.trim();
  }

  /**
   * The changes after an offset, or undefined if the outbox must be read. In the transaction of the effect.
   */
  async page(tx: ClientBase, after: number, limit: number): Promise<Page | undefined> {
    const { head } = this;
    if (after < this.before || after >= head) return undefined;
    const from = after - this.before;
    const found = this.changes.slice(from, from + limit);
    const { floor, lastSeq, rows, deleted } = await readSince(tx, head, AHEAD_MAX);
    if (after < floor - 1) throw new OutboxBehind(after, floor);
    // A server that lost its last commits reuses their offsets.
    if (lastSeq < head) this.restart(lastSeq);
    if (rows !== lastSeq - head) return undefined;
    const gone = new Set(deleted);
    const changes =
      gone.size === 0 ? found : found.map((change) => (gone.has(change.id) ? withoutEvent(change) : change));
    return { changes, upTo: after + changes.length, full: changes.length === limit, isWhole: true };
  }

  /**
   * A consumer with this offset must not rest: its next changes will soon leave memory, or have left it. Then
   * each of its batches costs several times as much, until it has caught up with those that are there.
   */
  isPressing(after: number): boolean {
    return after < this.head && this.bytes > PRESSING * this.bytesMax;
  }

  /** This consumer has committed everything up to here. */
  passed(consumer: string, offset: number): void {
    this.readers.set(consumer, { offset, at: performance.now() });
    this.trim();
  }

  private isUnread(): boolean {
    const now = performance.now();
    for (const [consumer, { at }] of this.readers) if (now - at > READER_MS) this.readers.delete(consumer);
    return this.readers.size === 0;
  }

  private restart(before: number): void {
    this.changes = [];
    this.offsets.clear();
    this.before = before;
    this.bytes = 0;
  }

  private add(change: Change): void {
    const { op, community, id, payload, seq } = change;
    this.changes.push(change);
    this.bytes += payload?.length ?? 0;
    if (op === 'upsert' && payload !== undefined) this.offsets.set(factKey(community, id), seq);
  }

  private hide(key: string): void {
    const place = (this.offsets.get(key) ?? 0) - this.before - 1;
    this.offsets.delete(key);
    const change = this.changes[place];
    if (change === undefined) return;
    this.bytes -= change.payload?.length ?? 0;
    this.changes[place] = withoutEvent(change);
  }

  /** Drops what all consumers have passed, and the oldest changes beyond the limit of bytes. */
  private trim(): void {
    let passed = Math.min(this.head, ...[...this.readers.values()].map(({ offset }) => offset)) - this.before;
    let bytes = this.bytes;
    let count = 0;
    for (; count < this.changes.length && (count < passed || bytes > this.bytesMax); count += 1)
      bytes -= this.changes[count]!.payload?.length ?? 0;
    passed = count;
    if (passed <= 0) return;
    for (const { community, id, seq } of this.changes.slice(0, passed))
      if (this.offsets.get(factKey(community, id)) === seq) this.offsets.delete(factKey(community, id));
    this.changes = this.changes.slice(passed);
    this.before += passed;
    this.bytes = bytes;
  }
}

/**
 * Every offset of the batch has a row. An offset without a row belongs to a request to vanish, or to an event
 * that is hidden on arrival.
 */
function isWithoutGap({ outbox, lastSeq, vanishMarks }: BatchWrites): boolean {
  const last = outbox.at(-1)?.seq;
  return vanishMarks.length === 0 && last === lastSeq && outbox[0]!.seq + outbox.length - 1 === last;
}

/** No longer effective: a later change says why. */
const withoutEvent = (change: Change): Change => ({ ...change, payload: undefined });
