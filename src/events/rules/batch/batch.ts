/**
 * Decides a batch of events: the reply to each client, and every row that one transaction has to write
 * (writes.ts). Pure. The events are decided one after another, and each sees the effects of those before it.
 * So a batch gives the same view as the same events one by one (I4).
 */
import { commentOf, KIND_REPORT, reportedBy } from '../../../reports/rules.js';
import { allTopics, bindTopics, impliedTopics, topicsOf, UNBOUND } from '../../../topics/rules.js';
import { addressOf, isNewer, KIND_DELETION, KIND_VANISH } from '../classify.js';
import { type Decision, decide, type Facts } from '../decide.js';
import { type DeletionTarget, deletes, deletionTargets, ownersOf, targetName } from '../deletion.js';
import type { NostrEvent } from '../event.js';
import {
  type BatchFacts,
  factKey,
  type Head,
  type RowRef,
  type StoredEvent,
  type Submission,
  tombstoneKey,
} from '../facts.js';
import { type Announced, type Hidden, OUTBOX_REASONS } from '../hidden.js';
import { Keep, keepOf } from '../keep.js';
import { eventDays } from '../retention.js';
import type {
  BatchWrites,
  HiddenRow,
  NewHead,
  NewRow,
  OutboxRow,
  QuotaUse,
  ReportedTarget,
  Tombstone,
  VanishMark,
} from '../writes.js';
import { type AppliedTombstone, appliedTombstones } from './applied-tombstones.js';
import { History, type Superseded } from './history.js';
import { type HeldEvent, type MetRule, Rulings } from './judged.js';

const NO_TOPICS: ReadonlyMap<string, unknown> = new Map();

export function decideBatch(submissions: readonly Submission[], facts: BatchFacts, now: number): BatchWrites {
  const decider = new BatchDecider(facts, now);
  const decisions = submissions.map((submission) => decider.take(submission));
  return decider.finish(decisions);
}

/** A report that a later event of the batch has hidden does not count. */
function isReport({ submission, hidden }: NewRow): boolean {
  return submission.event.kind === KIND_REPORT && hidden === undefined;
}

/** What a stored event of kind 1984 reports. */
export function reportsOf({
  submission: { community, event },
  ingestedAt,
}: Pick<NewRow, 'ingestedAt'> & {
  readonly submission: Pick<Submission, 'community' | 'event'>;
}): ReportedTarget[] {
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

class BatchDecider {
  private readonly known: Map<string, 'served' | Hidden>;
  private readonly heads: Map<string, Head>;
  private readonly targets: Map<string, StoredEvent>;
  private readonly tombstones: Map<string, number>;
  private readonly vanished: Map<string, number>;
  private readonly rows = new Map<number, NewRow>();
  private readonly hiddenRows = new Map<number, HiddenRow>();
  private readonly history: History;
  private readonly rulings: Rulings;
  private readonly held: HeldEvent[] = [];
  private readonly changedHeads = new Map<string, NewHead>();
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
    this.rulings = new Rulings(facts.arrival);
    this.tombstones = new Map(facts.tombstones);
    this.vanished = new Map(facts.vanished);
    this.deletionsLeft = new Map(facts.deletionsLeft);
    this.lastSeq = facts.lastSeq;
  }

  take(submission: Submission): Decision {
    const decision = this.decide(submission);
    if (decision === 'stored' || decision === 'broadcast') return this.rule(submission, decision);
    // A version that its owner deleted before it arrived still moves the high-water mark: nothing older may
    // take its place.
    if (decision === 'deleted') {
      this.raiseHead(submission, undefined);
      const requestedAt = (target: string, author: string) =>
        this.tombstones.get(tombstoneKey(submission.community, target, author));
      this.appliedTombstones.push(...appliedTombstones(submission, requestedAt));
    }
    if (decision === 'vanished' && submission.event.kind === KIND_DELETION)
      return this.applyWithoutRow(submission);
    return decision;
  }

  /** The moderation rules decide last, about an event that would be accepted. */
  private rule(submission: Submission, decision: 'stored' | 'broadcast'): Decision {
    const by = this.rulings.of(submission);
    // An ephemeral event is never stored, so it cannot wait for a moderator.
    if (by !== undefined && (decision === 'broadcast' || (by.rule.action === 'refuse' && !by.unfinished)))
      return 'refused';
    if (by !== undefined) this.hold(submission, by);
    else if (decision === 'stored') this.store(submission);
    else this.broadcast(submission);
    this.rulings.count(submission);
    return decision;
  }

  /**
   * Stored and known, but out of view. The head of its key and the version before it stay as they are. When a
   * moderator restores the event, it counts as if it had just arrived, and the newest version wins in any
   * order (I4).
   */
  private hold(submission: Submission, by: MetRule): void {
    const labels = this.rulings.labelsOf(submission, by);
    const [keep, bound] = [this.keepOf(submission), this.boundOf(submission)];
    this.held.push({ submission, keep, bound, by, labels });
    this.known.set(factKey(submission.community, submission.event.id), 'removed');
  }

  /**
   * The deletion request of a vanished author is not stored, but it still deletes its targets, as it would
   * have done before the mark (I5). It has no row, so its tombstones tell whether it is a repeat.
   */
  private applyWithoutRow(submission: Submission): Decision {
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

  finish(decisions: readonly Decision[]): BatchWrites {
    const rows = [...this.rows.values()];
    return {
      decisions,
      ...(this.erasedUntil.size > 0 ? { erasedUntil: this.erasedUntil } : {}),
      rows,
      held: this.held,
      counted: this.rulings.counted,
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

  /**
   * Requests and tombstones are kept for ever, so each author may make only a limited number per day. A
   * request without a target counts as one.
   */
  private withinQuota({ community, event }: Submission): boolean {
    if (event.kind !== KIND_DELETION) return true;
    const key = factKey(community, event.pubkey);
    const targets = Math.max(1, deletionTargets(event).length);
    const left = (this.deletionsLeft.get(key) ?? Number.POSITIVE_INFINITY) - targets;
    if (left < 0) return false;
    this.deletionsLeft.set(key, left);
    this.quotaUses.push({ community, author: event.pubkey, targets });
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

  /**
   * The topics of the events that a request rightfully deletes: their readers receive the request too. This
   * is called before anything is hidden.
   */
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

  /** A request to vanish takes effect and is kept for the operator, but is neither served nor announced. */
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
  private raiseHead(submission: Submission, row: NewRow | undefined): void {
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

  /**
   * NIP-09: every target of the author is deleted in the transaction of the request; the others are skipped.
   */
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

  /**
   * A superseded version left the view when it was superseded, and its `delete` was announced then. So only
   * its row is marked as deleted.
   */
  private deleteSuperseded({ community, id, row }: Superseded): void {
    const purge = this.facts.purgesDeleted.has(community);
    const own = this.rows.get(row.seq);
    if (own === undefined) this.hiddenRows.set(row.seq, { community, id, row, hidden: 'deleted', purge });
    else this.rows.set(row.seq, { ...own, keep: Keep.current, hidden: 'deleted', purge });
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
    const own = this.rows.get(row.seq);
    if (own === undefined) this.hiddenRows.set(row.seq, { community, id: event.id, row, hidden, purge });
    else this.rows.set(row.seq, { ...own, keep, hidden, purge });
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
