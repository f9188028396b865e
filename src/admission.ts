/**
 * The way of an event up to its OK: shape → cheap checks → already seen? → room? → id and signature → rules of moderation → its
 * author's rate → lane.
 * Sockets and import go the same way. I2: every event gets exactly one outcome.
 */
import { LRUCache } from 'lru-cache';
import { addressesOf } from './addresses.js';
import type { Communities, Community } from './communities.js';
import type { Access } from './core/access.js';
import { highestStep, refuseForSpace, scopeSteps } from './core/capacity.js';
import { KIND_VANISH } from './core/classify.js';
import { type NostrEvent, parseEvent, serializeEvent } from './core/event.js';
import { refuseLate } from './core/lateness.js';
import type { Rule } from './core/moderation.js';
import { factKey, type Submission } from './core/plan.js';
import { refuseArrival } from './core/policy.js';
import { isRefusal, type Outcome, type Refusal, refusal, tooMany } from './core/reply.js';
import { KIND_REPORT } from './core/report.js';
import { askAtDoor } from './core/rule-match.js';
import { vanishScope } from './core/vanish.js';
import type { Lane } from './lane.js';
import { rateKey } from './limits/keys.js';
import type { Rates } from './limits/rates.js';
import type { Metrics } from './metrics.js';
import type { SeenCounts } from './seen-counts.js';
import { inTurns } from './turns.js';
import type { Verifier } from './verify/pool.js';

const RECENT_IDS_MAX = 100_000;
/** Bytes of events that wait for their signature check. */
const VERIFY_BYTES_MAX = 64 * 1_048_576;
/** Events without room that wait to hear whether they are repeats. */
const LOOKUPS_MAX = 1_000;
const NO_MORE_REPORTS = refusal('rate-limited', "today's reports of your plan are used up");
const REFUSED_BY_RULE = refusal('blocked', 'refused by a rule of this community');
const BUSY = refusal('rate-limited', 'the relay is busy, try again in a moment');

/**
 * Ids that were announced lately, so that a repeat is answered without a signature check or a query. It follows the
 * outbox and nothing else: an id enters with its `upsert` and leaves with its `delete`, in that order.
 */
export class RecentIds {
  private readonly ids = new LRUCache<string, true>({ max: RECENT_IDS_MAX });

  /** Hidden by a commit whose row in the outbox has not been passed yet: no longer known, whatever comes late. */
  private readonly withdrawn = new LRUCache<string, true>({ max: RECENT_IDS_MAX });

  has(community: number, id: string): boolean {
    return this.ids.get(factKey(community, id)) === true;
  }
  add(community: number, id: string): void {
    const key = factKey(community, id);
    if (!this.withdrawn.has(key)) this.ids.set(key, true);
  }
  withdraw(community: number, id: string): void {
    const key = factKey(community, id);
    this.withdrawn.set(key, true);
    this.ids.delete(key);
  }
  /** Everything: after a request to vanish nothing by its author may be called a duplicate. */
  clear(): void {
    this.ids.clear();
  }
  forget(community: number, id: string): void {
    const key = factKey(community, id);
    this.withdrawn.delete(key);
    this.ids.delete(key);
  }
}

export interface AdmissionOptions {
  readonly lane: Lane;
  readonly verifier: Verifier;
  readonly recent: RecentIds;
  readonly seen: SeenCounts;
  readonly metrics: Metrics;
  readonly now: () => number;
  readonly communities: Communities;
  /** The node's own addresses. */
  readonly bases: () => readonly string[];
  /** Without them no author is limited: an import takes what it is given. */
  readonly rates?: Rates | undefined;
  /** A report (NIP-56) is a use of its author's plan, as over HTTP; it is given back when nothing came of it. */
  readonly reportUse: {
    readonly count: (community: number, event: NostrEvent) => Promise<boolean>;
    readonly giveBack: (community: number, event: NostrEvent) => Promise<void>;
  };
  /** Is an event with this id stored and served? */
  readonly isServed: (community: number, event: NostrEvent) => Promise<boolean>;
}

export interface Sender {
  readonly access: Access;
  /** From the rates, by the operator's will. */
  readonly exempt: boolean;
}

export interface Admission {
  /** Without a sender it is the operator who brings the event. */
  admit(community: Community, input: unknown, sender?: Sender): Promise<Outcome | Refusal>;
  /** A request of membership (NIP-43): checked as an event is, then carried out instead of being stored. */
  request<T>(
    community: Community,
    input: unknown,
    sender: Sender,
    take: (event: NostrEvent) => Promise<T>,
  ): Promise<T | Refusal>;
}

export function createAdmission(options: AdmissionOptions): Admission {
  const { lane, verifier, recent, seen, metrics, now, communities } = options;
  metrics.watchCapacity(
    () => Math.max(0, ...communities.all().map(({ capacity }) => highestStep(capacity))),
    () => communities.all().flatMap(({ capacity }) => [...scopeSteps(capacity)]),
  );
  let verifyingBytes = 0;
  let lookups = 0;

  const verify = async (payload: string): Promise<Refusal | undefined> => {
    if (verifyingBytes >= VERIFY_BYTES_MAX) return BUSY;
    const done = metrics.verify.startTimer();
    verifyingBytes += payload.length;
    const verdict = await verifier.verify({ payload }).finally(() => {
      verifyingBytes -= payload.length;
      done();
    });
    if (verdict === 'wrong-id') return refusal('invalid', 'id is not the hash of the event');
    return verdict === 'wrong-signature' ? refusal('invalid', 'signature verification failed') : undefined;
  };

  /** What is here already takes no room and is not late, so it gets that answer; `recent` knows only the latest of it. */
  const withoutRoom = async (community: number, event: NostrEvent, short: Refusal) => {
    if (lookups >= LOOKUPS_MAX) return BUSY;
    lookups += 1;
    const served = await options.isServed(community, event).finally(() => {
      lookups -= 1;
    });
    return served ? 'duplicate' : short;
  };

  /** Only now: before its signature is checked, anybody could spend an author's rate. */
  const overRate = async ({ settings }: Community, key: string): Promise<Refusal | undefined> => {
    const { 'rate.eventsPerSecond': perSecond, 'rate.eventsBurst': burst } = settings;
    const verdict = await options.rates?.take(key, perSecond, burst, now());
    return verdict === undefined || verdict.allowed
      ? undefined
      : tooMany('events by this author', verdict.retryAfterMs);
  };

  /**
   * Of the community's own will, and so also for those whom the operator exempts from the rates that protect the node. Anybody can bring
   * what an author has signed before: whatever does not come of it anew costs the author nothing.
   */
  const withinRates = async (
    { id }: Community,
    { pubkey }: NostrEvent,
    rated: readonly Rule[],
    submit: () => Promise<Outcome | Refusal>,
  ): Promise<Outcome | Refusal> => {
    const taken: string[] = [];
    let outcome: Outcome | Refusal | undefined;
    try {
      for (const { ruleId, version, conditions } of rated) {
        const { count, seconds } = conditions.rate!;
        const key = rateKey(id, `rule/${ruleId}/${version}`, pubkey);
        const verdict = await options.rates?.take(key, count / seconds, count, now());
        if (verdict?.allowed === false) return REFUSED_BY_RULE;
        taken.push(key);
      }
      outcome = await submit();
      return outcome;
    } finally {
      if (outcome !== 'stored' && outcome !== 'broadcast')
        for (const key of taken) options.rates?.giveBack(key);
    }
  };

  const submitReport = async (submission: Submission): Promise<Outcome | Refusal> => {
    const { community, event } = submission;
    if (!(await options.reportUse.count(community, event))) return NO_MORE_REPORTS;
    const outcome = await lane.submit(submission);
    if (outcome !== 'stored') await options.reportUse.giveBack(community, event);
    return outcome;
  };

  const submit = async (community: Community, submission: Submission, sender: Sender | undefined) => {
    const { event } = submission;
    const isCounted = sender !== undefined && event.kind === KIND_REPORT;
    const send = () => (isCounted ? submitReport(submission) : lane.submit(submission));
    if (sender?.exempt) return send();
    const key = rateKeyOf(community, event, sender);
    const over = await overRate(community, key);
    if (over !== undefined) return over;
    const outcome = await send();
    // Anybody can bring what an author has signed before, as often as they like: that costs the author nothing.
    if (outcome === 'duplicate') options.rates?.giveBack(key);
    return outcome;
  };

  /** Shape and cheap checks. */
  const check = (community: Community, input: unknown, sender: Sender | undefined): Checked | Refusal => {
    const event = parseEvent(input);
    if (isRefusal(event)) return event;
    const payload = serializeEvent(event);
    const nowSeconds = Math.floor(now() / 1_000);
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
  };

  const request = async <T>(
    community: Community,
    input: unknown,
    sender: Sender,
    take: (event: NostrEvent) => Promise<T>,
  ): Promise<T | Refusal> => {
    const checked = check(community, input, sender);
    if (isRefusal(checked)) return checked;
    const { event, payload } = checked;
    const wrong = await verify(payload);
    if (wrong !== undefined) return wrong;
    const over = sender.exempt ? undefined : await overRate(community, rateKeyOf(community, event, sender));
    return over ?? take(event);
  };

  const admit = async (community: Community, input: unknown, sender?: Sender): Promise<Outcome | Refusal> => {
    const checked = check(community, input, sender);
    if (isRefusal(checked)) return checked;
    const { event, payload, nowSeconds } = checked;
    const { settings, capacity, topics } = community;
    const vanishIn = event.kind === KIND_VANISH ? vanishCommunities(event, community, options) : undefined;
    if (isRefusal(vanishIn)) return vanishIn;
    if (recent.has(community.id, event.id)) return 'duplicate';
    const arrival = { event, settings, nowSeconds, capacity, topics };
    const short = refuseLate(arrival) ?? refuseForSpace(arrival);
    if (short !== undefined) return withoutRoom(community.id, event, short);
    const wrong = await verify(payload);
    if (wrong !== undefined) return wrong;
    const door = await inTurns(askAtDoor(event, community, community.rules));
    if (door.refused) return REFUSED_BY_RULE;
    const submission = { community: community.id, event, payload, ...(vanishIn ? { vanishIn } : {}) };
    return withinRates(community, event, door.rated, () => submit(community, submission, sender));
  };

  return {
    admit: async (community, input, sender) => {
      const outcome = await admit(community, input, sender).catch(() =>
        refusal('error', 'failed to check the event'),
      );
      if (outcome === 'duplicate') seen.add(community.id, (input as NostrEvent).id, now());
      metrics.events.inc({ outcome: typeof outcome === 'string' ? outcome : outcome.refused });
      return outcome;
    },
    request: (...args) =>
      request(...args).catch(() => refusal('error', 'failed to carry out the request, try again')),
  };
}

interface Checked {
  readonly event: NostrEvent;
  readonly payload: string;
  readonly nowSeconds: number;
}

/** What others bring of an author's events has a rate of its own, so that it never stands in the author's way. */
function rateKeyOf({ id }: Community, { pubkey }: NostrEvent, sender: Sender | undefined): string {
  const isAuthor = sender?.access.pubkeys.has(pubkey) ?? false;
  return rateKey(id, isAuthor ? 'events' : 'brought', pubkey);
}

/** In which communities a request to vanish holds: this one, or with ALL_RELAYS every one of this node. */
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
