/**
 * NIP-62: everything by a pubkey up to its mark, its deletion requests, reports and exports too, what search and other consumers have of
 * it, what moderation noted about it, and gift wraps to it, physically. The mark hides all of it meanwhile and goes on refusing it afterwards (I6). The request itself (kind 62) stays for the operator.
 *
 * One mark goes through the steps of ERASURE_STEPS. Each batch is whole by itself, and where the search for gift wraps has
 * come is kept with the mark, so a run that stops anywhere is gone on with. The marks take turns, batch by batch: a large
 * erasure does not hold up the small ones.
 */
import type { Client } from 'pg';
import type { RowRef } from '../core/plan.js';
import { eraseLettersOf } from '../store/consumers.js';
import { eraseCasesOf, eraseLabels, labelsOfVanished } from '../store/moderation.js';
import { eraseExportsOf } from '../store/personal-requests.js';
import { eraseReportsOf } from '../store/reports.js';
import { selectRemovable } from '../store/restore.js';
import { eraseDocumentsOf } from '../store/search-documents.js';
import {
  countOfVanished,
  ERASURE_STEPS,
  type ErasureProgress,
  markErased,
  type Page,
  type PendingMark,
  pageOfHiddenWraps,
  pageOfWraps,
  pendingMarks,
  purgeHiddenAt,
  purgeHiddenOfVanished,
  saveProgress,
  selectOfVanished,
  selectServedAt,
} from '../store/sweeps.js';
import { eraseTrustOf } from '../store/trust.js';
import type { Job, JobContext, JobResult } from './job.js';
import { tallied } from './tally.js';

/** Portions of exported files that go in one statement; each has a megabyte. */
const PORTIONS_MAX = 64;
/** Marks that one run looks at; the others wait for the next. */
const MARKS_MAX = 100;

export const eraseVanished: Job = {
  name: 'erase-vanished',
  cron: '* * * * *',
  about: 'erases what belongs to those who asked to vanish (NIP-62)',
  purges: true,
  run: async (context, client) => {
    const marks = await pendingMarks(client, MARKS_MAX);
    const erasures = marks.map((mark) => new Erasure(mark, context, client));
    return takeTurns(context, erasures, marks.length === MARKS_MAX);
  },
  dryRun: async (_context, client) => {
    const counts = [];
    for (const mark of await pendingMarks(client, MARKS_MAX))
      counts.push(...(await countOfVanished(client, mark)));
    return tallied('vanished', counts);
  },
};

async function takeTurns(
  { bounds, signal }: JobContext,
  erasures: readonly Erasure[],
  moreMarks: boolean,
): Promise<JobResult> {
  let waiting = [...erasures];
  let changed = 0;
  let batches = 0;
  while (waiting.length > 0) {
    for (const erasure of waiting) {
      if (batches >= bounds.batches || signal.aborted) return { changed, more: true };
      batches += 1;
      changed += await erasure.batch();
    }
    waiting = waiting.filter((erasure) => !erasure.done);
  }
  return { changed, more: moreMarks };
}

class Erasure {
  done = false;
  private progress: ErasureProgress;

  constructor(
    private readonly mark: PendingMark,
    private readonly context: JobContext,
    private readonly client: Client,
  ) {
    const { progress, until } = mark;
    this.progress = progress?.until === until ? progress : startOf(mark, 'served');
  }

  /** One transaction's worth of the step at hand. Returns how many rows went. */
  async batch(): Promise<number> {
    const { mark, client, context } = this;
    const { rows } = context.bounds;
    switch (this.progress.step) {
      case 'served':
        return this.untilEmpty(await this.hide((session) => selectOfVanished(session, mark, rows)));
      case 'hidden':
        return this.untilEmpty(await purgeHiddenOfVanished(client, mark, context.now(), rows));
      case 'wraps':
        return this.takePage(await pageOfWraps(client, mark, this.progress), (found) =>
          this.hide((session) => selectServedAt(session, found, rows)),
        );
      case 'hidden-wraps':
        return this.takePage(await pageOfHiddenWraps(client, mark, this.progress), (found) =>
          purgeHiddenAt(client, found, context.now()),
        );
      case 'reports':
        return this.untilEmpty(await eraseReportsOf(client, mark, rows));
      case 'exports':
        return this.untilEmpty(await eraseExportsOf(client, mark, context.now(), PORTIONS_MAX));
      case 'documents':
        return this.untilEmpty(await eraseDocumentsOf(client, mark, rows));
      case 'letters':
        return this.untilEmpty(await eraseLettersOf(client, mark, rows));
      case 'labels':
        return this.untilEmpty(await this.takeLabels(rows));
      case 'cases':
        return this.untilEmpty(await eraseCasesOf(client, mark, rows));
      case 'trust':
        return this.untilEmpty(await eraseTrustOf(client, mark, context.now(), rows));
    }
  }

  private hide(select: (session: Client) => ReturnType<typeof selectOfVanished>): Promise<number> {
    return this.context.lane.hide({ hidden: 'vanished', purge: true, select });
  }

  /** The events that tell the labels go first: without the labels nobody would know of them. */
  private async takeLabels(rows: number): Promise<number> {
    const { ids, events } = await labelsOfVanished(this.client, this.mark, rows);
    if (events.length > 0) await this.hide((session) => selectRemovable(session, events));
    return ids.length === 0 ? 0 : eraseLabels(this.client, ids);
  }

  private async untilEmpty(taken: number): Promise<number> {
    if (taken === 0) await this.nextStep();
    return taken;
  }

  /** A page is passed once nothing of it is found any more: rows that one batch could not hold are found again. */
  private async takePage(page: Page, take: (found: readonly RowRef[]) => Promise<number>): Promise<number> {
    if (page.found.length > 0) {
      const taken = await take(page.found);
      if (taken > 0) return taken;
    }
    if (page.next === undefined) await this.nextStep();
    else await this.moveTo({ ...this.progress, ...page.next });
    return 0;
  }

  private async nextStep(): Promise<void> {
    const next = ERASURE_STEPS[ERASURE_STEPS.indexOf(this.progress.step) + 1];
    if (next !== undefined) return this.moveTo(startOf(this.mark, next));
    await markErased(this.client, this.mark, this.context.now());
    this.done = true;
  }

  private async moveTo(progress: ErasureProgress): Promise<void> {
    await saveProgress(this.client, this.mark, progress);
    this.progress = progress;
  }
}

/** Gift wraps are looked for from the newest down, hidden ones from the first row up. */
function startOf({ until }: PendingMark, step: ErasureProgress['step']): ErasureProgress {
  return { until, step, createdAt: until, seq: 0 };
}
