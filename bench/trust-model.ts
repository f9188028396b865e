/**
 * The rules of trust in memory, the naive way: every question looks at everything. The simulation of docs/trust.md runs on it, and tests
 * compare the database with it.
 */
import { settingsFrom } from '../src/core/settings.js';
import {
  densityOf,
  riskOf,
  STANDING,
  standingOf,
  type TrustSettings,
  windowStart,
} from '../src/core/trust.js';

const DAY_MS = 86_400_000;

export interface ModelContact {
  readonly author: string;
  readonly named: string;
  readonly kind: number;
  readonly at: number;
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
  /** Of the event that is labelled; none where it is the person. */
  readonly topics: readonly string[];
  withdrawn: boolean;
}

export class TrustModel {
  readonly firstSeen = new Map<string, number>();
  readonly contacts: ModelContact[] = [];
  readonly reports: ModelReport[] = [];
  readonly labels: ModelLabel[] = [];
  readonly approved = new Set<string>();
  /** Undefined where anyone may read every topic. */
  publicTopics: Set<string> | undefined;

  constructor(readonly settings: TrustSettings = settingsFrom(new Map())) {}

  see(pubkey: string, at: number): void {
    this.firstSeen.set(pubkey, Math.min(at, this.firstSeen.get(pubkey) ?? at));
  }

  contact(contact: ModelContact): void {
    if (contact.author !== contact.named) this.contacts.push(contact);
  }

  report(reporter: string, subject: string, at: number, cameAt = at): void {
    if (reporter === subject) return;
    this.reports.push({ reporter, subject, at, weight: this.standing(reporter, cameAt) });
  }

  standing(reporter: string, now: number): number {
    const seen = this.firstSeen.get(reporter);
    const old = now - STANDING.fullDays * DAY_MS;
    const since = windowStart(now, this.settings);
    const isOld = (pubkey: string) => (this.firstSeen.get(pubkey) ?? now) <= old;
    const ties = this.contacts.filter(
      ({ author, named, at }) => named === reporter && at > since && isOld(author),
    );
    const known = {
      seenForMs: seen === undefined ? undefined : now - seen,
      ties: new Set(ties.map(({ author }) => author)).size,
      approved: this.approved.has(reporter),
      risk: this.risk(reporter, now),
    };
    return standingOf(known, this.settings);
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
    // In thousandths, as weights are rounded: the order of adding makes no difference.
    const thousandths = [...greatest.values()].reduce((sum, weight) => sum + Math.round(weight * 1_000), 0);
    return riskOf((thousandths + labels.length * 1_000) / 1_000, this.settings);
  }

  private isPublic({ topics }: ModelLabel): boolean {
    const { publicTopics } = this;
    const carried = topics.filter((topic) => topic.startsWith('kukuri:'));
    return (
      publicTopics === undefined || carried.length === 0 || carried.some((topic) => publicTopics.has(topic))
    );
  }

  density(subject: string, now: number): number {
    const since = windowStart(now, this.settings);
    const weights = this.settings['trust.kindWeights'];
    const own = this.contacts.filter((c) => (c.author === subject || c.named === subject) && c.at > since);
    const thousandths = own.reduce((sum, { kind }) => sum + Math.round((weights[kind] ?? 0) * 1_000), 0);
    return densityOf(thousandths / 1_000, this.settings);
  }
}
