/**
 * Reports (NIP-56): what an event of kind 1984 reports, and the words that reports share however they arrive. Pure.
 * The reports of an event live as long as it does; only time and want of space do not take them along.
 */
import { isHex64, type NostrEvent } from './event.js';
import type { Hidden } from './hidden.js';

export const KIND_REPORT = 1_984;
export const REPORT_REASONS = [
  'nudity',
  'malware',
  'profanity',
  'illegal',
  'spam',
  'impersonation',
  'other',
] as const;
export type ReportReason = (typeof REPORT_REASONS)[number];

/** Of one event; the rest is ignored, so that an event cannot fill the list. */
export const REPORT_TARGETS_MAX = 20;
export const REPORT_COMMENT_MAX = 2_000;

/** What is reported: an event, with its author if that is told, or a person. */
export interface Reported {
  readonly event: string | undefined;
  readonly pubkey: string | undefined;
  readonly reason: ReportReason;
}

/** Its author withdrew it, or a moderator took it out. What has only aged out was meant all the same. */
export const WITHDRAWS: Record<Hidden, boolean> = {
  deleted: true,
  expired: true,
  vanished: true,
  removed: true,
  erased: true,
  superseded: false,
  retention: false,
  capacity: false,
  withheld: false,
};

/**
 * One for each `e`, and for each `p` that has a type. A `p` without one says whose event it is, or who is concerned; only where
 * nothing else is named is it the target itself.
 */
export function reportedBy({ tags }: NostrEvent): Reported[] {
  const named = tags.filter(([name, value]) => (name === 'e' || name === 'p') && isHex64(value));
  const typed = named.filter(([name, , type]) => name === 'e' || (type ?? '') !== '');
  const authors = authorsBeside(named);
  const found = new Map<string, Reported>();
  for (const tag of typed.length > 0 ? typed : named) {
    if (found.size >= REPORT_TARGETS_MAX) break;
    const [name, value, type] = tag;
    const event = name === 'e' ? value : undefined;
    const pubkey = name === 'e' ? authors.get(tag) : value;
    const key = `${event}/${pubkey}`;
    if (!found.has(key)) found.set(key, { event, pubkey, reason: reasonOf(type) });
  }
  return [...found.values()];
}

/** For each `e` the `p` that follows it, or else the last one before it. */
function authorsBeside(
  named: readonly (readonly string[])[],
): ReadonlyMap<readonly string[], string | undefined> {
  const authors = new Map<readonly string[], string | undefined>();
  let beside: string | undefined = named.findLast(([name]) => name === 'p')?.[1];
  for (const tag of named.toReversed()) {
    if (tag[0] === 'p') beside = tag[1];
    else authors.set(tag, beside);
  }
  return authors;
}

function reasonOf(type: string | undefined): ReportReason {
  return REPORT_REASONS.find((reason) => reason === type) ?? 'other';
}

/** The content as the database can keep it. */
export function commentOf({ content }: NostrEvent): string {
  const cut = content.slice(0, REPORT_COMMENT_MAX);
  // A pair is not cut in two.
  const whole = content.length > cut.length ? cut.replace(/[\ud800-\udbff]$/, '') : cut;
  return whole.toWellFormed().replaceAll('\u0000', '\ufffd');
}
