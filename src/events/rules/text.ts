/**
 * Text handling: what PostgreSQL can store (no NUL, no lone surrogate), normalisation in linear time, and
 * HTML escaping. Pure.
 */

export function isStorable(value: unknown): boolean {
  if (typeof value === 'string') return value.isWellFormed() && !value.includes('\u0000');
  if (typeof value !== 'object' || value === null) return true;
  return Object.entries(value).every(([key, inner]) => isStorable(key) && isStorable(inner));
}

/** UAX #15, Stream-Safe Text Format: no word of any language has more combining marks in a row. */
const MARKS_IN_A_ROW_MAX = 30;
/** Runs that may be too long. The last two characters become marks when they are normalised. */
const MARKS = /[\p{M}\uff9e\uff9f]{8,}/gu;

/** Characters that are normalised in one step. */
const PIECE_LENGTH = 4_096;
/** A character that may combine with the one before it, or is the second half of a surrogate pair. */
const JOINS = /[\p{M}\uff9e\uff9f\u1160-\u11ff\udc00-\udfff]/u;

/**
 * NFKC in linear time. Ordering a run of marks takes quadratic time, so a run over the limit is cut off
 * first. The text is normalised piece by piece, and no more of it than needed: one character may become
 * eighteen.
 */
export function toNfkc(text: string, lengthMax = Number.POSITIVE_INFINITY): string {
  const bounded = text.replace(MARKS, firstMarks);
  let normalised = '';
  for (let from = 0; from < bounded.length && normalised.length < lengthMax; ) {
    let to = from + PIECE_LENGTH;
    while (to < bounded.length && to < from + 2 * PIECE_LENGTH && JOINS.test(bounded[to]!)) to += 1;
    normalised += bounded.slice(from, to).normalize('NFKC');
    from = to;
  }
  return normalised.slice(0, lengthMax);
}

function firstMarks(run: string): string {
  if (run.length <= MARKS_IN_A_ROW_MAX) return run;
  // By code point. A code point takes at most two code units.
  return [...run.slice(0, 2 * MARKS_IN_A_ROW_MAX)].slice(0, MARKS_IN_A_ROW_MAX).join('');
}

/** The longest run of combining marks, in code points; 0 where all are short. */
export function longestMarks(text: string): number {
  let longest = 0;
  for (const [run] of text.matchAll(MARKS)) longest = Math.max(longest, [...run].length);
  return longest;
}

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
