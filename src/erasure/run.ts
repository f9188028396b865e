/**
 * The way of one erasure (I12): fenced → counted → deleting → verifying → completed. Every step is saved, and doing one again is
 * harmless, so a run that is killed anywhere is gone on with by the next.
 *
 * A store that fails does not hold up the others: it is named, and tried again. What was found after the deletion goes through it
 * once more, a bounded number of times.
 */
import type { Pool } from 'pg';
import type { MemberSubject, Subject } from '../core/erasure.js';
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
import { fixSubjectPrint } from '../store/node-state.js';
import type { SubjectKey } from '../subject-key.js';
import type { Certificates } from './certificate.js';
import { type DeletionRegistry, Interrupted } from './deletion-registry.js';

/** Rounds of deleting and counting before what is left is called a failure. */
const PASSES_MAX = 5;

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

/** `waits`: nothing more to do now, because of a hold or a failure. */
export type Outcome = 'completed' | 'more' | 'waits';

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
        if (await isStopped(this.options.pool, this.erasure.erasureId)) return 'waits';
        const next = await this.step(turn);
        if (next !== undefined) return next;
        await this.reread();
      }
    } catch (error) {
      if (!(error instanceof Interrupted)) throw error;
      return turn.left > 0 ? 'waits' : 'more';
    }
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
    await subjectKey.ensure();
    subjectKey.check(await fixSubjectPrint(pool, subjectKey.print!));
    const subject = subjectKey.hash(community, pubkey ?? undefined);
    if (erasure.type === 'community')
      await lane.mark(async (session, at) => {
        await fenceCommunity(session, erasure, subject, at);
        return [];
      });
    else if (erasure.cause === 'vanish')
      await fenceVanished(pool, { ...erasure, pubkey: pubkey! }, subject, now());
    else {
      // Events that were signed ahead of the clock are here already, and must not come back either.
      const until = erasure.until ?? Math.floor(now() / 1_000) + aheadSeconds(community);
      const member = { ...erasure, pubkey: pubkey! };
      await lane.mark((session, at) => fenceMember(session, member, { subject, until }, at));
    }
    return undefined;
  }

  // ── Count, delete, verify ───────────────────────────────────────────────────────────────────────────────────────

  private async count(): Promise<undefined> {
    const { registry, pool, now } = this.options;
    // A kill after the fence may have left this out.
    await raiseVersions(pool);
    const { succeeded, failed } = await registry.countAll(this.subject());
    this.told(failed);
    await this.save({ stage: 'counted', countedAt: now(), counted: Object.fromEntries(succeeded) });
    return undefined;
  }

  private async delete(turn: Turn): Promise<Outcome | undefined> {
    const { registry, pool, now } = this.options;
    const { erasureId } = this.erasure;
    await this.countUncounted();
    const done = new Set(this.erasure.done);
    const deleted = new Map(Object.entries(this.erasure.deleted));
    const { failed } = await registry.deleteAll(
      this.subject(),
      async (store, taken, isDone) => {
        this.changed += taken;
        if (taken > 0) deleted.set(store, (deleted.get(store) ?? 0) + taken);
        if (isDone) done.add(store);
        const saved = { deleted: Object.fromEntries(deleted), done: [...done] };
        if (taken > 0 || isDone) await saveErasure(pool, erasureId, saved, now());
        if (taken > 0) turn.left -= 1;
        if (turn.signal.aborted || (!isDone && turn.left <= 0)) throw new Interrupted();
        if (taken > 0 && (await isStopped(pool, erasureId))) throw new Interrupted();
      },
      done,
    );
    await raiseVersions(pool);
    if (failed.size > 0) return this.fail(failed);
    return this.save({ stage: 'verifying', failures: {}, failedAt: null });
  }

  /** A store that did not answer when the others were counted. */
  private async countUncounted(): Promise<void> {
    const { counted, done } = this.erasure;
    const names = this.options.registry
      .registeredNames()
      .filter((name) => counted[name] === undefined && !done.includes(name));
    if (names.length === 0) return;
    const { succeeded } = await this.options.registry.countAll(this.subject(), new Set(names));
    await this.save({ counted: { ...counted, ...Object.fromEntries(succeeded) } });
    await this.reread();
  }

  private async verify(): Promise<Outcome | undefined> {
    const { registry } = this.options;
    const subject = this.subject();
    const { succeeded, failed } = await registry.countAll(subject);
    const kept = await registry.keptAll(subject);
    const left = [...succeeded].filter(([, count]) => count > 0);
    const problems = new Map([...failed, ...kept.failed]);
    const { passes } = this.erasure;
    if (left.length > 0 && passes + 1 < PASSES_MAX)
      return this.save({ stage: 'deleting', done: [], passes: passes + 1 });
    for (const [store, count] of left)
      problems.set(store, `${count} are still there after ${PASSES_MAX} rounds`);
    if (problems.size > 0) return this.fail(problems);
    const stays = [...kept.succeeded].flatMap(([store, rows]) => (rows === undefined ? [] : [[store, rows]]));
    await this.save({ verified: Object.fromEntries(succeeded), kept: Object.fromEntries(stays) });
    await this.reread();
    return this.complete();
  }

  private async complete(): Promise<Outcome> {
    const { pool, certificates, now } = this.options;
    const at = now();
    await completeErasure(pool, this.erasure, await certificates.sign(this.erasure, at), at);
    await certificates.keepFile();
    return 'completed';
  }

  /** It stays where it is; what was done is done. */
  private async fail(failed: ReadonlyMap<string, string>): Promise<Outcome> {
    this.told(failed);
    const { tries } = this.erasure;
    await this.save({
      failures: Object.fromEntries(failed),
      failedAt: this.options.now(),
      tries: tries + 1,
      passes: 0,
      stage: 'deleting',
    });
    return 'waits';
  }

  private told(failed: ReadonlyMap<string, string>): void {
    for (const [store, error] of failed)
      this.options.log?.warn({ erasure: this.erasure.erasureId, store, error }, 'a store was not erased');
  }

  private subject(): Subject {
    return subjectOf(this.erasure);
  }

  private async save(saved: Saved): Promise<undefined> {
    await saveErasure(this.options.pool, this.erasure.erasureId, saved, this.options.now());
    return undefined;
  }

  private async reread(): Promise<void> {
    this.erasure = (await readErasure(this.options.pool, this.erasure.erasureId)) ?? this.erasure;
  }
}

/** Of one who asked to vanish only what is up to then; of everybody else everything, because the fence lets nothing new in. */
export function subjectOf({ type, community, pubkey, cause, until, fencedAt }: Erasure): Subject {
  if (type === 'community') return { type, community };
  const member: MemberSubject = {
    type,
    community,
    pubkey: pubkey!,
    ...(fencedAt === null ? {} : { fencedAt }),
  };
  return cause === 'vanish' ? { ...member, until: until!, vanishes: true } : member;
}
