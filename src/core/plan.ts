/**
 * A batch of events becomes a plan: what each client is told, and every row that one transaction has to write.
 * Pure. The events are decided one after another, each seeing what the ones before it in the batch did,
 * so a batch gives the same view as the same events one by one.
 * I8: each change of the effective view has its outbox row here; the store writes the plan in one transaction.
 */
import { type AppliedTombstone, appliedTombstones } from './applied-tombstones.js';
import { addressOf, isNewer, KIND_DELETION, KIND_VANISH, type Version } from './classify.js';
import { type Decision, decide, type Facts } from './decide.js';
import { type DeletionTarget, deletes, deletionTargets, ownersOf, targetName } from './deletion.js';
import type { NostrEvent } from './event.js';
import { type Announced, type Hidden, OUTBOX_REASONS } from './hidden.js';
import { History, type Superseded } from './history.js';
import { Keep, keepOf } from './keep.js';
import { commentOf, KIND_REPORT, type Reported, reportedBy } from './report.js';
import { eventDays, type Retention } from './retention.js';
import { allTopics, bindTopics, impliedTopics, type TopicSettings, topicsOf, UNBOUND } from './topic.js';

/** An event on its way into the store: checked, verified, serialized once. */
export interface Submission {
  readonly community: number;
  readonly event: NostrEvent;
  readonly payload: string;
  /** For a request to vanish (NIP-62): the communities in which it holds. */
  readonly vanishIn?: readonly number[];
}

/** Where an event's row lies. `seq` is also the place of its `upsert` in the outbox. */
export interface RowRef {
  readonly seq: number;
  readonly ingestedAt: number;
  readonly keep: number;
}

export interface StoredEvent {
  readonly row: RowRef;
  readonly event: NostrEvent;
  /** Topics that it is bound to beside those it names. */
  readonly bound: readonly string[];
}

export interface Head extends Version {
  readonly topics: readonly string[];
  /** The row of that version while it is served. */
  readonly row: RowRef | undefined;
}

/** What the store knows about a batch, by `factKey(community, id, address or pubkey)`. */
export interface BatchFacts {
  readonly lastSeq: number;
  readonly known: ReadonlyMap<string, 'served' | Hidden>;
  readonly heads: ReadonlyMap<string, Head>;
  /** Served events that deletion requests of the batch name by id. */
  readonly targets: ReadonlyMap<string, StoredEvent>;
  /** Superseded versions that they name, by id or address. */
  readonly superseded?: readonly Superseded[];
  /** There are more versions of the named addresses than one batch can hold. */
  readonly historyLeft?: boolean;
  /** By `tombstoneKey`: the time of the latest request. */
  readonly tombstones: ReadonlyMap<string, number>;
  /** Until when a pubkey asked to vanish. */
  readonly vanished: ReadonlyMap<string, number>;
  /** Until when a pubkey was erased; without a pubkey, the community. */
  readonly erased?: ReadonlyMap<string, number>;
  /** How many more targets an author may name today. */
  readonly deletionsLeft: ReadonlyMap<string, number>;
  /** Communities whose deletions are physical at once (`deletion.mode`). */
  readonly purgesDeleted: ReadonlySet<number>;
  /** Communities that keep no superseded versions (`retention.historyDays` is 0). */
  readonly keepsNoHistory?: ReadonlySet<number>;
  /** How long each community keeps its topics. */
  readonly retention?: ReadonlyMap<number, Retention>;
  /** What each community asks of events about topics. */
  readonly topicSettings?: ReadonlyMap<number, TopicSettings>;
}

export function factKey(community: number, what: string): string {
  return `${community}/${what}`;
}

/** Keyed by who asked: another author's request never blocks anything (I5). */
export function tombstoneKey(community: number, idOrAddress: string, author: string): string {
  return `${community}/${author}/${idOrAddress}`;
}

export interface PlannedRow extends RowRef {
  readonly submission: Submission;
  /** Topics that it is bound to beside those it names. */
  readonly bound: readonly string[];
  /** Why it is not served, when a later event of the same batch saw to that. */
  readonly hidden: Hidden | undefined;
  /** Its content is not even written. */
  readonly purge: boolean;
}

export interface PlannedHead extends Version {
  readonly topics: readonly string[];
  readonly community: number;
  readonly address: string;
  readonly kind: number;
  readonly pubkey: string;
}

export interface HiddenRow {
  readonly community: number;
  readonly id: string;
  readonly row: RowRef;
  readonly hidden: Hidden;
  /** Its content goes in the same transaction. */
  readonly purge: boolean;
}

export interface Tombstone {
  readonly community: number;
  readonly target: DeletionTarget;
  readonly author: string;
  readonly deletionId: string;
  readonly requestedAt: number;
  /** Something was hidden by it at once. */
  readonly applied: boolean;
  /** Superseded versions of the address are left to a job. */
  readonly historyLeft: boolean;
}

/** Targets that an author's request named, whatever became of each: they count for the day. */
export interface QuotaUse {
  readonly community: number;
  readonly author: string;
  readonly targets: number;
}

export interface VanishMark {
  readonly community: number;
  readonly pubkey: string;
  readonly until: number;
  /** None: the node itself marks one who is being erased. */
  readonly requestId: string | undefined;
}

/** One target of a stored event of kind 1984. */
export interface PlannedReport extends Reported {
  readonly community: number;
  readonly reporter: string;
  readonly eventId: string;
  readonly comment: string;
  /** Milliseconds; what was written in the future is from now. */
  readonly createdAt: number;
}

export type OutboxReason = (typeof OUTBOX_REASONS)[Announced];

export interface OutboxRow {
  readonly seq: number;
  readonly community: number;
  readonly op: 'upsert' | 'delete';
  readonly reason: OutboxReason | undefined;
  readonly event: Version & Pick<NostrEvent, 'pubkey' | 'kind'>;
  readonly topics: readonly string[];
  readonly effectiveKey: string | undefined;
  readonly ingestedAt: number;
}

export interface Plan {
  readonly decisions: readonly Decision[];
  /** Of those that are refused as erased: up to when, in seconds. */
  readonly erasedUntil?: ReadonlyMap<Submission, number>;
  readonly rows: readonly PlannedRow[];
  /** Rows already stored that are no longer served. */
  readonly hidden: readonly HiddenRow[];
  readonly heads: readonly PlannedHead[];
  readonly tombstones: readonly Tombstone[];
  readonly appliedTombstones: readonly AppliedTombstone[];
  readonly quotaUses: readonly QuotaUse[];
  readonly vanishMarks: readonly VanishMark[];
  readonly reports: readonly PlannedReport[];
  readonly outbox: readonly OutboxRow[];
  readonly broadcasts: readonly Submission[];
  readonly lastSeq: number;
}

const NO_TOPICS: ReadonlyMap<string, unknown> = new Map();

const NOTHING: Omit<Plan, 'lastSeq'> = {
  decisions: [],
  rows: [],
  hidden: [],
  heads: [],
  tombstones: [],
  appliedTombstones: [],
  quotaUses: [],
  vanishMarks: [],
  reports: [],
  outbox: [],
  broadcasts: [],
};

export function planBatch(submissions: readonly Submission[], facts: BatchFacts, now: number): Plan {
  const planner = new Planner(facts, now);
  const decisions = submissions.map((submission) => planner.take(submission));
  return planner.finish(decisions);
}

/**
 * What time and the operator take out of the view: rows to hide, each announced with its reason. A superseded version was
 * announced when it was superseded.
 */
export function planHiding(
  rows: readonly (StoredEvent & { readonly community: number })[],
  hidden: Announced,
  purge: boolean,
  lastSeq: number,
  now: number,
): Plan {
  const served = rows.filter(({ row }) => row.keep !== Keep.history);
  const outbox = served.map(
    ({ community, event, bound }, place): OutboxRow => ({
      seq: lastSeq + 1 + place,
      community,
      op: 'delete',
      reason: OUTBOX_REASONS[hidden],
      event,
      topics: allTopics(event, bound),
      effectiveKey: addressOf(event),
      ingestedAt: now,
    }),
  );
  return {
    ...NOTHING,
    hidden: rows.map(({ community, event, row }) => ({ community, id: event.id, row, hidden, purge })),
    outbox,
    lastSeq: lastSeq + served.length,
  };
}

/** Nothing but marks: what they hide is hidden at read. They take a number without a row, which tells every instance to look anew. */
export function planMarks(vanishMarks: readonly VanishMark[], lastSeq: number): Plan {
  return { ...NOTHING, vanishMarks, lastSeq: lastSeq + (vanishMarks.length > 0 ? 1 : 0) };
}

/** One that a later event of the batch hid reports nothing. */
function isReport({ submission, hidden }: PlannedRow): boolean {
  return submission.event.kind === KIND_REPORT && hidden === undefined;
}

function reportsOf({ submission: { community, event }, ingestedAt }: PlannedRow): PlannedReport[] {
  const { id: eventId, pubkey: reporter, created_at } = event;
  const comment = commentOf(event);
  const createdAt = Math.min(created_at * 1_000, ingestedAt);
  return reportedBy(event).map((reported) => ({
    ...reported,
    community,
    reporter,
    eventId,
    comment,
    createdAt,
  }));
}

class Planner {
  private readonly known: Map<string, 'served' | Hidden>;
  private readonly heads: Map<string, Head>;
  private readonly targets: Map<string, StoredEvent>;
  private readonly tombstones: Map<string, number>;
  private readonly vanished: Map<string, number>;
  private readonly rows = new Map<number, PlannedRow>();
  private readonly hiddenRows = new Map<number, HiddenRow>();
  private readonly history: History;
  private readonly changedHeads = new Map<string, PlannedHead>();
  private readonly newTombstones: Tombstone[] = [];
  private readonly appliedTombstones: AppliedTombstone[] = [];
  private readonly quotaUses: QuotaUse[] = [];
  private readonly vanishMarks: VanishMark[] = [];
  private readonly outbox: OutboxRow[] = [];
  private readonly broadcasts: Submission[] = [];
  private readonly deletionsLeft: Map<string, number>;
  private readonly erasedUntil = new Map<Submission, number>();
  private lastSeq: number;

  constructor(
    private readonly facts: BatchFacts,
    private readonly now: number,
  ) {
    this.known = new Map(facts.known);
    this.heads = new Map(facts.heads);
    this.targets = new Map(facts.targets);
    this.history = new History(facts.superseded);
    this.tombstones = new Map(facts.tombstones);
    this.vanished = new Map(facts.vanished);
    this.deletionsLeft = new Map(facts.deletionsLeft);
    this.lastSeq = facts.lastSeq;
  }

  take(submission: Submission): Decision {
    const decision = this.decide(submission);
    if (decision === 'stored') this.store(submission);
    if (decision === 'broadcast') this.broadcast(submission);
    // A version that its owner deleted before it came still counts: nothing older may take its place.
    if (decision === 'deleted') {
      this.raiseHead(submission, undefined);
      const requestedAt = (target: string, author: string) =>
        this.tombstones.get(tombstoneKey(submission.community, target, author));
      this.appliedTombstones.push(...appliedTombstones(submission, requestedAt));
    }
    if (decision === 'vanished' && submission.event.kind === KIND_DELETION) return this.heed(submission);
    return decision;
  }

  /**
   * One who vanishes takes the request along, not what it did: a request that comes after the mark deletes what it would have
   * deleted before it (I5). It has no row, so it is the tombstones that tell a repeat.
   */
  private heed(submission: Submission): Decision {
    const { community, event } = submission;
    const isBuried = (target: DeletionTarget) => {
      const requestedAt = this.tombstones.get(tombstoneKey(community, targetName(target), event.pubkey));
      return requestedAt !== undefined && (target.type === 'id' || requestedAt >= event.created_at);
    };
    if (deletionTargets(event).every(isBuried)) return 'vanished';
    if (!this.withinQuota(submission)) return 'overQuota';
    this.applyDeletion(submission);
    return 'vanished';
  }

  finish(decisions: readonly Decision[]): Plan {
    const rows = [...this.rows.values()];
    return {
      decisions,
      ...(this.erasedUntil.size > 0 ? { erasedUntil: this.erasedUntil } : {}),
      rows,
      hidden: [...this.hiddenRows.values()],
      heads: [...this.changedHeads.values()],
      tombstones: this.newTombstones,
      appliedTombstones: this.appliedTombstones,
      quotaUses: this.quotaUses,
      vanishMarks: this.vanishMarks,
      reports: rows.filter(isReport).flatMap(reportsOf),
      outbox: this.outbox,
      broadcasts: this.broadcasts,
      lastSeq: this.lastSeq,
    };
  }

  private decide(submission: Submission): Decision {
    const facts = this.factsOf(submission);
    const decision = decide(submission.event, facts, Math.floor(this.now / 1_000));
    if (decision === 'erased' && facts.erasedUntil !== undefined)
      this.erasedUntil.set(submission, facts.erasedUntil);
    return decision === 'stored' && !this.withinQuota(submission) ? 'overQuota' : decision;
  }

  /** Tombstones are kept for ever, so how many an author can make is bounded. */
  private withinQuota({ community, event }: Submission): boolean {
    if (event.kind !== KIND_DELETION) return true;
    const key = factKey(community, event.pubkey);
    const targets = deletionTargets(event).length;
    const left = (this.deletionsLeft.get(key) ?? Number.POSITIVE_INFINITY) - targets;
    if (left < 0) return false;
    this.deletionsLeft.set(key, left);
    if (targets > 0) this.quotaUses.push({ community, author: event.pubkey, targets });
    return true;
  }

  private factsOf({ community, event }: Submission): Facts {
    const address = addressOf(event);
    const owners = ownersOf(event);
    const latest = (marks: ReadonlyMap<string, number> | undefined) => {
      const found = [...owners, ''].flatMap((owner) => marks?.get(factKey(community, owner)) ?? []);
      return found.length === 0 ? undefined : Math.max(...found);
    };
    return {
      known: this.known.get(factKey(community, event.id)),
      head: address === undefined ? undefined : this.heads.get(factKey(community, address)),
      idDeleted: owners.some((owner) => this.tombstones.has(tombstoneKey(community, event.id, owner))),
      addressDeletedAt:
        address === undefined
          ? undefined
          : this.tombstones.get(tombstoneKey(community, address, event.pubkey)),
      vanishedUntil: latest(this.vanished),
      erasedUntil: latest(this.facts.erased),
    };
  }

  private store(submission: Submission): void {
    const { community, event } = submission;
    if (event.kind === KIND_VANISH) {
      this.withhold(submission);
      return;
    }
    const idKey = factKey(community, event.id);
    const address = addressOf(event);
    this.supersedeHead(submission);
    const bound = this.boundOf(submission);
    const seq = this.announce(community, event, allTopics(event, bound), address, undefined);
    const row = {
      seq,
      ingestedAt: this.now,
      keep: this.keepOf(submission),
      submission,
      bound,
      hidden: undefined,
      purge: false,
    };
    this.rows.set(seq, row);
    this.known.set(idKey, 'served');
    this.targets.set(idKey, { row, event, bound });
    this.raiseHead(submission, row);
    if (event.kind === KIND_DELETION) this.applyDeletion(submission);
  }

  private boundOf({ community, event }: Submission): readonly string[] {
    const settings = this.facts.topicSettings?.get(community);
    const known = this.facts.retention?.get(community)?.topics ?? NO_TOPICS;
    const implied = settings === undefined ? UNBOUND : impliedTopics(event, settings, known);
    if (event.kind !== KIND_DELETION) return implied;
    return bindTopics(event, this.targetTopics(community, event, implied));
  }

  /** The topics of what a request rightfully deletes as well, so that their readers hear of it. Asked before anything is hidden. */
  private *targetTopics(
    community: number,
    request: NostrEvent,
    implied: readonly string[],
  ): Generator<string> {
    yield* implied;
    for (const target of deletionTargets(request)) {
      const stored = this.storedTarget(community, target);
      if (stored !== undefined && deletes(request, target, stored.event))
        yield* allTopics(stored.event, stored.bound);
      for (const { topics } of this.history.find(community, request, target)) yield* topics;
    }
  }

  private keepOf({ community, event }: Submission): Keep {
    const retention = this.facts.retention?.get(community);
    return keepOf(event.kind, retention === undefined ? 0 : eventDays(retention, topicsOf(event)));
  }

  /** A request to vanish is kept for the operator and takes effect, but is neither served nor announced. */
  private withhold(submission: Submission): void {
    const { community, event } = submission;
    this.lastSeq += 1;
    const { lastSeq: seq, now: ingestedAt } = this;
    this.rows.set(seq, {
      seq,
      ingestedAt,
      keep: Keep.request,
      submission,
      bound: UNBOUND,
      hidden: 'withheld',
      purge: false,
    });
    this.known.set(factKey(community, event.id), 'withheld');
    this.applyVanish(submission);
  }

  private broadcast(submission: Submission): void {
    this.broadcasts.push(submission);
    this.known.set(factKey(submission.community, submission.event.id), 'served');
  }

  /** Moves the high-water mark of the event's key up to it, if it has a key and is the newest. */
  private raiseHead(submission: Submission, row: PlannedRow | undefined): void {
    const { community, event } = submission;
    const address = addressOf(event);
    if (address === undefined) return;
    const key = factKey(community, address);
    const head = this.heads.get(key);
    if (head !== undefined && !isNewer(event, head)) return;
    if (row === undefined) this.supersedeHead(submission);
    const { id, created_at, kind, pubkey } = event;
    const topics = allTopics(event, row?.bound ?? UNBOUND);
    this.heads.set(key, { id, created_at, topics, row });
    this.changedHeads.set(key, { community, address, kind, pubkey, id, created_at, topics });
  }

  private supersedeHead({ community, event }: Submission): void {
    const address = addressOf(event);
    const head = address === undefined ? undefined : this.heads.get(factKey(community, address));
    if (address === undefined || head?.row === undefined) return;
    const { id, created_at, topics, row } = head;
    const old = { id, created_at, pubkey: event.pubkey, kind: event.kind };
    this.hide(community, old, row, topics, address, 'superseded');
    if (this.facts.keepsNoHistory?.has(community)) return;
    this.history.add({ community, address, id, created_at, pubkey: event.pubkey, topics, row });
  }

  /** NIP-09: every own target in the request's own transaction; the others are skipped. */
  private applyDeletion({ community, event: request }: Submission): void {
    for (const target of deletionTargets(request)) {
      const stored = this.storedTarget(community, target);
      const rightful = stored !== undefined && deletes(request, target, stored.event);
      if (stored !== undefined && target.type === 'id' && !rightful) continue;
      if (rightful) this.hideStored(community, stored, 'deleted');
      const superseded = this.history.take(community, request, target);
      for (const version of superseded) this.deleteSuperseded(version);
      const { pubkey: author, created_at: requestedAt, id: deletionId } = request;
      const key = tombstoneKey(community, targetName(target), author);
      this.tombstones.set(key, Math.max(requestedAt, this.tombstones.get(key) ?? requestedAt));
      this.newTombstones.push({
        community,
        target,
        author,
        deletionId,
        requestedAt,
        applied: rightful || superseded.length > 0,
        historyLeft: target.type === 'address' && this.facts.historyLeft === true,
      });
    }
  }

  /** It left the view when it was superseded, and was announced then: only its row has to go the way of deleted ones. */
  private deleteSuperseded({ community, id, row }: Superseded): void {
    const purge = this.facts.purgesDeleted.has(community);
    const planned = this.rows.get(row.seq);
    if (planned === undefined) this.hiddenRows.set(row.seq, { community, id, row, hidden: 'deleted', purge });
    else this.rows.set(row.seq, { ...planned, keep: Keep.current, hidden: 'deleted', purge });
    this.known.set(factKey(community, id), 'deleted');
  }

  private storedTarget(community: number, target: DeletionTarget): StoredEvent | undefined {
    if (target.type === 'id') return this.targets.get(factKey(community, target.id));
    const head = this.heads.get(factKey(community, target.address));
    return head === undefined ? undefined : this.targets.get(factKey(community, head.id));
  }

  private applyVanish({ community, event, vanishIn = [community] }: Submission): void {
    for (const where of vanishIn) {
      const key = factKey(where, event.pubkey);
      this.vanished.set(key, Math.max(event.created_at, this.vanished.get(key) ?? event.created_at));
      this.vanishMarks.push({
        community: where,
        pubkey: event.pubkey,
        until: event.created_at,
        requestId: event.id,
      });
    }
  }

  private hideStored(community: number, { row, event, bound }: StoredEvent, hidden: Announced): void {
    this.hide(community, event, row, allTopics(event, bound), addressOf(event), hidden);
  }

  private hide(
    community: number,
    event: OutboxRow['event'],
    row: RowRef,
    topics: readonly string[],
    address: string | undefined,
    hidden: Announced,
  ): void {
    const idKey = factKey(community, event.id);
    const keep = hidden === 'superseded' ? Keep.history : row.keep;
    const purges = { deleted: this.facts.purgesDeleted, superseded: this.facts.keepsNoHistory };
    const purge =
      (hidden === 'deleted' || hidden === 'superseded') && (purges[hidden]?.has(community) ?? false);
    const planned = this.rows.get(row.seq);
    if (planned === undefined) this.hiddenRows.set(row.seq, { community, id: event.id, row, hidden, purge });
    else this.rows.set(row.seq, { ...planned, keep, hidden, purge });
    this.known.set(idKey, hidden);
    this.targets.delete(idKey);
    const headKey = address === undefined ? undefined : factKey(community, address);
    const head = headKey === undefined ? undefined : this.heads.get(headKey);
    if (headKey !== undefined && head?.id === event.id) this.heads.set(headKey, { ...head, row: undefined });
    this.announce(community, event, topics, address, hidden);
  }

  private announce(
    community: number,
    event: OutboxRow['event'],
    topics: readonly string[],
    effectiveKey: string | undefined,
    hidden: Announced | undefined,
  ): number {
    this.lastSeq += 1;
    const op = hidden === undefined ? 'upsert' : 'delete';
    const reason = hidden === undefined ? undefined : OUTBOX_REASONS[hidden];
    const { lastSeq: seq, now: ingestedAt } = this;
    this.outbox.push({ seq, community, op, reason, event, topics, effectiveKey, ingestedAt });
    return seq;
  }
}
