/**
 * Reads the stream of `Events` and appends it to the log (log.sql.ts). Any number of workers run; a shard is
 * read by the one that holds its lease. A shard waits until its parent was read to its end, so the order of
 * the changes of one event, and of one key, is kept over splits.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import type { Log } from '../../../node/log.js';
import type { TagHash } from '../../postgres/tag-hash.js';
import { type Dynamodb, eachOf } from '../client.js';
import { streamOf } from '../tables.js';
import { IteratorExpired, type RecordsPage, type Streams, Trimmed } from './client.js';
import {
  append,
  appendGap,
  forgetShards,
  giveUpLeases,
  type KnownShard,
  type Lease,
  noteShards,
  readShards,
  takeLease,
} from './log.sql.js';
import { entryOf } from './rules-records.js';

/** While records arrive, and while none do. */
const BUSY_MS = 50;
const IDLE_MS = 500;
/** A worker that does not answer loses its shards after this. */
const LEASE_MS = 10_000;
/** How often new shards are looked for. */
const SHARDS_MS = 5_000;
const SHARDS_AT_ONCE = 8;
const FAILED_MS_MAX = 5_000;
/** A closed shard is listed for a day. */
const FORGET_MS = 48 * 3_600_000;

export interface FollowOptions {
  readonly db: Dynamodb;
  readonly streams: Streams;
  readonly pool: Pool;
  readonly tagHash: TagHash;
  readonly log: Log;
  readonly now: () => number;
  /** Called with the age of the last record of each page, in milliseconds; 0 when there is none. */
  readonly onLag?: (ms: number) => void;
}

export class StreamFollower {
  private readonly holder = randomUUID();
  /** Each continues after a checkpoint: another worker may have moved that of the shard since. */
  private readonly iterators = new Map<string, { readonly after: string | null; readonly next: string }>();
  private readonly ending = new AbortController();
  private shards: readonly KnownShard[] = [];
  private shardsAt = Number.NEGATIVE_INFINITY;
  private stream: string | undefined;
  private running: Promise<void> | undefined;

  constructor(private readonly options: FollowOptions) {}

  start(): void {
    this.running ??= this.run();
  }

  async stop(): Promise<void> {
    this.ending.abort();
    await this.running;
    await giveUpLeases(this.options.pool, this.holder).catch(() => undefined);
  }

  /** Reads every shard that this worker holds or can get, once. Returns how many records were appended. */
  async step(): Promise<number> {
    const { pool, now } = this.options;
    await this.refresh();
    const done = new Set(this.shards.filter(({ isDone }) => isDone).map(({ id }) => id));
    const known = new Set(this.shards.map(({ id }) => id));
    const isReady = ({ isDone, parent }: KnownShard) =>
      !isDone && (parent === undefined || done.has(parent) || !known.has(parent));
    let records = 0;
    await eachOf(this.shards.filter(isReady), SHARDS_AT_ONCE, async ({ id }) => {
      const lease = { stream: this.stream!, shard: id, holder: this.holder };
      const taken = await takeLease(pool, lease, now(), LEASE_MS);
      if (taken !== undefined) records += await this.read(lease, taken.checkpoint);
    });
    return records;
  }

  private async run(): Promise<void> {
    const { log } = this.options;
    const { signal } = this.ending;
    for (let failures = 0; !signal.aborted; ) {
      let waitMs = IDLE_MS;
      try {
        if ((await this.step()) > 0) waitMs = BUSY_MS;
        failures = 0;
      } catch (error) {
        failures += 1;
        this.shardsAt = Number.NEGATIVE_INFINITY;
        waitMs = Math.min(FAILED_MS_MAX, IDLE_MS * 2 ** failures);
        log.warn({ error: String(error), failures }, 'the stream of events could not be read');
      }
      await delay(waitMs, undefined, { signal }).catch(() => undefined);
    }
  }

  private async refresh(): Promise<void> {
    const { db, streams, pool, now } = this.options;
    if (now() - this.shardsAt < SHARDS_MS) return;
    this.stream = await streamOf(db);
    this.shards = await noteShards(pool, this.stream, await streams.shards(this.stream), now());
    await forgetShards(pool, this.stream, now() - FORGET_MS);
    this.shardsAt = now();
  }

  /** One page of a shard. */
  private async read(lease: Lease, after: string | null): Promise<number> {
    const { pool, log, now, tagHash, onLag } = this.options;
    const page = await this.page(lease, after).catch(async (error: unknown) => {
      this.iterators.delete(lease.shard);
      if (error instanceof IteratorExpired) return undefined;
      if (!(error instanceof Trimmed)) throw error;
      // Nothing of this shard was read yet, so the next attempt begins with the oldest record that there is.
      if (after === null) return undefined;
      log.error({ shard: lease.shard }, 'changes were lost: the stream was not read for 24 hours');
      await appendGap(pool, lease);
      return undefined;
    });
    if (page === undefined) return 0;
    const { records, next } = page;
    const isDone = next === undefined;
    const checkpoint = records.at(-1)?.dynamodb?.SequenceNumber ?? after;
    if (records.length > 0 || isDone) {
      const entries = records.flatMap((record) => entryOf(record) ?? []);
      const step = { ...lease, after, checkpoint, isDone, entries, tagHash, now: now() };
      const isMine = await append(pool, step);
      // Another worker has taken the shard over: its checkpoint is the truth.
      if (!isMine) {
        this.iterators.delete(lease.shard);
        return 0;
      }
    }
    if (isDone) {
      this.iterators.delete(lease.shard);
      this.shardsAt = Number.NEGATIVE_INFINITY;
    } else this.iterators.set(lease.shard, { after: checkpoint, next });
    const createdAt = records.at(-1)?.dynamodb?.ApproximateCreationDateTime;
    onLag?.(createdAt === undefined ? 0 : Math.max(0, now() - createdAt.getTime()));
    return records.length;
  }

  private async page({ stream, shard }: Lease, after: string | null): Promise<RecordsPage> {
    const { streams } = this.options;
    const kept = this.iterators.get(shard);
    const iterator =
      kept?.after === after && kept !== undefined
        ? kept.next
        : await streams.iterator(stream, shard, after ?? undefined);
    return iterator === undefined ? { records: [], next: undefined } : streams.records(iterator);
  }
}

/** An empty page may be followed by records. */
const EMPTY_PAGES = 3;

/**
 * Whether the log has every record of the stream: after the checkpoint of each shard there is none. It reads
 * beside the workers, in any process, and changes nothing.
 */
export async function isStreamRead({
  db,
  streams,
  pool,
}: Pick<FollowOptions, 'db' | 'streams' | 'pool'>): Promise<boolean> {
  const stream = await streamOf(db);
  const shards = await streams.shards(stream);
  const known = new Map((await readShards(pool, stream)).map((shard) => [shard.id, shard]));
  let isRead = true;
  await eachOf(shards, SHARDS_AT_ONCE, async ({ id }) => {
    const shard = known.get(id);
    if (!isRead || shard?.isDone) return;
    try {
      let next = await streams.iterator(stream, id, shard?.checkpoint);
      for (let pages = 0; pages < EMPTY_PAGES && next !== undefined && isRead; pages += 1) {
        const page: RecordsPage = await streams.records(next);
        if (page.records.length > 0) isRead = false;
        next = page.next;
      }
    } catch (error) {
      if (!(error instanceof Trimmed) && !(error instanceof IteratorExpired)) throw error;
      isRead = false;
    }
  });
  return isRead;
}
