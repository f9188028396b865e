/**
 * The rules of trust. Pure. There are two claims about a person, each computed from its own grounds within a
 * window of days. `report-based`: how many established members have reported them, and labels of moderators.
 * `communication-density`: with how many established members they talk in public. A score is 0 to 1. A rank
 * (NIP-85) is 0 to 100, and higher is better for both claims.
 *
 * Both keep this rule: fewer than `trust.establishedMin` established members together move no score by more
 * than a tenth.
 */

import type { Settings } from '../communities/rules-settings.js';
import { type AccessRules, publicTopicsOf, publicView, sees } from '../events/rules/access.js';
import { isHex64, type NostrEvent } from '../events/rules/event.js';
import { DAY_MS } from '../events/rules/retention.js';
import type { MatchedEvent } from '../topics/rules.js';

export const CLAIMS = ['report-based', 'communication-density'] as const;
export type Claim = (typeof CLAIMS)[number];

/** NIP-85: an assertion about a person. */
export const KIND_ASSERTION = 30_382;

/** People that one event makes contact with; the rest is ignored, so that one event cannot fill the table. */
export const CONTACTS_MAX = 50;

/** How long ago a key must have been seen first before its ties establish it. */
export const ESTABLISHED_DAYS = 30;
/** The weight, in both directions, of a full tie: for example three notes to one person on three days. */
export const TIE_FULL = 3;
/**
 * Ties give standing one day after they were found, so that the result of a pass does not depend on its
 * order.
 */
export const STANDS_AFTER_MS = DAY_MS;
/** Somebody at this risk or more is granted no standing. */
export const RISK_MAX = 0.5;
/** How much fewer established members than `trust.establishedMin` can move a score. */
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

// ── Grounds ────────────────────────────────────────────────────────────────────────────────────────────────

/** The time of a ground in milliseconds; never later than its arrival. */
export function groundTime(createdAtSeconds: number, ingestedAtMs: number): number {
  return Math.min(createdAtSeconds * 1_000, ingestedAtMs);
}

/** Whether anyone may read the event. */
export function isPublic(event: MatchedEvent, rules: AccessRules): boolean {
  return sees(publicView(rules), event);
}

export function makesContacts(kind: number, settings: TrustSettings): boolean {
  return Object.hasOwn(settings['trust.kindWeights'], String(kind));
}

/**
 * The people that the event names, each once and never its author. `shared` is their full number: the weight
 * of a contact is divided by it.
 */
export function namedBy({ pubkey, tags }: NostrEvent): { named: string[]; shared: number } {
  const named = new Set<string>();
  for (const [name, value] of tags) if (name === 'p' && isHex64(value) && value !== pubkey) named.add(value);
  return { named: [...named].slice(0, CONTACTS_MAX), shared: named.size };
}

/** The weight of one contact, rounded to a thousandth. */
export function contactWeight(kind: number, shared: number, settings: TrustSettings): number {
  return rounded((settings['trust.kindWeights'][String(kind)] ?? 0) / shared, 3);
}

/** Grounds after this time count. */
export function windowStart(now: number, settings: TrustSettings): number {
  return now - windowMs(settings);
}

export function windowMs(settings: TrustSettings): number {
  return settings['trust.windowDays'] * DAY_MS;
}

// ── Standing ───────────────────────────────────────────────────────────────────────────────────────────────

/**
 * The strength of a tie, 0 to 1, by the lesser of the two directions. Each direction is the sum of the
 * greatest contact of every day.
 */
export function tieOf(given: number, got: number): number {
  return rounded(Math.min(1, Math.min(given, got) / TIE_FULL), 3);
}

/** A key that was first seen up to this time belongs to a founder. */
export function foundedUntil(createdAtMs: number, settings: TrustSettings): number {
  const days = settings['trust.foundingDays'];
  return days === 0 ? -1 : createdAtMs + days * DAY_MS;
}

/** What is known about a reporter when a report arrives. */
export interface Reporter {
  /** Undefined for a key that has never been seen here. */
  readonly seenForMs: number | undefined;
  /** The sum of the strengths of their ties with people of standing. */
  readonly ties: number;
  /** They are an operator, or an operator approved them. */
  readonly approved: boolean;
  /** The report-based score of the reporter. */
  readonly risk: number;
}

/** Whether the key is old enough to be established by its ties. */
export function isOldEnough(seenForMs: number | undefined): boolean {
  return seenForMs !== undefined && seenForMs >= ESTABLISHED_DAYS * DAY_MS;
}

export function hasTies(ties: number, settings: TrustSettings): boolean {
  return ties >= settings['trust.establishedMin'];
}

/**
 * The weight of a report, 0 to 1. Age alone is cheap for an attacker, and so are ties with other new keys:
 * somebody is established by talking with people of standing, in both directions and on several days. An
 * operator's approval replaces this. The reporter's own risk lowers the weight.
 */
export function standingOf({ seenForMs, ties, approved, risk }: Reporter, settings: TrustSettings): number {
  const byTies =
    settings['trust.reporters'] === 'established' && isOldEnough(seenForMs) && hasTies(ties, settings);
  return approved || byTies ? rounded(1 - risk, 3) : 0;
}

// ── Scores ─────────────────────────────────────────────────────────────────────────────────────────────────

/** The sums that a score is computed from. */
export interface ScoreWeights {
  /** Of reports, one per reporter; or of ties, at most one per person. */
  readonly weight: number;
  /** Labels of moderators, which count without reports. */
  readonly labels: number;
}

/** The first `trust.establishedMin` people together give a tenth, the others up to `full` give the rest. */
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

/**
 * What scores and assertions depend on apart from grounds. When it changes, all scores are computed again.
 */
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

// ── Assertions ─────────────────────────────────────────────────────────────────────────────────────────────

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
 * The minimum time between two assertions of one claim about one person, because one note can change the
 * ranks of 50 people. A report-based rank that has fallen by `fall` or more waits only `fallMs`.
 */
export const ASSERTION_GAP = { usualMs: 600_000, fallMs: 30_000, fall: 20 } as const;

/** After this time an assertion that is still true is published again. */
export function renewalMs(settings: TrustSettings): number {
  return settings['trust.assertionDays'] * DAY_MS * 0.75;
}
