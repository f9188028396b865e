/**
 * Syncs one filter with a peer that does not know negentropy: pages of REQ from the newest event to the
 * oldest, each until the oldest second of the one before. Where it is interrupted, it continues. Events that
 * only this node has are found by comparing the same span of time.
 *
 * A page may end within a second, so that second is asked again. If a second has more events than the peer
 * gives at once, the rest of it is left out, and the result says so.
 */
import { createHash } from 'node:crypto';
import { isHex64, type NostrEvent } from '../events/rules/event.js';
import type { Filter } from '../events/rules/filter.js';
import { PAGE_RECORDS } from './digest.js';
import type { SyncParts, SyncPlan } from './exchange.js';
import { PeerFailure } from './peer-failure.js';
import type { WireFilter } from './rules-filters.js';
import { type Bound, ID_BYTES, RECORD_BYTES, toHex } from './rules-negentropy.js';
import { deletePosition, type PositionKey, readPosition, writePosition } from './sync.sql.js';
import type { Transfer } from './transfer.js';

const LIMIT = 500;
/** For a second with many events. */
const LIMIT_OF_SECOND = 5_000;
/** A page that is larger is stored without looking which of its events are known. */
const PAGE_BYTES_MAX = 8 * 1_048_576;
/** Events may arrive late at the peer: a resumed walk goes this far back beyond where it began. */
const OVERLAP_SECONDS = 3_600;
/** A page of nothing but what was seen before; each moves on by a second at least. */
const FRUITLESS_MAX = 1_000;
const NO_ID = new Uint8Array(0);

type Page = Map<string, number>;

export class Pages {
  private readonly key: PositionKey;
  private readonly limit: number;
  private begunAt = 0;

  constructor(
    private readonly plan: SyncPlan,
    private readonly wire: WireFilter,
    private readonly filter: Filter,
    private readonly parts: SyncParts,
    private readonly transfer: Transfer,
    limitMax: number | undefined,
  ) {
    const text = JSON.stringify([wire, plan.direction]);
    const hash = createHash('sha256').update(text).digest();
    this.key = { community: plan.community, url: plan.url, filter: hash };
    this.limit = Math.min(LIMIT, limitMax ?? LIMIT);
  }

  async run(): Promise<void> {
    const { pool, now, communities } = this.parts;
    const ahead = communities.get(this.plan.community)?.settings['limits.createdAheadSecondsMax'] ?? 0;
    const top = Math.floor(now() / 1_000) + ahead;
    const since = this.plan.since ?? 0;
    const saved = await readPosition(pool, this.key);
    this.begunAt = saved?.begunAt ?? top;
    await this.walk(saved?.until ?? top, since);
    if (saved !== undefined) {
      this.begunAt = top;
      await this.walk(top, Math.max(since, saved.begunAt - OVERLAP_SECONDS));
    }
    await deletePosition(pool, this.key);
  }

  /** From one second down to another, both included. */
  private async walk(from: number, since: number): Promise<void> {
    let until = from;
    /** Of the second `until`, as far as it is known. */
    let atEdge: Page = new Map();
    for (let fruitless = 0; until >= since; ) {
      await this.transfer.mayGoOn();
      const page = await this.read(until, since, this.limit);
      if (page.size === 0) break;
      const isFruitless = [...page.keys()].every((id) => atEdge.has(id));
      fruitless = isFruitless ? fruitless + 1 : 0;
      if (fruitless > FRUITLESS_MAX)
        throw new PeerFailure('misbehaved', 'the peer sends the same page again');
      const all = new Map([...atEdge, ...page]);
      const oldest = Math.min(...page.values());
      if (isFruitless && oldest === until) {
        if (page.size >= this.limit) await this.readSecond(until, all);
        await this.compare(until, until, all);
        until -= 1;
        atEdge = new Map();
      } else {
        await this.compare(oldest + 1, until, all);
        until = oldest;
        atEdge = new Map([...all].filter(([, time]) => time === oldest));
      }
      await writePosition(this.parts.pool, this.key, { until, begunAt: this.begunAt });
    }
    if (until >= since) await this.compare(since, until, atEdge);
  }

  private async readSecond(second: number, known: Page): Promise<void> {
    const page = await this.read(second, second, LIMIT_OF_SECOND);
    for (const [id, time] of page) known.set(id, time);
    if (page.size >= LIMIT_OF_SECOND) this.transfer.counts.incompleteSeconds += 1;
  }

  private async read(until: number, since: number, limit: number): Promise<Page> {
    const { transfer, filter, wire } = this;
    const page: Page = new Map();
    let kept: NostrEvent[] = [];
    let bytes = 0;
    const asked = { ...wire, until, limit, ...(since > 0 ? { since } : {}) };
    await transfer.connected.request(asked, (input) => {
      const event = input as Partial<NostrEvent> | null;
      const isAsked =
        isHex64(event?.id) &&
        Number.isSafeInteger(event.created_at) &&
        event.created_at! <= until &&
        event.created_at! >= since &&
        (filter.kinds === undefined || filter.kinds.has(event.kind!)) &&
        page.size < limit &&
        !page.has(event.id);
      if (!isAsked) return false;
      page.set(event.id!, event.created_at!);
      kept.push(event as NostrEvent);
      bytes += JSON.stringify(event).length;
      if (bytes > PAGE_BYTES_MAX) {
        if (transfer.goesDown) for (const one of kept) transfer.take(one);
        kept = [];
        bytes = 0;
      }
      return true;
    });
    if (transfer.goesDown) await transfer.takeNew(kept);
    return page;
  }

  /** Own events between two seconds, both included, that the peer did not send. */
  private async compare(from: number, to: number, theirs: Page): Promise<void> {
    if (to < from) return;
    const { store, now, communities } = this.parts;
    const upper: Bound = { time: to + 1, id: NO_ID };
    const upTo = await store.head();
    let spanSeconds: number | undefined;
    for (let lower: Bound | undefined = { time: from, id: NO_ID }; lower !== undefined; ) {
      const query = {
        community: this.plan.community,
        filter: this.filter,
        rules: communities.get(this.plan.community),
        limit: PAGE_RECORDS,
        now: now(),
        ...{ upTo, lower, upper, spanSeconds },
      };
      const found = await store.records(query, 'heavy');
      const own = idsOf(found.records).filter((id) => !theirs.has(id));
      if (own.length > 0) await this.transfer.found.have(own);
      ({ spanSeconds, next: lower } = found);
    }
  }
}

function idsOf(records: Uint8Array): string[] {
  const count = records.length / RECORD_BYTES;
  return Array.from({ length: count }, (_, at) => {
    const end = (at + 1) * RECORD_BYTES;
    return toHex(records.subarray(end - ID_BYTES, end));
  });
}
