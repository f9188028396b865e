/**
 * The score of a match: by its words first, then raised by freshness and by the number of references to it.
 * Pure.
 */
import type { Settings } from '../communities/rules-settings.js';

export interface Measured {
  /** How well its words match. */
  readonly text: number;
  /** Number of events that refer to it (`e`) and that the client may see, up to REFERENCES_MAX. */
  readonly references: number;
}

export type ScoreSettings = Pick<
  Settings,
  'search.freshnessDays' | 'search.freshnessWeight' | 'search.popularityWeight'
>;

const DAY_SECONDS = 86_400;
/** References are counted up to here. */
export const REFERENCES_MAX = 100;
const DECIMALS = 1_000_000;

/** Rounded, so that a score in a cursor equals the computed score. */
export function scoreOf(
  { text, references }: Measured,
  createdAt: number,
  asOf: number,
  settings: ScoreSettings,
): number {
  const ageDays = Math.max(0, asOf - createdAt) / DAY_SECONDS;
  const freshness = 0.5 ** (ageDays / settings['search.freshnessDays']);
  const popularity = Math.log(1 + Math.min(references, REFERENCES_MAX)) / Math.log(1 + REFERENCES_MAX);
  const raised =
    1 + settings['search.freshnessWeight'] * freshness + settings['search.popularityWeight'] * popularity;
  return Math.round(text * raised * DECIMALS) / DECIMALS;
}
