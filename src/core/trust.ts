/**
 * The rules of trust. Pure. Two claims about a person, each from its own grounds within a window of days:
 * report-based, how many established members have reported them, and labels; communication density, with how many established members
 * they talk where anyone may read it. A score is 0 to 1; a rank (NIP-85) is 0 to 100, and higher is better in both.
 *
 * The rule that both keep: fewer than `trust.establishedMin` established members together move nobody's score by more than a tenth.
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

/** How long a key must have been seen here before it is established by its ties. */
export const ESTABLISHED_DAYS = 30;
/** A tie is full when each has named the other so much, a day counting once: three notes to them alone, on three days. */
export const TIE_FULL = 3;
/** Ties give standing from the day after they were found, so that one look over everybody depends on no order. */
export const STANDS_AFTER_MS = DAY_MS;
/** One who is at this risk or more gives others no standing. */
export const RISK_MAX = 0.5;
/** What fewer established members than `trust.establishedMin` can move. */
const FEW = 0.1;

export type TrustSettings = Pick<
  Settings,
  | 'trust.windowDays'
  | 'trust.reportsFull'
  | 'trust.densityFull'
  | 'trust.establishedMin'
  | 'trust.foundingDays'
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

/** Whom it names, each once and never its author. What it says to many it says to each of them only in part: `shared` are all of them. */
export function namedBy({ pubkey, tags }: NostrEvent): { named: string[]; shared: number } {
  const named = new Set<string>();
  for (const [name, value] of tags) if (name === 'p' && isHex64(value) && value !== pubkey) named.add(value);
  return { named: [...named].slice(0, CONTACTS_MAX), shared: named.size };
}

/** What one contact weighs, to the thousandth. */
export function contactWeight(kind: number, shared: number, settings: TrustSettings): number {
  return rounded((settings['trust.kindWeights'][String(kind)] ?? 0) / shared, 3);
}

/** Grounds after this count. */
export function windowStart(now: number, settings: TrustSettings): number {
  return now - windowMs(settings);
}

export function windowMs(settings: TrustSettings): number {
  return settings['trust.windowDays'] * DAY_MS;
}

// ── Standing ──────────────────────────────────────────────────────────────────────────────────────────────────────

/** How strong a tie is, 0 to 1: by the lesser of what they said to each other, each the sum of the greatest contact of every day. */
export function tieOf(given: number, got: number): number {
  return rounded(Math.min(1, Math.min(given, got) / TIE_FULL), 3);
}

/** Up to when a key had to be first seen to be a founder's. */
export function foundedUntil(createdAtMs: number, settings: TrustSettings): number {
  const days = settings['trust.foundingDays'];
  return days === 0 ? -1 : createdAtMs + days * DAY_MS;
}

/** What is known of a reporter when a report comes. */
export interface Reporter {
  /** Undefined for a key of which nothing has been seen here. */
  readonly seenForMs: number | undefined;
  /** The strengths of their ties with people of standing, added up. */
  readonly ties: number;
  /** An operator let them in, or they are one. */
  readonly approved: boolean;
  /** Of their own. */
  readonly risk: number;
}

/** Has the key been here for long enough to be established by its ties? */
export function isOldEnough(seenForMs: number | undefined): boolean {
  return seenForMs !== undefined && seenForMs >= ESTABLISHED_DAYS * DAY_MS;
}

export function hasTies(ties: number, settings: TrustSettings): boolean {
  return ties >= settings['trust.establishedMin'];
}

/**
 * The weight of a report, 0 to 1. Age alone is cheap, and so are friends who are new as well: somebody is established by talking with
 * others of standing, in both directions and on several days. An operator's approval stands for it. Who is at risk is believed less.
 */
export function standingOf({ seenForMs, ties, approved, risk }: Reporter, settings: TrustSettings): number {
  const byTies =
    settings['trust.reporters'] === 'established' && isOldEnough(seenForMs) && hasTies(ties, settings);
  return approved || byTies ? rounded(1 - risk, 3) : 0;
}

// ── Scores ────────────────────────────────────────────────────────────────────────────────────────────────────────

/** What a score is made of. */
export interface ScoreWeights {
  /** Of reports, one for each reporter, or of ties, one for each person at most. */
  readonly weight: number;
  /** The word of moderators: nobody else's is needed. */
  readonly labels: number;
}

/** The first `trust.establishedMin` of them move a tenth together, the others up to `full` the rest. */
function shareOf(weight: number, full: number, settings: TrustSettings): number {
  const few = settings['trust.establishedMin'];
  return FEW * within01(weight / few) + (1 - FEW) * within01((weight - few) / Math.max(1, full - few));
}

export function scoreOf(claim: Claim, { weight, labels }: ScoreWeights, settings: TrustSettings): number {
  const full = settings[claim === 'report-based' ? 'trust.reportsFull' : 'trust.densityFull'];
  return rounded(within01(shareOf(weight, full, settings) + labels / full), 6);
}

export function rankOf(claim: Claim, score: number): number {
  return Math.round(100 * (claim === 'report-based' ? 1 - score : score));
}

/** What scores and assertions depend on beside the grounds: where it is another, all are computed again. */
export function scoringRules(rules: AccessRules, keys: readonly (string | undefined)[]): string {
  const { settings } = rules;
  return JSON.stringify([
    keys.map((key) => key ?? null),
    settings['trust.windowDays'],
    settings['trust.reportsFull'],
    settings['trust.densityFull'],
    settings['trust.establishedMin'],
    settings['trust.foundingDays'],
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
