/** What the tables of the database hold, and when the months of events are dropped. Pure. */
import type { Settings } from '../communities/rules-settings.js';
import { Keep, REGULAR_KEEPS, STEPS, stepOf } from '../events/rules/keep.js';
import { DAY_MS, type Retention } from '../events/rules/retention.js';

export const STORAGE_GROUPS = [
  'events',
  'tags',
  'ids',
  'outbox',
  'search',
  'trust',
  'audit',
  'other',
] as const;
export type StorageGroup = (typeof STORAGE_GROUPS)[number];

const GROUPS: readonly (readonly [RegExp, StorageGroup])[] = [
  [/^events_outbox/, 'outbox'],
  [/^events(_|$)/, 'events'],
  [/^event_tags/, 'tags'],
  [/^(event_dedupe|event_heads|deletion_|history_deletions|vanish_marks)/, 'ids'],
  [/^(post_search_|search_)/, 'search'],
  [/^trust_/, 'trust'],
  [/^audit_log/, 'audit'],
];

/** What a table belongs to, by its name. */
export function groupOf(table: string): StorageGroup {
  return GROUPS.find(([fits]) => fits.test(table))?.[1] ?? 'other';
}

export const BUCKETS = Object.keys(Keep) as readonly (keyof typeof Keep)[];
export type Bucket = keyof typeof Keep;

/** The bucket of a partition of `events` or `event_tags`, and the end of its name. */
export function bucketOf(table: string): { readonly bucket: Bucket; readonly suffix: string } | undefined {
  const match = /^(?:events|event_tags)_([a-z]+\d*)(?:_(all|\d{4}_\d{2}))?$/.exec(table);
  const bucket = BUCKETS.find((name) => name === match?.[1]);
  return bucket === undefined ? undefined : { bucket, suffix: match?.[2] ?? '' };
}

/** The rules of one community that decide when a month is empty. */
export interface DropRules extends Retention {
  readonly settings: Pick<Settings, 'retention.regularDays' | 'retention.historyDays'>;
}

/**
 * When a month of a bucket is dropped at the earliest, in milliseconds: after the longest retention of any
 * event in it. Null: never, as far as the current rules say.
 */
export function dropsAt(bucket: Bucket, monthEnd: number, rules: readonly DropRules[]): number | null {
  const days = bucket === 'history' ? historyDays(rules) : regularDays(Keep[bucket], rules);
  return days === null ? null : monthEnd + days * DAY_MS;
}

function historyDays(rules: readonly DropRules[]): number | null {
  const days = rules.map(({ settings }) => settings['retention.historyDays']);
  return days.some((one) => one === 'forever') ? null : Math.max(0, ...days.map(Number));
}

/** The longest days of the rules that use this bucket. Without one, its rows move to another bucket. */
function regularDays(keep: Keep, rules: readonly DropRules[]): number | null {
  if (!REGULAR_KEEPS.includes(keep) || !STEPS.some((step) => step.keep === keep)) return null;
  const all = rules.flatMap(({ settings, topics }) => [
    settings['retention.regularDays'],
    ...[...topics.values()].flatMap(({ policy }) => policy.retentionDays ?? []),
  ]);
  return Math.max(0, ...all.filter((days) => stepOf(days) === keep));
}
