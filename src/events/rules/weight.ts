/**
 * The weight of an event: rates are charged by it, and the lane is shared by it. Pure. An ordinary note
 * weighs 1. Each tag that filters can query is a row of its own, and rows take most of the time: 400 events
 * of 1,990 tags keep the lane busy for 6 seconds, 400 ordinary events for a tenth of a second.
 */

/** This many tags or bytes weigh 1. */
export const TAGS_PER_WEIGHT = 20;
export const BYTES_PER_WEIGHT = 4_096;

/**
 * A whole number. A follow list of 5,000 weighs 250, well within the burst of a client that sends it now and
 * then.
 */
export function weightOf(tags: number, bytes: number): number {
  return Math.max(1, Math.ceil(tags / TAGS_PER_WEIGHT), Math.ceil(bytes / BYTES_PER_WEIGHT));
}

/**
 * More than 200 tags, or more than 40 kB: such an event takes as long as tens or hundreds of others. The lane
 * writes it separately.
 */
const LIGHT_WEIGHT_MAX = 10;

export function isHeavy(weight: number): boolean {
  return weight > LIGHT_WEIGHT_MAX;
}

/** The weight of unparsed input, before its shape is checked. */
export function weightOfInput(input: unknown, bytes: number): number {
  const { tags } = (input ?? {}) as { tags?: unknown };
  return weightOf(Array.isArray(tags) ? tags.length : 0, bytes);
}
