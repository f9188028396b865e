/**
 * Reports (NIP-56): the targets of an event of kind 1984, and the reasons that all reports use. Pure. A
 * report by an event is withdrawn with that event, except when the event is purged by retention or capacity.
 */
import { isHex64, type NostrEvent } from '../events/rules/event.js';
import type { Hidden } from '../events/rules/hidden.js';

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

/** Targets of one event. The rest is ignored, so that one event cannot fill the list. */
export const REPORT_TARGETS_MAX = 20;
export const REPORT_COMMENT_MAX = 2_000;

/** The target of a report: an event, with its author if known, or a person. */
export interface Reported {
  readonly event: string | undefined;
  readonly pubkey: string | undefined;
  readonly reason: ReportReason;
}

/**
 * True when the author or a moderator withdrew the event. A report stays when its event is only past
 * retention.
 */
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
 * One target for each `e`, and for each `p` with a type. A `p` without a type names the author of an event or
 * somebody involved. It is a target only when the event names no other.
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

/** For each `e` the `p` after it, else the last one before it. */
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

/** The content, in a form that the database can store. */
export function commentOf({ content }: NostrEvent): string {
  const cut = content.slice(0, REPORT_COMMENT_MAX);
  // Does not cut a surrogate pair in two.
  const whole = content.length > cut.length ? cut.replace(/[\ud800-\udbff]$/, '') : cut;
  return whole.toWellFormed().replaceAll('\u0000', '\ufffd');
}
