/**
 * A naive model of trust in memory: every query scans everything. The simulation of docs/trust.md runs on it,
 * and tests compare the database with it.
 */
import { settingsFrom } from '../src/communities/rules-settings.js';
import {
  contactWeight,
  ESTABLISHED_DAYS,
  foundedUntil,
  hasTies,
  isOldEnough,
  RISK_MAX,
  STANDS_AFTER_MS,
  scoreOf,
  standingOf,
  type TrustSettings,
  tieOf,
  windowStart,
} from '../src/trust/rules.js';

const DAY_MS = 86_400_000;

export interface ModelContact {
  readonly author: string;
  readonly named: string;
  readonly kind: number;
  readonly at: number;
  /** How many people the note names. */
  readonly shared?: number;
}

export interface ModelReport {
  readonly reporter: string;
  readonly subject: string;
  readonly at: number;
  readonly weight: number;
}

export interface ModelLabel {
  readonly subject: string;
  readonly at: number;
  /** Milliseconds. */
  readonly lapsesAt: number;
  /** Topics of the labelled event; empty where a person is labelled. */
  readonly topics: readonly string[];
  withdrawn: boolean;
}

export class TrustModel {
  readonly firstSeen = new Map<string, number>();
  readonly standsFrom = new Map<string, number>();
  readonly reports: ModelReport[] = [];
  readonly labels: ModelLabel[] = [];
  readonly approved = new Set<string>();
  /** By author, then by the person they named. */
  private readonly contacts = new Map<string, Map<string, ModelContact[]>>();
  contactCount = 0;
  /** Undefined where anyone may read every topic. */
  publicTopics: Set<string> | undefined;

  constructor(
    readonly settings: TrustSettings = settingsFrom(new Map()),
    /** When the community was created. */
    readonly createdAt = 0,
  ) {}

  see(pubkey: string, at: number): void {
    this.firstSeen.set(pubkey, Math.min(at, this.firstSeen.get(pubkey) ?? at));
  }

  contact(contact: ModelContact): void {
    const { author, named } = contact;
    if (author === named) return;
    const own = this.contacts.get(author) ?? new Map<string, ModelContact[]>();
    this.contacts.set(author, own.set(named, [...(own.get(named) ?? []), contact]));
    this.contactCount += 1;
  }

  report(reporter: string, subject: string, at: number, cameAt = at): void {
    if (reporter === subject) return;
    this.reports.push({ reporter, subject, at, weight: this.standing(reporter, cameAt) });
  }

  standing(reporter: string, now: number): number {
    const seen = this.firstSeen.get(reporter);
    const known = {
      seenForMs: seen === undefined ? undefined : now - seen,
      ties: this.ties(reporter, now),
      approved: this.approved.has(reporter),
      risk: this.risk(reporter, now),
    };
    return standingOf(known, this.settings);
  }

  /** The daily review: everybody is judged by the state before it. */
  review(now: number): void {
    const founded = foundedUntil(this.createdAt, this.settings);
    for (const [pubkey, seen] of this.firstSeen) {
      if (this.standsFrom.has(pubkey) || seen <= founded || !this.contacts.has(pubkey)) continue;
      const grown = isOldEnough(now - seen) && hasTies(this.ties(pubkey, now), this.settings);
      if ((this.approved.has(pubkey) || grown) && this.risk(pubkey, now) < RISK_MAX)
        this.standsFrom.set(pubkey, now + STANDS_AFTER_MS);
    }
  }

  private countsFrom(pubkey: string): number {
    const seen = this.firstSeen.get(pubkey);
    const granted = this.standsFrom.get(pubkey);
    if (granted !== undefined || seen === undefined) return granted ?? Number.POSITIVE_INFINITY;
    const isFounder = seen <= foundedUntil(this.createdAt, this.settings);
    return isFounder ? seen + ESTABLISHED_DAYS * DAY_MS : Number.POSITIVE_INFINITY;
  }

  /** The sum of the strengths of ties with established people. */
  ties(subject: string, now: number): number {
    let thousandths = 0;
    for (const partner of this.contacts.get(subject)?.keys() ?? [])
      if (this.countsFrom(partner) <= now) {
        const tie = tieOf(this.said(subject, partner, now), this.said(partner, subject, now));
        thousandths += Math.round(tie * 1_000);
      }
    return thousandths / 1_000;
  }

  /** The sum of the largest contact of each day. */
  private said(author: string, named: string, now: number): number {
    const since = windowStart(now, this.settings);
    const days = new Map<number, number>();
    for (const { at, kind, shared } of this.contacts.get(author)?.get(named) ?? []) {
      if (at <= since) continue;
      const day = Math.floor(at / DAY_MS);
      days.set(day, Math.max(days.get(day) ?? 0, contactWeight(kind, shared ?? 1, this.settings)));
    }
    return [...days.values()].reduce((sum, weight) => sum + Math.round(weight * 1_000), 0) / 1_000;
  }

  risk(subject: string, now: number): number {
    const since = windowStart(now, this.settings);
    const greatest = new Map<string, number>();
    for (const { reporter, weight } of this.reports.filter((r) => r.subject === subject && r.at > since))
      greatest.set(reporter, Math.max(weight, greatest.get(reporter) ?? 0));
    const labels = this.labels.filter(
      (label) =>
        label.subject === subject &&
        label.at > since &&
        label.lapsesAt > now &&
        !label.withdrawn &&
        this.isPublic(label),
    );
    // In thousandths, as weights are rounded, so that the order of the sum makes no difference.
    const thousandths = [...greatest.values()].reduce((sum, weight) => sum + Math.round(weight * 1_000), 0);
    return scoreOf('report-based', { weight: thousandths / 1_000, labels: labels.length }, this.settings);
  }

  private isPublic({ topics }: ModelLabel): boolean {
    const { publicTopics } = this;
    const carried = topics.filter((topic) => topic.startsWith('kukuri:'));
    return (
      publicTopics === undefined || carried.length === 0 || carried.some((topic) => publicTopics.has(topic))
    );
  }

  density(subject: string, now: number): number {
    return scoreOf('communication-density', { weight: this.ties(subject, now), labels: 0 }, this.settings);
  }
}
