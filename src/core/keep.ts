/**
 * The `keep` bucket of a stored event : the first level of the partitions of `events`,
 * so that what is kept equally long lies together and can be dropped together.
 * The numbers are in the database; they never change.
 */
import { classify, KIND_DELETION, KIND_VANISH } from './classify.js';

export const Keep = {
  /** The effective version of a replaceable or addressable event. */
  current: 0,
  /** Deletion and vanish requests. */
  request: 1,
  /** Superseded versions; never served. */
  history: 2,
  /** Regular events of the default retention. */
  days30: 3,
} as const;
export type Keep = (typeof Keep)[keyof typeof Keep];

export function keepOf(kind: number): Keep {
  if (kind === KIND_DELETION || kind === KIND_VANISH) return Keep.request;
  return classify(kind) === 'regular' ? Keep.days30 : Keep.current;
}
