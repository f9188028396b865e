/**
 * The event pipeline up to the OK: shape → cheap checks → already seen? → space? → id and signature → content
 * and moderation rules → rate of the author → lane. Sockets and import use the same pipeline. I2: every event
 * gets exactly one outcome.
 */
import { addressesOf } from '../communities/addresses.js';
import type { Communities, Community } from '../communities/communities.js';
import { PATTERN_STEP_MS, WORD_CHARACTER_MS } from '../limits/costs.js';
import { rateKey } from '../limits/keys.js';
import type { Rates } from '../limits/rates.js';
import { type LineClient, lineOf, verifyLineOf } from '../limits/rules-lines.js';
import { judgeArrival, ratedRefusals, refusesAtOnce, ruleWork } from '../moderation/arrival/rules.js';
import { inSteps } from '../moderation/patterns/thread.js';
import { Texts } from '../moderation/rules-texts.js';
import type { Metrics } from '../node/metrics.js';
import type { DiskLevel } from '../node/rules-disk.js';
import { KIND_REPORT } from '../reports/rules.js';
import { AuthorRates } from './author-rates.js';
import type { RecentIds } from './recent-ids.js';
import type { Access } from './rules/access.js';
import { highestStep, refuseForSpace, scopeSteps } from './rules/capacity.js';
import { KIND_VANISH } from './rules/classify.js';
import { type NostrEvent, parseEvent, serializeEvent } from './rules/event.js';
import type { CameBy, Submission } from './rules/facts.js';
import { refuseLate } from './rules/lateness.js';
import { refuseArrival, refuseContent } from './rules/policy.js';
import { BUSY, isRefusal, type Outcome, REFUSED_BY_RULE, type Refusal, refusal } from './rules/reply.js';
import { vanishScope } from './rules/vanish.js';
import { weightOf } from './rules/weight.js';
import type { SeenCounts } from './seen-counts.js';
import { SignatureChecks } from './signature-checks.js';
import type { EventStore } from './store.js';
import type { Verifier } from './verify/pool.js';

/** Refused for space or lateness, and waiting for the lookup whether they are duplicates. */
const LOOKUPS_MAX = 1_000;
const NO_MORE_REPORTS = refusal('rate-limited', "your plan's reports for today are used up");

export interface AdmissionOptions {
  readonly store: Pick<EventStore, 'submit' | 'isServed'>;
  readonly verifier: Verifier;
  readonly recent: RecentIds;
  /** Changes of other instances are read a moment after they took effect, so `recent` may be wrong. */
  readonly isRecentBehind?: boolean;
  readonly seen: SeenCounts;
  readonly metrics: Metrics;
  readonly now: () => number;
  readonly communities: Communities;
  /** The level of the disk guard for this community. */
  readonly diskLevel?: (community: number) => DiskLevel;
  /** The node's own addresses. */
  readonly bases: () => readonly string[];
  /** Undefined for an import, which limits no author. */
  readonly rates?: Rates | undefined;
  /**
   * A report (NIP-56) counts against its author's plan, as over HTTP. It is given back when the report is not
   * stored.
   */
  readonly reportUse: {
    readonly count: (community: number, event: NostrEvent) => Promise<boolean>;
    readonly giveBack: (community: number, event: NostrEvent) => Promise<void>;
  };
}

export interface Sender {
  readonly access: Access;
  /** The operator has exempted this sender from the rates. */
  readonly exempt: boolean;
  /**
   * The client that the events belong to: they wait behind one another, and delay no other client. Exempt
   * senders share one line.
   */
  readonly client?: LineClient;
  /** Another node, through gossip or sync; undefined for a post. */
  readonly cameBy?: CameBy | undefined;
  /** Charges work to the client before it is done (I18). */
  readonly charge?: (costMs: number) => void;
}

export interface Admission {
  /** Without a sender, the operator imports the event. */
  admit(community: Community, input: unknown, sender?: Sender): Promise<Outcome | Refusal>;
  /** A membership request (NIP-43): checked like an event, then carried out instead of being stored. */
  request<T>(
    community: Community,
    input: unknown,
    sender: Sender,
    take: (event: NostrEvent) => Promise<T>,
  ): Promise<T | Refusal>;
}

export function createAdmission(options: AdmissionOptions): Admission {
  const { metrics, communities } = options;
  metrics.watchCapacity(
    () => Math.max(0, ...communities.all().map(({ capacity }) => highestStep(capacity))),
    () => communities.all().flatMap(({ capacity }) => [...scopeSteps(capacity)]),
  );
  return new Pipeline(options);
}

class Pipeline implements Admission {
  private readonly signatures: SignatureChecks;
  private readonly authorRates: AuthorRates;
  private lookups = 0;

  constructor(private readonly options: AdmissionOptions) {
    const { verifier, metrics, rates, now } = options;
    this.signatures = new SignatureChecks(verifier, metrics);
    this.authorRates = new AuthorRates(rates, now);
  }

  async admit(community: Community, input: unknown, sender?: Sender): Promise<Outcome | Refusal> {
    const { seen, metrics, now } = this.options;
    const outcome = await this.decide(community, input, sender).catch(() =>
      refusal('error', 'failed to check the event'),
    );
    if (outcome === 'duplicate') seen.add(community.id, (input as NostrEvent).id, now());
    metrics.events.inc({ outcome: typeof outcome === 'string' ? outcome : outcome.refused });
    return outcome;
  }

  request<T>(
    community: Community,
    input: unknown,
    sender: Sender,
    take: (event: NostrEvent) => Promise<T>,
  ): Promise<T | Refusal> {
    return this.carryOut(community, input, sender, take).catch(() =>
      refusal('error', 'failed to carry out the request, try again'),
    );
  }

  private async decide(community: Community, input: unknown, sender?: Sender): Promise<Outcome | Refusal> {
    const checked = this.check(community, input, sender);
    if (isRefusal(checked)) return checked;
    const { event, payload, nowSeconds } = checked;
    const vanishIn =
      event.kind === KIND_VANISH ? vanishCommunities(event, community, this.options) : undefined;
    if (isRefusal(vanishIn)) return vanishIn;
    const repeated = this.isRepeated(community.id, event);
    if (repeated !== false && (await repeated)) return 'duplicate';
    const short = this.refuseForSpaceOrTime(community, event, nowSeconds);
    if (short !== undefined) return this.duplicateOr(community.id, event, short);
    const texts = new Texts(event, community.settings);
    // Before anything is awaited: a client in debt sends no more.
    const { steps, words } = ruleWork(event, community, texts);
    sender?.charge?.(steps * PATTERN_STEP_MS + words * WORD_CHARACTER_MS);
    const wrong = await this.refuseForgedOrBlocked(community, checked, sender, texts);
    if (wrong !== undefined) return wrong;
    const line = verifyLineOf(community.id, waitingClient(sender), event.pubkey);
    const judgement = await inSteps(judgeArrival(event, community, texts), line);
    if (refusesAtOnce(judgement)) return REFUSED_BY_RULE;
    const submission = {
      community: community.id,
      event,
      payload,
      judgement,
      ...(vanishIn ? { vanishIn } : {}),
      ...(sender?.cameBy === undefined ? {} : { cameBy: sender.cameBy }),
    };
    return this.authorRates.withinRules(community, event, ratedRefusals(judgement), () =>
      this.submit(community, submission, sender),
    );
  }

  private async carryOut<T>(
    community: Community,
    input: unknown,
    sender: Sender,
    take: (event: NostrEvent) => Promise<T>,
  ): Promise<T | Refusal> {
    const checked = this.check(community, input, sender);
    if (isRefusal(checked)) return checked;
    const { event, payload } = checked;
    const texts = new Texts(event, community.settings);
    const wrong = await this.refuseForgedOrBlocked(community, checked, sender, texts);
    if (wrong !== undefined) return wrong;
    if (sender.exempt) return take(event);
    const weight = weightOf(event.tags.length, payload.length);
    const over = await this.authorRates.refuse(community, rateKeyOf(community, event, sender), weight);
    return over ?? take(event);
  }

  /** Shape and cheap checks. */
  private check(community: Community, input: unknown, sender: Sender | undefined): Checked | Refusal {
    const event = parseEvent(input);
    if (isRefusal(event)) return event;
    const payload = serializeEvent(event);
    const nowSeconds = Math.floor(this.options.now() / 1_000);
    const bytes = Buffer.byteLength(payload);
    const { settings, topics } = community;
    const refused = refuseArrival({
      event,
      bytes,
      settings,
      topics,
      nowSeconds,
      ...(sender ? { sender: { access: sender.access, rules: community }, blocks: community.blocks } : {}),
    });
    return refused ?? { event, payload, nowSeconds };
  }

  /** Without a query where `recent` is exact. */
  private isRepeated(community: number, event: NostrEvent): boolean | Promise<boolean> {
    const { recent, isRecentBehind = false, store } = this.options;
    if (!recent.has(community, event.id)) return false;
    return !isRecentBehind || store.isServed(community, event);
  }

  private refuseForSpaceOrTime(
    { id, settings, capacity, topics }: Community,
    event: NostrEvent,
    nowSeconds: number,
  ): Refusal | undefined {
    const diskLevel = this.options.diskLevel?.(id) ?? 0;
    const arrival = { event, settings, nowSeconds, capacity, topics, diskLevel };
    return refuseLate(arrival) ?? refuseForSpace(arrival);
  }

  /**
   * A duplicate needs no space and is not late, so it is answered as a duplicate. `recent` knows only the
   * latest ids, so the store is asked.
   */
  private async duplicateOr(
    community: number,
    event: NostrEvent,
    short: Refusal,
  ): Promise<Outcome | Refusal> {
    if (this.lookups >= LOOKUPS_MAX) return BUSY;
    this.lookups += 1;
    const served = await this.options.store.isServed(community, event).finally(() => {
      this.lookups -= 1;
    });
    return served ? 'duplicate' : short;
  }

  /** The content comes after the signature check: the node reads none that nobody has signed (I18). */
  private async refuseForgedOrBlocked(
    { id, blocks }: Community,
    { event, payload }: Checked,
    sender: Sender | undefined,
    texts: Texts,
  ): Promise<Refusal | undefined> {
    const from = verifyLineOf(id, waitingClient(sender), event.pubkey);
    return (
      (await this.signatures.refuse(payload, from)) ??
      inSteps(refuseContent({ event, texts, ...(sender ? { blocks } : {}) }))
    );
  }

  private async submit(
    community: Community,
    submission: Submission,
    sender: Sender | undefined,
  ): Promise<Outcome | Refusal> {
    const { event } = submission;
    const isCounted = sender !== undefined && event.kind === KIND_REPORT;
    const from = lineOf(waitingClient(sender), event.pubkey);
    const send = () =>
      isCounted ? this.submitReport(submission, from) : this.options.store.submit(submission, from);
    if (sender?.exempt) return send();
    const key = rateKeyOf(community, event, sender);
    const weight = weightOf(event.tags.length, submission.payload.length);
    const over = await this.authorRates.refuse(community, key, weight);
    if (over !== undefined) return over;
    const outcome = await send();
    if (outcome === 'duplicate') this.authorRates.giveBack(key, weight);
    return outcome;
  }

  private async submitReport(
    submission: Submission,
    from: readonly string[] | undefined,
  ): Promise<Outcome | Refusal> {
    const { store, reportUse } = this.options;
    const { community, event } = submission;
    if (!(await reportUse.count(community, event))) return NO_MORE_REPORTS;
    const outcome = await store.submit(submission, from);
    if (outcome !== 'stored') await reportUse.giveBack(community, event);
    return outcome;
  }
}

interface Checked {
  readonly event: NostrEvent;
  readonly payload: string;
  readonly nowSeconds: number;
}

/** Exempt senders wait in the operator's line. */
function waitingClient(sender: Sender | undefined): LineClient | undefined {
  return sender?.exempt ? undefined : sender?.client;
}

/**
 * Events of an author that others send have a rate of their own, so that they never use up the author's rate.
 */
function rateKeyOf({ id }: Community, { pubkey }: NostrEvent, sender: Sender | undefined): string {
  const isAuthor = sender?.access.pubkeys.has(pubkey) ?? false;
  return rateKey(id, isAuthor ? 'events' : 'brought', pubkey);
}

/**
 * The communities that a request to vanish applies to: this one, or with ALL_RELAYS every one of this node.
 */
function vanishCommunities(
  event: NostrEvent,
  community: Community,
  { communities, bases }: AdmissionOptions,
): number[] | Refusal {
  switch (vanishScope(event, addressesOf(community, bases()))) {
    case 'everywhere':
      return communities.all().map(({ id }) => id);
    case 'here':
      return [community.id];
    case 'elsewhere':
      return refusal('invalid', 'the request to vanish names neither this relay nor ALL_RELAYS');
  }
}
