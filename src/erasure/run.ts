/**
 * The stages of one erasure (I12): fenced → counted → deleting → verifying → completed. Every step is saved
 * and may be repeated, so the next run continues wherever one was killed.
 *
 * A store that fails does not hold up the others: the erasure names it and tries it again. Rows that are
 * found after the deletion are deleted in another round; the number of rounds is bounded (I14).
 */
import { isDeepStrictEqual } from 'node:util';
import type { Pool } from 'pg';
import type { EventStore } from '../events/store.js';
import type { SubjectKey } from '../keys/subject-key.js';
import type { Log } from '../node/log.js';
import { fixSubjectFingerprint, readSubjectFingerprint } from '../node/state.sql.js';
import { readHead } from '../outbox/outbox.sql.js';
import type { Certificates } from './certificates/sign.js';
import { type Erasure, readErasure } from './erasures.sql.js';
import { lookAtReaders } from './readers.js';
import { type MemberSubject, type Subject, settle } from './rules.js';
import {
  completeErasure,
  fenceCommunity,
  fenceMember,
  fenceVanished,
  isStopped,
  raiseUntil,
  raiseVersions,
  type Saved,
  saveErasure,
} from './steps.sql.js';
import { type DeletionRegistry, Interrupted } from './stores/deletion-registry.js';

/** Rounds of deleting and counting; rows that are left after the last one are a failure. */
const PASSES_MAX = 5;
/** How long to wait for another instance that shares its key. */
const KEY_WAIT_MS = 2_000;
/** Named instead of a store when a step failed before it reached the stores. */
const WHOLE = 'erasure';
/** Deleting events adds rows here, so they are never skipped as empty. */
const OUTBOX = 'postgres:events_outbox';
const FOLLOWING = ['postgres:event_dedupe', OUTBOX, 'postgres:trust'];
/**
 * What consumers derive from events. It is deleted before the events, in large batches, and not row by row.
 */
const DERIVED = ['postgres:search_documents', 'postgres:trust'];
const EVENTS = ['postgres:events', 'dynamodb:events'];
/** Deletions in these stores are announced in the outbox. */
const ANNOUNCING = [...EVENTS, 'postgres:labels'];
/**
 * Deleted only when the readers of the outbox have the deletes; of a community also what they need in order
 * to read it.
 */
const HELD_BACK = {
  member: [OUTBOX],
  community: [OUTBOX, 'postgres:followers', 'postgres:operators', 'postgres:settings'],
} as const;
/** Instances keep these in memory, and read them again when their version is raised. */
const CONFIGURED = [
  'members',
  'operators',
  'blocked_authors',
  'settings',
  'moderation_rules',
  'topic_subscriptions',
  'topics',
  'consents',
].map((name) => `postgres:${name}`);

/** What is deleted from now on gets later offsets in the outbox. */
const UNANNOUNCED = { outboxSeq: null, announcedAt: null } as const;

export interface ErasureRunOptions {
  readonly pool: Pool;
  readonly store: EventStore;
  readonly registry: DeletionRegistry;
  readonly subjectKey: SubjectKey;
  readonly certificates: Certificates;
  readonly now: () => number;
  readonly log?: Log | undefined;
  /** How far ahead of the clock an event may have been signed, in seconds. */
  readonly aheadSeconds: (community: number) => number;
}

/** Batches that this erasure may take before the others have their share. */
export interface Budget {
  left: number;
  readonly signal: AbortSignal;
}

/**
 * `waits`: nothing more to do now, because of a hold or a failure. `patient`: a reader of the outbox is still
 * behind.
 */
export type Outcome = 'completed' | 'more' | 'waits' | 'patient';

export class ErasureRun {
  /** Rows deleted in this run. */
  changed = 0;

  constructor(
    private readonly options: ErasureRunOptions,
    private erasure: Erasure,
  ) {}

  /** Continues until the erasure is complete or the budget is used up. */
  async advance(budget: Budget): Promise<Outcome> {
    try {
      for (;;) {
        if (budget.signal.aborted) return 'more';
        // Another run, an operator or the member may have changed it since.
        if (!(await this.reread()) || this.erasure.heldAt !== null) return 'waits';
        const next = await this.step(budget);
        if (next !== undefined) return next;
      }
    } catch (error) {
      if (error instanceof Interrupted) return budget.left > 0 && !budget.signal.aborted ? 'waits' : 'more';
      return this.fail(new Map([[WHOLE, error instanceof Error ? error.message : String(error)]]));
    }
  }

  /** It waits; the next run takes the others first. */
  async rest(): Promise<void> {
    await saveErasure(this.options.pool, this.erasure, {}, this.options.now());
  }

  private step(budget: Budget): Promise<Outcome | undefined> {
    switch (this.erasure.stage) {
      case 'requested':
      case 'grace':
        return this.fence();
      case 'fenced':
        return this.count();
      case 'counted':
        return this.save({ stage: 'deleting', done: [] });
      case 'deleting':
        return this.delete(budget);
      case 'verifying':
        return this.verify();
      default:
        return Promise.resolve('waits');
    }
  }

  // ── Fence ────────────────────────────────────────────────────────────────────────────────────────────────

  private async fence(): Promise<undefined> {
    const { subjectKey, store, pool, aheadSeconds, now } = this.options;
    const { erasure } = this;
    const { community, pubkey } = erasure;
    await this.openKey();
    const subject = subjectKey.hash(community, pubkey ?? undefined);
    if (erasure.type === 'community')
      await store.mark(async (session, at) => {
        const fence = { subject, aheadSeconds: aheadSeconds(community) };
        await fenceCommunity(session, erasure, fence, at);
        return [];
      });
    else if (erasure.cause === 'vanish') await fenceVanished(pool, erasure, subject, now());
    else {
      const member = { ...erasure, pubkey: pubkey! };
      await store.mark((session, at) => fenceMember(session, member, subject, at));
    }
    return undefined;
  }

  /** The key of this database. The first erasure makes it. */
  private async openKey(): Promise<void> {
    const { subjectKey, pool } = this.options;
    const known = await readSubjectFingerprint(pool);
    if (known === undefined) await subjectKey.ensure();
    else await subjectKey.awaited(known, KEY_WAIT_MS);
    subjectKey.check(known ?? (await fixSubjectFingerprint(pool, subjectKey.fingerprint!)));
  }

  // ── Count, delete, verify ────────────────────────────────────────────────────────────────────────────────

  /** Nothing more is accepted, so the newest event is known. */
  private async raiseUntil(): Promise<void> {
    const { pool, store, aheadSeconds } = this.options;
    const { erasureId, community, pubkey, cause, fencedAt } = this.erasure;
    if (cause === 'vanish') return;
    const fence = { at: Math.floor(fencedAt! / 1_000), aheadSeconds: aheadSeconds(community) };
    const owned = pubkey === null ? { community } : { community, pubkey };
    await raiseUntil(pool, erasureId, await store.newestOf(owned, fence));
    await this.reread();
  }

  private async count(): Promise<undefined> {
    const { registry, pool, now } = this.options;
    await this.raiseUntil();
    // Every instance refuses a fenced member, but not one who vanishes. A kill right after the fence may have
    // skipped this.
    if (this.erasure.cause !== 'vanish') await raiseVersions(pool);
    const { succeeded, failed } = await registry.countAll(this.subject());
    this.logFailures(failed);
    const settled = settle(this.erasure, succeeded);
    await this.save({ stage: 'counted', countedAt: now(), ...settled, ...UNANNOUNCED });
    return undefined;
  }

  private async delete(budget: Budget): Promise<Outcome | undefined> {
    const { registry, pool } = this.options;
    const { erasureId, type } = this.erasure;
    const failed = new Map(await this.countUncounted());
    const done = new Set(this.erasure.done);
    const deleted = new Map(Object.entries(this.erasure.deleted));
    // Stores outside PostgreSQL report progress at the same time. Each save contains what the one before it
    // contained.
    let saving: Promise<unknown> = Promise.resolve();
    const keep = (): Promise<unknown> => {
      const save = () => this.save({ deleted: Object.fromEntries(deleted), done: [...done] });
      saving = saving.then(save, save);
      return saving;
    };
    const add = (store: string, rows: number) => deleted.set(store, (deleted.get(store) ?? 0) + rows);
    const deleteBut = async (apart: readonly string[], notesDone = true): Promise<void> => {
      const collected = await registry.deleteAll(
        this.subject(),
        async (store, taken, isDone, beside = {}) => {
          this.changed += taken;
          if (isDone && notesDone) done.add(store);
          if (taken > 0) {
            add(store, taken);
            for (const [other, rows] of Object.entries(beside)) add(other, rows);
            budget.left -= 1;
          }
          const [stopped] = await Promise.all([
            isDone ? false : isStopped(pool, erasureId),
            taken > 0 ? keep() : undefined,
          ]);
          if (stopped || budget.signal.aborted || (!isDone && budget.left <= 0)) throw new Interrupted();
        },
        new Set([...done, ...this.empty(), ...failed.keys(), ...apart]),
      );
      for (const [store, why] of collected.failed) failed.set(store, why);
      await keep();
      if (CONFIGURED.some((store) => (deleted.get(store) ?? 0) > 0)) await raiseVersions(pool);
    };
    if (this.erasure.outboxSeq === null) {
      // They are deleted after the events as well, because a consumer may have added rows meanwhile.
      const skipped = new Set([...done, ...this.empty()]);
      if (EVENTS.some((name) => registry.registeredNames().includes(name) && !skipped.has(name)))
        await deleteBut(
          registry.registeredNames().filter((name) => !DERIVED.includes(name)),
          false,
        );
      await deleteBut(HELD_BACK[type]);
      if (ANNOUNCING.some((store) => failed.has(store))) return this.fail(failed);
      // The log follows a store in DynamoDB by a moment.
      if (!(await this.options.store.settled())) return 'patient';
      await this.noteAnnounced((store) => deleted.get(store) ?? 0);
    }
    if (!(await this.isReadOutside())) {
      if (failed.size > 0) return this.fail(failed);
      if (this.erasure.failedAt !== null) await this.save({ failures: {}, failedAt: null });
      return 'patient';
    }
    await deleteBut([]);
    if (failed.size > 0) return this.fail(failed);
    return this.save({ stage: 'verifying', failures: {}, failedAt: null });
  }

  /**
   * Every delete of this pass is in the outbox. The offset and the time are saved: readers must have passed
   * the one, and their time limits count from the other.
   */
  private async noteAnnounced(deleted: (store: string) => number): Promise<void> {
    const { pool, now } = this.options;
    const hasNews = (this.erasure.counted[OUTBOX] ?? 1) > 0 || ANNOUNCING.some((store) => deleted(store) > 0);
    const announced = { outboxSeq: hasNews ? await readHead(pool) : 0, announcedAt: now() };
    await this.save(announced);
    this.erasure = { ...this.erasure, ...announced };
  }

  /**
   * I17: true when every follower has acknowledged the deletes, or its time limit is over. Those that the
   * erasure waits for are saved, so that operators see them.
   */
  private async isReadOutside(): Promise<boolean> {
    const { erasureId, community, cause, outboxSeq, announcedAt, waits, unacknowledged } = this.erasure;
    if (!outboxSeq || announcedAt === null) return true;
    // After a restore the offsets of followers belong to another outbox: each must rebuild, so there is
    // nothing to wait for.
    const announced = { erasureId, community, seq: outboxSeq, at: announcedAt, mayWait: cause !== 'replay' };
    const found = await lookAtReaders(this.options, announced, this.options.now());
    const earlier = unacknowledged.filter(({ name }) =>
      found.unacknowledged.every((follower) => follower.name !== name),
    );
    const noted = { waits: found.waits, unacknowledged: [...earlier, ...found.unacknowledged] };
    if (!isDeepStrictEqual(noted, { waits, unacknowledged })) await this.save(noted);
    return found.mayGoOn;
  }

  /** Stores that counted 0 the last time. Rows that are added to them since are found by the next count. */
  private empty(): string[] {
    const { counted, added, verified, passes } = this.erasure;
    const rows = (store: string) =>
      passes === 0 ? counted[store]! + (added[store] ?? 0) : (verified[store] ?? 0);
    return Object.keys(passes === 0 ? counted : verified).filter(
      (store) => rows(store) === 0 && !FOLLOWING.includes(store),
    );
  }

  /**
   * Counts the stores that did not answer when the others were counted. Nothing is deleted from one that
   * still does not answer: its rows would not add up in the certificate.
   */
  private async countUncounted(): Promise<ReadonlyMap<string, string>> {
    const { counted, done } = this.erasure;
    const names = this.options.registry
      .registeredNames()
      .filter((name) => counted[name] === undefined && !done.includes(name));
    if (names.length === 0) return new Map();
    const { succeeded, failed } = await this.options.registry.countAll(this.subject(), new Set(names));
    await this.save(settle(this.erasure, succeeded));
    await this.reread();
    return failed;
  }

  private async verify(): Promise<Outcome | undefined> {
    const { registry } = this.options;
    const subject = this.subject();
    const { succeeded, failed } = await registry.countAll(subject);
    const kept = await registry.keptAll(subject);
    const left = [...succeeded].filter(([, count]) => count > 0);
    const problems = new Map([...failed, ...kept.failed]);
    const { passes } = this.erasure;
    const settled = settle(this.erasure, succeeded);
    if (left.length > 0 && passes + 1 < PASSES_MAX)
      return this.save({
        stage: 'deleting',
        done: [],
        passes: passes + 1,
        verified: Object.fromEntries(succeeded),
        ...settled,
        ...UNANNOUNCED,
      });
    for (const [store, count] of left)
      problems.set(store, `${count} are still there after ${PASSES_MAX} rounds`);
    if (problems.size > 0) return this.fail(problems);
    const stays = [...kept.succeeded].flatMap(([store, rows]) => (rows === undefined ? [] : [[store, rows]]));
    await this.save({ verified: Object.fromEntries(succeeded), kept: Object.fromEntries(stays), ...settled });
    await this.reread();
    return this.complete();
  }

  private async complete(): Promise<Outcome> {
    const { pool, certificates, store, now } = this.options;
    const at = now();
    const { community, pubkey, until, cause } = this.erasure;
    // Nothing is left to hide. The mark of the control plane refuses everything until the completion.
    if (pubkey !== null)
      await store.endMark({ community, pubkey, until: until! }, { forget: cause !== 'vanish' });
    const isDone = await completeErasure(pool, this.erasure, await certificates.sign(this.erasure, at), at);
    // It was held at the last moment, or requested again with another cause.
    if (!isDone) return 'more';
    await certificates.keepFile();
    return 'completed';
  }

  /** The stage stays; what was deleted stays deleted. */
  private async fail(failed: ReadonlyMap<string, string>): Promise<Outcome> {
    this.logFailures(failed);
    const { tries, stage } = this.erasure;
    await this.save({
      failures: Object.fromEntries(failed),
      failedAt: this.options.now(),
      tries: tries + 1,
      passes: 0,
      // Rows that were found at the end are deleted in another round.
      ...(stage === 'verifying' ? { stage: 'deleting' as const } : {}),
    }).catch(() => undefined);
    return 'waits';
  }

  private logFailures(failed: ReadonlyMap<string, string>): void {
    for (const [store, error] of failed)
      this.options.log?.warn({ erasure: this.erasure.erasureId, store, error }, 'a store was not erased');
  }

  private subject(): Subject {
    return subjectOf(this.erasure);
  }

  /** Stops this run when somebody has changed the erasure since it was read. */
  private async save(saved: Saved): Promise<undefined> {
    if (!(await saveErasure(this.options.pool, this.erasure, saved, this.options.now())))
      throw new Interrupted();
    return undefined;
  }

  /** False when it was deleted together with its community. */
  private async reread(): Promise<boolean> {
    const erasure = await readErasure(this.options.pool, this.erasure.erasureId);
    this.erasure = erasure ?? this.erasure;
    return erasure !== undefined;
  }
}

/**
 * After a request to vanish and after a restore, only what was signed up to `until`. In all other cases
 * everything, because the fence lets nothing new in.
 */
export function subjectOf({ type, community, pubkey, cause, until, fencedAt }: Erasure): Subject {
  const since = fencedAt === null ? {} : { fencedAt };
  if (type === 'community') return { type, community, ...since };
  const member: MemberSubject = { type, community, pubkey: pubkey!, ...since };
  if (cause === 'replay' && until !== null) return { ...member, until };
  return cause === 'vanish' ? { ...member, until: until!, vanishes: true } : member;
}
