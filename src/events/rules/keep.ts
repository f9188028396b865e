/**
 * The `keep` bucket of a stored event: the first partition level of `events`. Events that are kept equally
 * long are stored together and can be dropped together. Pure. The numbers are in the database and never
 * change.
 */
import { classify, KIND_DELETION, KIND_VANISH } from './classify.js';

export const Keep = {
  /** The effective version of a replaceable or addressable event. */
  current: 0,
  /** Deletion and vanish requests. */
  request: 1,
  /** Superseded versions; never served. */
  history: 2,
  /** Regular events, by retention steps: up to 30 days, up to 90, up to 365, for ever. */
  days30: 3,
  days90: 4,
  days365: 5,
  forever: 6,
} as const;
export type Keep = (typeof Keep)[keyof typeof Keep];

/** The steps of regular events with their longest retention, shortest first; 0 days means for ever. */
export const STEPS: readonly { readonly keep: Keep; readonly days: number }[] = [
  { keep: Keep.days30, days: 30 },
  { keep: Keep.days90, days: 90 },
  { keep: Keep.days365, days: 365 },
];
export const REGULAR_KEEPS: readonly Keep[] = [...STEPS.map((step) => step.keep), Keep.forever];

/** The step for events that are kept for this many days. */
export function stepOf(days: number): Keep {
  if (days === 0) return Keep.forever;
  return STEPS.find((step) => days <= step.days)?.keep ?? Keep.forever;
}

/** The bucket of an event of this kind; for a regular one, by the days that it is kept. */
export function keepOf(kind: number, days: number): Keep {
  if (kind === KIND_DELETION || kind === KIND_VANISH) return Keep.request;
  return classify(kind) === 'regular' ? stepOf(days) : Keep.current;
}

/** All buckets that can hold events of this kind. */
export function keepsOf(kind: number): readonly Keep[] {
  const keep = keepOf(kind, 0);
  return keep === Keep.forever ? REGULAR_KEEPS : [keep];
}
