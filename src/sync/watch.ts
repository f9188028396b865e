/**
 * Keeps a community and a peer in step after a sync (`minato sync --watch`): new events of the peer come by
 * live subscriptions, new events of this node are sent as its outbox brings them. After a broken connection
 * it waits, connects again and syncs the time in between first.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { KIND_DELETION } from '../events/rules/classify.js';
import { type NostrEvent, parseEvent } from '../events/rules/event.js';
import { factKey } from '../events/rules/facts.js';
import { type Filter, matchFilter, parseFilter } from '../events/rules/filter.js';
import { isRefusal } from '../events/rules/reply.js';
import { OutboxBehind, type Position } from '../events/store.js';
import { asMatched } from '../topics/rules.js';
import { type Synced, type SyncOptions, type SyncParts, type SyncPlan, syncWithPeer } from './exchange.js';
import { Peer } from './peer.js';
import { PeerFailure } from './peer-failure.js';
import { filtersFor } from './rules-filters.js';
import { Transfer } from './transfer.js';

/** A peer may get an event that is older than it looks: the time between two syncs overlaps by this. */
const OVERLAP_SECONDS = 3_600;
/** Live subscriptions begin a little before the sync began. */
const LIVE_OVERLAP_SECONDS = 60;
const POLL_MS = 1_000;
const CHANGES_MAX = 500;
const WAIT_MS = { first: 1_000, max: 60_000 };
const ANSWER_MS = 30_000;

export interface Watching {
  /** A sync has ended; live following begins if it was complete. */
  onSynced(result: Synced): void;
  onLive?(event: NostrEvent, way: 'down' | 'up'): void;
  onBroken(why: string, waitMs: number): void;
}

/** Returns when the signal is given. */
export async function watchPeer(
  plan: SyncPlan,
  parts: SyncParts,
  options: SyncOptions,
  watching: Watching,
): Promise<void> {
  const { signal } = options;
  let { since } = plan;
  for (let waitMs = WAIT_MS.first; !signal.aborted; ) {
    const begun = Math.floor(parts.now() / 1_000);
    let result = await syncWithPeer({ ...plan, since }, parts, options);
    watching.onSynced(result);
    // What was posted here during a long sync is compared once more, before the outbox is followed.
    const head = await parts.store.head();
    if (result.ended === 'complete' && plan.direction !== 'down')
      result = await syncWithPeer({ ...plan, since: begun - OVERLAP_SECONDS }, parts, options);
    if (result.ended === 'complete') {
      waitMs = WAIT_MS.first;
      since = Math.max(plan.since ?? 0, begun - OVERLAP_SECONDS);
      const why = await followLive(
        { ...plan, since: begun - LIVE_OVERLAP_SECONDS },
        parts,
        options,
        head,
        watching,
      ).catch((error: unknown) => (error instanceof Error ? error.message : String(error)));
      if (signal.aborted) return;
      watching.onBroken(why, waitMs);
    } else if (!signal.aborted) watching.onBroken(result.why, waitMs);
    await delay(waitMs, undefined, { signal }).catch(() => undefined);
    waitMs = Math.min(WAIT_MS.max, waitMs * 2);
  }
}

/** Resolves with the reason why it ended. */
async function followLive(
  plan: SyncPlan,
  parts: SyncParts,
  options: SyncOptions,
  head: Position,
  watching: Watching,
): Promise<string> {
  const { communities, keys, now } = parts;
  const community = () => {
    const found = communities.get(plan.community);
    if (found === undefined) throw new Error('the community no longer exists');
    return found;
  };
  const stopping = new AbortController();
  const signal = AbortSignal.any([options.signal, stopping.signal]);
  const peer = await Peer.connect({
    url: plan.url,
    allowsPrivate: options.allowsPrivate,
    answerMs: options.answerMs ?? ANSWER_MS,
    signal,
    now,
    sign: (template) => keys.sign(plan.community, 'relay', template),
  });
  const transfer = new Transfer(plan, parts, { ...options, community, onProgress: () => undefined });
  transfer.use(peer, undefined);
  const filters = filtersFor(community(), plan);
  const parsed = filters.map((wire) =>
    parseFilter(wire, { 'limits.filterValuesMax': Number.MAX_SAFE_INTEGER }),
  ) as Filter[];
  const down = async () => {
    if (plan.direction === 'up') return never(signal);
    await Promise.all(
      filters.map((wire, place) => {
        const onEvent = (input: unknown) => {
          const event = parseEvent(input);
          if (isRefusal(event) || !isAsked(parsed[place]!, event)) return false;
          watching.onLive?.(event, 'down');
          transfer.take(event);
          return true;
        };
        return peer.follow(wire, signal, onEvent, () => undefined);
      }),
    );
  };
  const up = async () => {
    if (plan.direction === 'down') return never(signal);
    await sendChanges({ plan, parts, transfer, filters: parsed, signal, watching }, head);
  };
  const check = async () => {
    // A failure in storing ends the watch as well.
    while (!signal.aborted) {
      await delay(POLL_MS, undefined, { signal }).catch(() => undefined);
      await transfer.settled();
      await peer.isAlive();
    }
  };
  try {
    await Promise.race([down(), up(), check()]);
    return 'the connection ended';
  } finally {
    stopping.abort();
    peer.close();
  }
}

/** A deletion request may be bound to a topic that it does not name. */
function isAsked(filter: Filter, event: NostrEvent): boolean {
  return (
    matchFilter(filter, event) || (event.kind === KIND_DELETION && filter.kinds?.has(event.kind) === true)
  );
}

interface Sending {
  readonly plan: SyncPlan;
  readonly parts: SyncParts;
  readonly transfer: Transfer;
  readonly filters: readonly Filter[];
  readonly signal: AbortSignal;
  readonly watching: Watching;
}

async function sendChanges(
  { plan, parts, transfer, filters, signal, watching }: Sending,
  head: Position,
): Promise<void> {
  const { store } = parts;
  const { community } = plan;
  for (let after = head; !signal.aborted; ) {
    const { changes } = await store.changes(after, CHANGES_MAX).catch((error: unknown) => {
      if (error instanceof OutboxBehind) throw new PeerFailure('unreachable', 'the outbox has moved on');
      throw error;
    });
    after = changes.at(-1)?.seq ?? after;
    const refs = changes.flatMap((change) =>
      change.op === 'upsert' && change.community === community ? [{ community, id: change.id }] : [],
    );
    const found = refs.length === 0 ? new Map() : await store.byIds(refs);
    for (const { id } of refs) {
      const row = found.get(factKey(community, id));
      if (row === undefined) continue;
      const event = JSON.parse(row.payload) as NostrEvent;
      if (!filters.some((filter) => matchFilter(filter, asMatched(event, row.bound)))) continue;
      if (!transfer.isFromPeer(id)) {
        await transfer.offer({ event, payload: row.payload, bound: row.bound });
        watching.onLive?.(event, 'up');
      }
    }
    if (changes.length < CHANGES_MAX) await delay(POLL_MS, undefined, { signal }).catch(() => undefined);
  }
}

function never(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}
