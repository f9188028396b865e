/**
 * How busy topics are, and what a changed policy would purge, along the partitions of a topic. Activity
 * counts entries of the index and reads no event, so it is approximate: an entry may be left of an event that
 * is no longer served.
 */
import { topicsOf } from '../../../topics/rules.js';
import { type PolicyChange, PolicySums } from '../../rules/policy-preview.js';
import { ages, DAY_MS } from '../../rules/retention.js';
import {
  type ActivityOf,
  type BoundedPreview,
  POST_KINDS,
  POSTS_COUNTED_MAX,
  type TopicActivity,
  WEEK_DAYS,
} from '../../stored-events.js';
import { eachOf } from '../client.js';
import { type Entry, eventOf } from '../items.js';
import { type Placed, partitions, placeOf } from '../keys.js';
import { isVanished, type Reading, served } from '../read/find.js';
import { type Plan, RisingScan, Scan } from '../read/scans.js';

/** Entries of one topic that are looked at. */
const ENTRIES_MAX = 2_000;
const PORTION = 100;
const TOPICS_AT_ONCE = 4;

const planOf = (community: number, topic: string): Plan => ({
  partitions: partitions.tag(community, 't', topic).map((pk) => ({ pk, of: 'index' as const })),
  lags: false,
});

export async function topicActivity(
  { db, marks }: Pick<Reading, 'db' | 'marks'>,
  { community, topics, now }: ActivityOf,
): Promise<Map<string, TopicActivity>> {
  const pending = await marks.of(community);
  const isShown = ({ author, sk }: Entry) =>
    !pending.some(({ pubkey, until }) => pubkey === author && placeOf(sk).createdAt <= until);
  const found = new Map<string, TopicActivity>();
  await eachOf(topics, TOPICS_AT_ONCE, async (topic) => {
    const times = await postTimes(new Scan(db, planOf(community, topic), {}, PORTION), isShown, now);
    const since = (days: number) => Math.floor((now - days * DAY_MS) / 1_000);
    found.set(topic, {
      postsDay: times.filter((time) => time >= since(1)).length,
      postsWeek: times.filter((time) => time >= since(WEEK_DAYS)).length,
      lastPostAt: times[0] ?? null,
    });
  });
  return found;
}

/** Of the newest posts of the last week, and of the one before them. */
async function postTimes(scan: Scan, isShown: (entry: Entry) => boolean, now: number): Promise<number[]> {
  const times: number[] = [];
  const since = Math.floor((now - WEEK_DAYS * DAY_MS) / 1_000);
  for (let looked = 0; looked < ENTRIES_MAX && times.length < POSTS_COUNTED_MAX; ) {
    const entries = await scan.next(PORTION);
    if (entries.length === 0) break;
    looked += entries.length;
    for (const entry of entries)
      if (POST_KINDS.has(entry.kind) && isShown(entry)) times.push(placeOf(entry.sk).createdAt);
    const last = times.at(-1);
    if (last !== undefined && last < since) break;
  }
  return times.slice(0, POSTS_COUNTED_MAX);
}

// ── Policies ───────────────────────────────────────────────────────────────────────────────────────────────

/** Events that a preview reads, each of which costs a unit, and its time. */
const LOOKED_MAX = 10_000;
const MS_MAX = 5_000;

/** The oldest by their own time, which is nearly the order of arrival. */
export async function previewTopic(
  { db, marks }: Pick<Reading, 'db' | 'marks'>,
  change: PolicyChange & { readonly community: number },
): Promise<BoundedPreview> {
  const { community, topic } = change;
  const began = performance.now();
  const scan = new RisingScan(db, planOf(community, topic), { since: 0, until: Number.MAX_SAFE_INTEGER });
  const pending = await marks.of(community);
  const held: { topics: readonly string[]; ingestedAt: number; bytes: number }[] = [];
  let places: Placed[] = [];
  let looked = 0;
  const read = async (): Promise<void> => {
    for (const item of await served(db, community, places))
      if (!isVanished(item, pending))
        held.push({
          topics: topicsOf(eventOf(item)),
          ingestedAt: item.ingested_at,
          bytes: Buffer.byteLength(item.payload),
        });
    places = [];
  };
  let complete = false;
  while (looked < LOOKED_MAX && performance.now() - began < MS_MAX) {
    const second = await scan.nextSecond();
    if (second === undefined) {
      complete = true;
      break;
    }
    looked += second.length;
    places.push(...second.filter(({ kind }) => ages(kind)));
    if (places.length >= PORTION) await read();
  }
  await read();
  const sums = new PolicySums(change);
  for (const one of held.sort((a, b) => a.ingestedAt - b.ingestedAt)) sums.add(one);
  return { ...sums.result(), complete };
}
