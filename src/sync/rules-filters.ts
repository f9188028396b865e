/** Which filters a sync uses. Pure. */
import type { Settings } from '../communities/rules-settings.js';
import { KIND_DELETION, KIND_VANISH } from '../events/rules/classify.js';
import { isAmong, type KindEntry } from '../events/rules/kinds.js';
import type { TopicRule } from '../events/rules/retention.js';

/** A filter of NIP-01 as it is sent. */
export interface WireFilter {
  readonly kinds?: readonly number[];
  readonly since?: number;
  readonly '#t'?: readonly string[];
}

interface Synced {
  readonly settings: Settings;
  readonly topics: ReadonlyMap<string, TopicRule>;
}

interface Asked {
  readonly topics?: readonly string[] | undefined;
  readonly since?: number | undefined;
}

/** A filter has room for few values, and the kinds in use are at the beginning of their range. */
const KINDS_OF_RANGE_MAX = 500;

/**
 * Deletion requests before the events of a topic: then an event that was deleted at the peer is not fetched
 * and not sent back. They are found by the topics of their targets only if the filter names their kind
 * (topics/rules.ts).
 *
 * Without topics: everything; or, where every filter must name a topic, all carried topics and the kinds that
 * need none.
 */
export function filtersFor({ settings, topics: known }: Synced, { topics, since }: Asked): WireFilter[] {
  const from = since === undefined ? {} : { since };
  const ofTopic = (topic: string): WireFilter[] => [
    { kinds: [KIND_DELETION], '#t': [topic], ...from },
    { '#t': [topic], ...from },
  ];
  if (topics !== undefined) return topics.flatMap(ofTopic);
  if (settings['topic.mode'] !== 'required') return [{ kinds: [KIND_DELETION], ...from }, from];
  const carried = [...known].filter(([, { enabled }]) => enabled).map(([topic]) => topic);
  return [{ kinds: freeKinds(settings), ...from }, ...carried.flatMap(ofTopic)];
}

function freeKinds(settings: Settings): number[] {
  const hidden = settings['auth.privateKinds'];
  const kinds = new Set([...settings['topic.freeKinds'].flatMap(firstKinds)]);
  return [...kinds].filter((kind) => kind !== KIND_VANISH && !isAmong(kind, hidden)).sort((a, b) => a - b);
}

function firstKinds(entry: KindEntry): number[] {
  if (typeof entry === 'number') return [entry];
  const [from, to] = entry.split('-').map(Number) as [number, number];
  return Array.from({ length: Math.min(to - from + 1, KINDS_OF_RANGE_MAX) }, (_, at) => from + at);
}
