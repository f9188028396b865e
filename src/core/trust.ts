/**
 * The rules of trust. Pure. Two claims about a person, each from its own grounds within a window of days:
 * report-based, how many with standing have reported them, and labels; communication density, how much they talk with others where
 * anyone may read it. A score is 0 to 1; a rank (NIP-85) is 0 to 100, and higher is better in both.
 */
import { type AccessRules, publicTopicsOf, publicView, sees } from './access.js';
import { isHex64, type NostrEvent } from './event.js';
import { DAY_MS } from './retention.js';
import type { Settings } from './settings.js';
import type { MatchedEvent } from './topic.js';

export const CLAIMS = ['report-based', 'communication-density'] as const;
export type Claim = (typeof CLAIMS)[number];

/** NIP-85: an assertion about a person. */
export const KIND_ASSERTION = 30_382;

/** People that one event is a contact with; the rest is ignored, so that an event cannot fill the list. */
export const CONTACTS_MAX = 50;

/** A key that is new here has no standing for a week, and all that its age gives after a month. */
export const STANDING = { quietDays: 7, fullDays: 30, tiesFull: 5 } as const;

export type TrustSettings = Pick<
  Settings,
  | 'trust.windowDays'
  | 'trust.reportsFull'
  | 'trust.densityFull'
  | 'trust.kindWeights'
  | 'trust.reporters'
  | 'trust.assertionDays'
  | 'trust.publish'
>;

// ── Grounds ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** In milliseconds: nobody dates into the future. */
export function groundTime(createdAtSeconds: number, ingestedAtMs: number): number {
  return Math.min(createdAtSeconds * 1_000, ingestedAtMs);
}

/** What anyone may read. */
export function isPublic(event: MatchedEvent, rules: AccessRules): boolean {
  return sees(publicView(rules), event);
}

export function makesContacts(kind: number, settings: TrustSettings): boolean {
  return Object.hasOwn(settings['trust.kindWeights'], String(kind));
}

/** Whom it names, each once and never its author. */
export function namedBy({ pubkey, tags }: NostrEvent): string[] {
  const named = new Set<string>();
  for (const [name, value] of tags) {
    if (named.size >= CONTACTS_MAX) break;
    if (name === 'p' && isHex64(value) && value !== pubkey) named.add(value);
  }
  return [...named];
}

/** Grounds after this count. */
export function windowStart(now: number, settings: TrustSettings): number {
  return now - windowMs(settings);
}

export function windowMs(settings: TrustSettings): number {
  return settings['trust.windowDays'] * DAY_MS;
}

/** So many of the newest contacts fill the density whatever their kinds: older ones need not be read. */
export function contactsNeeded(settings: TrustSettings): number {
  const least = Math.min(...Object.values(settings['trust.kindWeights']), Number.POSITIVE_INFINITY);
  return Math.ceil(settings['trust.densityFull'] / least);
}

// ── Standing ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** What is known of a reporter when a report comes. */
export interface Reporter {
  /** Undefined for a key of which nothing has been seen here. */
  readonly seenForMs: number | undefined;
  /** How many others, themselves seen here for the whole time, named them within the window. */
  readonly ties: number;
  /** An operator let them in. */
  readonly approved: boolean;
  /** Of their own. */
  readonly risk: number;
}

/**
 * The weight of a report, 0 to 1. Age alone is cheap, and so are friends who are new as well: only those who were here for long give
 * ties. An operator's approval stands for both. Who is at risk is believed less.
 */
export function standingOf({ seenForMs, ties, approved, risk }: Reporter, settings: TrustSettings): number {
  const { quietDays, fullDays, tiesFull } = STANDING;
  if (settings['trust.reporters'] === 'approved' && !approved) return 0;
  const days = (seenForMs ?? 0) / DAY_MS;
  const age = within01((days - quietDays) / (fullDays - quietDays));
  const grown = approved ? 1 : age * Math.min(1, ties / tiesFull);
  return rounded(grown * (1 - risk), 3);
}

// ── Scores ────────────────────────────────────────────────────────────────────────────────────────────────────────

/** `weight`: of the reports, one for each reporter, and of the labels, one for each. */
export function riskOf(weight: number, settings: TrustSettings): number {
  return rounded(within01(weight / settings['trust.reportsFull']), 6);
}

export function densityOf(weight: number, settings: TrustSettings): number {
  return rounded(within01(weight / settings['trust.densityFull']), 6);
}

export function scoreOf(claim: Claim, weight: number, settings: TrustSettings): number {
  return claim === 'report-based' ? riskOf(weight, settings) : densityOf(weight, settings);
}

export function rankOf(claim: Claim, score: number): number {
  return Math.round(100 * (claim === 'report-based' ? 1 - score : score));
}

/** What scores and assertions depend on beside the grounds: where it is another, all are computed anew. */
export function scoringRules(rules: AccessRules, keys: readonly (string | undefined)[]): string {
  const { settings } = rules;
  return JSON.stringify([
    keys.map((key) => key ?? null),
    settings['trust.windowDays'],
    settings['trust.reportsFull'],
    settings['trust.densityFull'],
    settings['trust.kindWeights'],
    settings['trust.assertionDays'],
    settings['trust.publish'],
    publicTopicsOf(rules),
  ]);
}

const within01 = (value: number) => Math.min(1, Math.max(0, value));
const rounded = (value: number, digits: number) => Math.round(value * 10 ** digits) / 10 ** digits;

// ── Assertions ────────────────────────────────────────────────────────────────────────────────────────────────────

export interface Assertion {
  readonly subject: string;
  readonly rank: number;
  /** Seconds. */
  readonly at: number;
}

/** The event before it is signed. */
export function assertionOf({ subject, rank, at }: Assertion, settings: TrustSettings) {
  const expiration = at + (settings['trust.assertionDays'] * DAY_MS) / 1_000;
  const tags = [
    ['d', subject],
    ['rank', String(rank)],
    ['expiration', String(expiration)],
  ];
  return { kind: KIND_ASSERTION, created_at: at, tags, content: '' };
}

/**
 * The least time between two assertions of one claim about one person: one note can change the ranks of 50. A report-based rank that has
 * fallen by much does not wait as long.
 */
export const ASSERTION_GAP = { usualMs: 600_000, fallMs: 30_000, fall: 20 } as const;

/** An assertion that is still true is made again when so much time has passed. */
export function renewalMs(settings: TrustSettings): number {
  return settings['trust.assertionDays'] * DAY_MS * 0.75;
}
