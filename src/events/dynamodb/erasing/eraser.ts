/**
 * Deletes events of an erasure in two steps. First the content is deleted, which announces it. When the log
 * has the delete, the id is deleted as well. So nothing about the event reaches the log after its rows were
 * scrubbed, and an interrupted erasure finds what is left: the entries that find an event are deleted last.
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import type { Settings } from '../../../communities/rules-settings.js';
import { type Dynamodb, eachOf, type WriteOf } from '../client.js';
import { hiding, removal, removeAll } from '../commit.js';
import { readErasedInLog } from '../control.sql.js';
import { type Entry, type EventItem, entriesOf, hiddenEntries, hiddenEntry, indexedOf } from '../items.js';
import { newestKey, partitions, seenKey } from '../keys.js';
import { type Found, isBare } from './found.js';

const AT_ONCE = 16;
/** Deleted events whose ids are kept until the log has them. */
const WAITING_MAX = 1_000;
/** How long one try waits for the log. */
const LOG_MS_MAX = 30_000;
const LOOK_MS = 100;
/** A delete that is not in the log after this time, although the stream was read, will not be announced. */
const ANNOUNCED_MS = 60_000;

export interface ErasingOptions {
  readonly db: Dynamodb;
  /** The control plane. */
  readonly pool: Pool;
  readonly now: () => number;
  readonly settingsOf: (community: number) => Settings;
  readonly onHidden?: ((reason: string, count: number) => void) | undefined;
  readonly onGone?: ((community: number, id: string) => void) | undefined;
  /** Whether the log has everything that is in the stream; where there is no stream, it always has. */
  readonly isLogRead?: (() => Promise<boolean>) | undefined;
}

type Key = Pick<Entry, 'pk' | 'sk'>;

/** Called with the number of deleted events and of their index entries. */
type OnErased = (events: number, entries: number) => Promise<void>;

interface Waiting {
  /** Without its content. */
  readonly item: EventItem;
  readonly entries: number;
  /** Entries that find it, deleted with the id. */
  readonly last: readonly Key[];
}

/** How many entries of the index are about it. */
export function entriesAbout(found: Found): number {
  if (found.type === 'left') return 1;
  const { item } = found;
  return found.type === 'served'
    ? entriesOf(indexedOf(item)).length
    : hiddenEntries(item).length + (isVersion(item) ? 1 : 0);
}
const isVersion = ({ hidden_as, payload }: EventItem) => hidden_as === 'superseded' && payload !== undefined;

export class Eraser {
  /** By the ids of their events: the walk over hidden ids finds those again that it has just deleted. */
  private waiting = new Map<string, Waiting>();
  private deleted = 0;
  private entries = 0;

  constructor(
    private readonly options: ErasingOptions,
    private readonly hidden: 'vanished' | 'erased',
    private readonly onErased: OnErased,
  ) {}

  async take(found: readonly Found[]): Promise<void> {
    let gone = 0;
    await eachOf(found, AT_ONCE, async (one) => {
      if (one.type === 'served' && (await this.purge(one.item, one.by))) gone += 1;
      if (one.type === 'hidden') await this.remove(one.item, one.by);
    });
    this.options.onHidden?.(this.hidden, gone);
    if (this.waiting.size >= WAITING_MAX) await this.finish();
    else await this.report();
  }

  /** Waits for the log, and deletes the ids. */
  async finish(): Promise<void> {
    const waiting = [...this.waiting.values()];
    await this.announced(waiting.map(({ item }) => item));
    this.waiting.clear();
    await eachOf(waiting, AT_ONCE, async ({ item, entries, last }) => {
      const { change, after } = removal(item);
      if (!(await this.options.db.change(change))) return;
      await this.options.db.write([...after, ...removeAll(last)]);
      this.deleted += 1;
      this.entries += entries;
    });
    await this.report();
  }

  private async report(): Promise<void> {
    const { deleted, entries } = this;
    this.deleted = 0;
    this.entries = 0;
    await this.onErased(deleted, entries);
  }

  private async purge(item: EventItem, by: Entry): Promise<boolean> {
    const { db, now, settingsOf, onGone } = this.options;
    const { community, event_id } = item;
    const settings = settingsOf(community);
    const at = now();
    const { before, change } = hiding(item, { hidden: this.hidden, purge: true, settings, now: at });
    const all = entriesOf(indexedOf(item));
    const last = findersOf(item, by);
    const isLast = (entry: Entry) => last.some((key) => keyOf(key) === keyOf(entry));
    await db.write([
      ...before,
      ...removeAll(all.filter((entry) => !isLast(entry))),
      { table: 'state', remove: seenKey(community, event_id) },
    ]);
    if (!(await db.change(change))) return false;
    onGone?.(community, event_id);
    const { payload: _, ...rest } = item;
    const bare = { ...rest, hidden_as: this.hidden, hidden_at: at };
    this.waiting.set(event_id, { item: bare, entries: all.length, last });
    return true;
  }

  private async remove(item: EventItem, by: Key | undefined): Promise<void> {
    if (isBare(item)) {
      if (!this.waiting.has(item.event_id))
        this.waiting.set(item.event_id, { item, entries: 1, last: findersOf(item, by) });
      return;
    }
    const { db } = this.options;
    const { change, after } = removal(item);
    const own = keyOf(hiddenEntry(item));
    const isOwn = ({ remove }: WriteOf) => remove !== undefined && keyOf(remove) === own;
    await db.write(after.filter((write) => !isOwn(write)));
    if (!(await db.change(change))) return;
    const seen = { table: 'state' as const, remove: seenKey(item.community, item.event_id) };
    await db.write([...after.filter(isOwn), seen]);
    this.deleted += 1;
    this.entries += entriesAbout({ type: 'hidden', item });
  }

  private async announced(items: readonly EventItem[]): Promise<void> {
    const { pool, now, isLogRead } = this.options;
    const startMs = performance.now();
    const [first] = items;
    for (let left = items; left.length > 0 && first !== undefined; ) {
      const logged = await readErasedInLog(pool, first.community, left);
      left = left.filter(({ event_id }) => !logged.has(event_id));
      const isOld = left.every(({ hidden_at }) => hidden_at! < now() - ANNOUNCED_MS);
      if (left.length === 0 || (isOld && ((await isLogRead?.()) ?? true))) return;
      if (performance.now() - startMs > LOG_MS_MAX)
        throw new Error(
          `waits for the stream of DynamoDB to be read: ${left.length} deletes are not announced`,
        );
      await delay(LOOK_MS);
      // A stop of the node or a hold ends the wait.
      await this.onErased(0, 0);
    }
  }
}

/** The entry of its author, and the one that found it. */
function findersOf(item: EventItem, by: Key | undefined): Key[] {
  const { community, pubkey, created_at, event_id } = item;
  const own = { pk: partitions.author(community, pubkey)[0]!, sk: newestKey(created_at, event_id) };
  return by === undefined || keyOf(by) === keyOf(own) ? [own] : [own, { pk: by.pk, sk: by.sk }];
}

const keyOf = ({ pk, sk }: Record<string, unknown>) => `${pk} ${sk}`;
