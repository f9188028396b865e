/**
 * Short work of jobs, moderation and erasure under the lane's lock: hide, sweep, restore, mark. The caller
 * retries failed work; the session is dropped, so nothing of the work stays.
 */
import { type SubjectKey, SubjectKeyMissing } from '../../../keys/subject-key.js';
import type { Metrics } from '../../../node/metrics.js';
import type { BatchWrites } from '../../rules/writes.js';
import type { EventRef, Hiding, Marking, Ordered, Restored, SweepOf, Swept } from '../../store.js';
import { type HistoryDeletion, type HistoryPage, pageOfHistory } from '../history.js';
import { moveRows, type SweepStep, sweepStep } from '../keeping.js';
import { selectOrdered, selectServed } from '../selections.js';
import { KEY_WAIT_MS } from './batches.js';
import type { LaneSession, RowPlace } from './session.js';
import {
  type HidingWork,
  type TransactionOptions,
  transactHiding,
  transactMarks,
  transactRestore,
} from './transactions.js';

export interface WorkOptions extends TransactionOptions {
  readonly session: LaneSession;
  readonly metrics: Metrics;
  readonly subjectKey?: SubjectKey;
  readonly onCommit?: ((writes: BatchWrites) => void) | undefined;
}

export class Works {
  constructor(private readonly options: WorkOptions) {}

  hide({ which, forget = false, ...how }: Hiding): Promise<number> {
    const select: HidingWork['select'] =
      'due' in which
        ? (session, now) => selectOrdered(session, which, now)
        : (session, now) => selectServed(session, which, now);
    const isTaken = 'by' in which && which.by === 'read';
    return this.take({ ...how, forget: isTaken ? 'taken' : forget, select });
  }

  async sweep({ after, rules }: SweepOf): Promise<Swept> {
    let step: SweepStep | undefined;
    const { tagHash } = this.options;
    const select: HidingWork['select'] = async (session, now) => {
      step = await sweepStep(session, after, rules, now);
      await moveRows(session, step.misplaced, tagHash);
      return step.aged;
    };
    // An old row may move to a bucket that was not in use in its month.
    const places = () =>
      (step?.misplaced ?? []).map(({ row, to }) => ({ keep: to, ingestedAt: row.ingestedAt }));
    const hidden = await this.take({ hidden: 'retention', purge: true, select }, places);
    return { hidden, moved: step?.misplaced.length ?? 0, next: step?.next };
  }

  /** Deletes one page of the versions that a deletion has left, and returns the start of the next page. */
  async deletePage(
    deletion: HistoryDeletion,
    rowsMax: number,
  ): Promise<{ readonly versions: number; readonly next: HistoryPage['next'] }> {
    let page: HistoryPage | undefined;
    const purge = this.options.settingsOf(deletion.community)['deletion.mode'] === 'physical';
    const select: HidingWork['select'] = async (session) => {
      page = await pageOfHistory(session, deletion, rowsMax);
      return page.rows;
    };
    const versions = await this.take({ hidden: 'deleted', purge, select });
    return { versions, next: page?.next };
  }

  async restore(which: readonly EventRef[] | Ordered<Restored>, attempt = 1): Promise<Restored[]> {
    const { session, subjectKey, onCommit } = this.options;
    try {
      const { writes, restored } = await session.run((client) =>
        transactRestore(client, which, this.options),
      );
      if (writes.outbox.length > 0) onCommit?.(writes);
      return restored;
    } catch (error) {
      const lacksKey = error instanceof SubjectKeyMissing && attempt === 1;
      if (lacksKey && (await subjectKey?.awaited(error.fingerprint, KEY_WAIT_MS)))
        return this.restore(which, 2);
      throw error;
    }
  }

  async mark(work: Marking): Promise<void> {
    const { session, onCommit } = this.options;
    const writes = await session.run((client) => transactMarks(client, work, this.options));
    onCommit?.(writes);
  }

  private async take(work: HidingWork, places?: () => readonly RowPlace[]): Promise<number> {
    const { session, metrics, onCommit } = this.options;
    const writes = await session.run((client) => transactHiding(client, work, this.options), places);
    metrics.hidden.inc({ reason: work.hidden }, writes.hidden.length);
    if (writes.outbox.length > 0) onCommit?.(writes);
    return writes.hidden.length;
  }
}
