/**
 * The way of one erasure (I12): fenced → counted → deleting → verifying → completed. Every step is saved, and doing one again is
 * harmless, so a run that is killed anywhere is gone on with by the next.
 *
 * A store that fails does not hold up the others: it is named, and tried again. What was found after the deletion goes through it
 * once more, a bounded number of times.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Pool } from 'pg';
import { type MemberSubject, type Subject, settle } from '../core/erasure.js';
import type { Lane } from '../lane.js';
import type { Log } from '../log.js';
import {
  completeErasure,
  fenceCommunity,
  fenceMember,
  fenceVanished,
  isStopped,
  raiseVersions,
  type Saved,
  saveErasure,
} from '../store/erasure-steps.js';
import { type Erasure, readErasure } from '../store/erasures.js';
import { fixSubjectPrint, readSubjectPrint } from '../store/node-state.js';
import { readHead } from '../store/outbox.js';
import type { SubjectKey } from '../subject-key.js';
import type { Certificates } from './certificate.js';
import { type DeletionRegistry, Interrupted } from './deletion-registry.js';
import { lookAtReaders } from './readers.js';

/** Rounds of deleting and counting before what is left is called a failure. */
const PASSES_MAX = 5;
/** How long another instance may take to hand the key over. */
const KEY_WAIT_MS = 2_000;
/** A step that failed before it came to the stores. */
const WHOLE = 'erasure';
/** What the deletion of events leaves behind, whatever was counted there. */
const OUTBOX = 'postgres:events_outbox';
const FOLLOWING = ['postgres:event_dedupe', OUTBOX, 'postgres:trust'];
/** What is deleted here is announced in the outbox. */
const ANNOUNCING = ['postgres:events', 'postgres:labels'];
/**
 * What waits until the readers of the outbox have the deletes; of a community also what they need in order to
 * read it.
 */
const HELD_BACK = {
  member: [OUTBOX],
  community: [OUTBOX, 'postgres:followers', 'postgres:operators', 'postgres:settings'],
} as const;
/** What instances hold in memory is read from these. */
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

/** What is deleted from now on is announced later than what was. */
const UNANNOUNCED = { outboxSeq: null, announcedAt: null } as const;

export interface ErasureRunOptions {
  readonly pool: Pool;
  readonly lane: Lane;
  readonly registry: DeletionRegistry;
  readonly subjectKey: SubjectKey;
  readonly certificates: Certificates;
  readonly now: () => number;
  readonly log?: Log | undefined;
  /** How far ahead of the clock an event may have been signed, in seconds. */
  readonly aheadSeconds: (community: number) => number;
}

/** Batches that one turn may take; then others have theirs. */
export interface Turn {
  left: number;
  readonly signal: AbortSignal;
}

/**
 * `waits`: nothing more to do now, because of a hold or a failure. `patient`: a reader of the outbox has not
 * come so far yet.
 */
export type Outcome = 'completed' | 'more' | 'waits' | 'patient';

export class ErasureRun {
  /** Rows that went in this turn. */
  changed = 0;

  constructor(
    private readonly options: ErasureRunOptions,
    private erasure: Erasure,
  ) {}

  /** Goes on until it is complete, or as far as the turn reaches. */
  async advance(turn: Turn): Promise<Outcome> {
    try {
      for (;;) {
        if (turn.signal.aborted) return 'more';
        // What another turn, an operator or the member has done since.
        if (!(await this.reread()) || this.erasure.heldAt !== null) return 'waits';
        const next = await this.step(turn);
        if (next !== undefined) return next;
      }
    } catch (error) {
      if (error instanceof Interrupted) return turn.left > 0 && !turn.signal.aborted ? 'waits' : 'more';
      return this.fail(new Map([[WHOLE, error instanceof Error ? error.message : String(error)]]));
    }
  }

  /** It waits, and others come first. */
  async rest(): Promise<void> {
    await saveErasure(this.options.pool, this.erasure, {}, this.options.now());
  }

  private step(turn: Turn): Promise<Outcome | undefined> {
    switch (this.erasure.stage) {
      case 'requested':
      case 'grace':
        return this.fence();
      case 'fenced':
        return this.count();
      case 'counted':
        return this.save({ stage: 'deleting', done: [] });
      case 'deleting':
        return this.delete(turn);
      case 'verifying':
        return this.verify();
      default:
        return Promise.resolve('waits');
    }
  }

  // ── Fence ───────────────────────────────────────────────────────────────────────────────────────────────────────

  private async fence(): Promise<undefined> {
    const { subjectKey, lane, pool, aheadSeconds, now } = this.options;
    const { erasure } = this;
    const { community, pubkey } = erasure;
    await this.openKey();
    const subject = subjectKey.hash(community, pubkey ?? undefined);
    const fence = { subject, aheadSeconds: aheadSeconds(community) };
    if (erasure.type === 'community')
      await lane.mark(async (session, at) => {
        await fenceCommunity(session, erasure, fence, at);
        return [];
      });
    else if (erasure.cause === 'vanish') await fenceVanished(pool, erasure, subject, now());
    else {
      const member = { ...erasure, pubkey: pubkey! };
      await lane.mark((session, at) => fenceMember(session, member, fence, at));
    }
    return undefined;
  }

  /** The one of this database; made with the first erasure. */
  private async openKey(): Promise<void> {
    const { subjectKey, pool } = this.options;
    const known = await readSubjectPrint(pool);
    if (known === undefined) await subjectKey.ensure();
    else await subjectKey.awaited(known, KEY_WAIT_MS);
    subjectKey.check(known ?? (await fixSubjectPrint(pool, subjectKey.print!)));
  }

  // ── Count, delete, verify ───────────────────────────────────────────────────────────────────────────────────────

  private async count(): Promise<undefined> {
    const { registry, pool, now } = this.options;
    // Who is fenced is refused on every instance; one who vanishes is not. A kill after the fence may have left it out.
    if (this.erasure.cause !== 'vanish') await raiseVersions(pool);
    const { succeeded, failed } = await registry.countAll(this.subject());
    this.told(failed);
    const settled = settle(this.erasure, succeeded);
    await this.save({ stage: 'counted', countedAt: now(), ...settled, ...UNANNOUNCED });
    return undefined;
  }

  private async delete(turn: Turn): Promise<Outcome | undefined> {
    const { registry, pool } = this.options;
    const { erasureId, type } = this.erasure;
    const failed = new Map(await this.countUncounted());
    const done = new Set(this.erasure.done);
    const deleted = new Map(Object.entries(this.erasure.deleted));
    // Stores outside tell their progress at the same time: each saving holds what the one before it held, and
    // more.
    let saving: Promise<unknown> = Promise.resolve();
    const keep = (): Promise<unknown> => {
      const save = () => this.save({ deleted: Object.fromEntries(deleted), done: [...done] });
      saving = saving.then(save, save);
      return saving;
    };
    const deleteBut = async (apart: readonly string[]): Promise<void> => {
      const collected = await registry.deleteAll(
        this.subject(),
        async (store, taken, isDone) => {
          this.changed += taken;
          if (isDone) done.add(store);
          if (taken > 0) {
            deleted.set(store, (deleted.get(store) ?? 0) + taken);
            turn.left -= 1;
            await keep();
          }
          if (turn.signal.aborted || (!isDone && turn.left <= 0)) throw new Interrupted();
          if (!isDone && (await isStopped(pool, erasureId))) throw new Interrupted();
        },
        new Set([...done, ...this.empty(), ...failed.keys(), ...apart]),
      );
      for (const [store, why] of collected.failed) failed.set(store, why);
      await keep();
      if (CONFIGURED.some((store) => (deleted.get(store) ?? 0) > 0)) await raiseVersions(pool);
    };
    if (this.erasure.outboxSeq === null) {
      await deleteBut(HELD_BACK[type]);
      if (ANNOUNCING.some((store) => failed.has(store))) return this.fail(failed);
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
   * Every delete of this pass is in the outbox: up to where, and since when, is what its readers are measured
   * by.
   */
  private async noteAnnounced(deleted: (store: string) => number): Promise<void> {
    const { pool, now } = this.options;
    const hasNews = (this.erasure.counted[OUTBOX] ?? 1) > 0 || ANNOUNCING.some((store) => deleted(store) > 0);
    const announced = { outboxSeq: hasNews ? await readHead(pool) : 0, announcedAt: now() };
    await this.save(announced);
    this.erasure = { ...this.erasure, ...announced };
  }

  /**
   * I17: every follower has acknowledged the deletes, or its time is over; what is still to come is saved for
   * people to see.
   */
  private async isReadOutside(): Promise<boolean> {
    const { erasureId, community, cause, outboxSeq, announcedAt, waits, unacknowledged } = this.erasure;
    if (!outboxSeq || announcedAt === null) return true;
    // After a restore the offsets that followers know are of another outbox: each must rebuild, and there is
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

  /** Stores that counted nothing the last time. What follows from the others is found by the next count. */
  private empty(): string[] {
    const { counted, added, verified, passes } = this.erasure;
    const rows = (store: string) =>
      passes === 0 ? counted[store]! + (added[store] ?? 0) : (verified[store] ?? 0);
    return Object.keys(passes === 0 ? counted : verified).filter(
      (store) => rows(store) === 0 && !FOLLOWING.includes(store),
    );
  }

  /**
   * A store that did not answer when the others were counted. One that still does not is not deleted from:
   * its rows could not add up.
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
    const { pool, certificates, now } = this.options;
    const at = now();
    const isDone = await completeErasure(pool, this.erasure, await certificates.sign(this.erasure, at), at);
    // Held, or asked for in another way, at the last moment.
    if (!isDone) return 'more';
    await certificates.keepFile();
    return 'completed';
  }

  /** It stays where it is; what was done is done. */
  private async fail(failed: ReadonlyMap<string, string>): Promise<Outcome> {
    this.told(failed);
    const { tries, stage } = this.erasure;
    await this.save({
      failures: Object.fromEntries(failed),
      failedAt: this.options.now(),
      tries: tries + 1,
      passes: 0,
      // What was found too late is deleted again; a step that failed as a whole is done again.
      ...(stage === 'verifying' ? { stage: 'deleting' as const } : {}),
    }).catch(() => undefined);
    return 'waits';
  }

  private told(failed: ReadonlyMap<string, string>): void {
    for (const [store, error] of failed)
      this.options.log?.warn({ erasure: this.erasure.erasureId, store, error }, 'a store was not erased');
  }

  private subject(): Subject {
    return subjectOf(this.erasure);
  }

  /** Somebody may have changed its course since it was read: then this turn ends. */
  private async save(saved: Saved): Promise<undefined> {
    if (!(await saveErasure(this.options.pool, this.erasure, saved, this.options.now())))
      throw new Interrupted();
    return undefined;
  }

  /** False when it is gone, with the community that it was of. */
  private async reread(): Promise<boolean> {
    const erasure = await readErasure(this.options.pool, this.erasure.erasureId);
    this.erasure = erasure ?? this.erasure;
    return erasure !== undefined;
  }
}

/**
 * Of one who asked to vanish, and after a restore, only what is up to then; of everybody else everything, because the fence lets nothing new
 * in.
 */
export function subjectOf({ type, community, pubkey, cause, until, fencedAt }: Erasure): Subject {
  const since = fencedAt === null ? {} : { fencedAt };
  if (type === 'community') return { type, community, ...since };
  const member: MemberSubject = { type, community, pubkey: pubkey!, ...since };
  if (cause === 'replay' && until !== null) return { ...member, until };
  return cause === 'vanish' ? { ...member, until: until!, vanishes: true } : member;
}
