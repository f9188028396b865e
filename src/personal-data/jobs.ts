/**
 * Makes the files that members requested. Each run makes one file, so that other jobs can run in between.
 * Also deletes expired files and, later, the requests themselves.
 *
 * Only one job runs at a time. A request that is already `running` when this job starts was left by a worker
 * that was killed: its portions are dropped and the file is made again, at most three times. A cancelled
 * request stops at its next portion. I14: the size of a file (privacy.exportBytesMax) and the time to make it
 * are limited. An operator can make a larger one with the command.
 */
import type { Client } from 'pg';
import { settingsFrom } from '../communities/rules-settings.js';
import { DAY_MS } from '../events/rules/retention.js';
import { inBatches, type Job, type JobContext } from '../jobs/job.js';
import { writePersonalFile } from './file.js';
import { findPerson } from './personal-data.sql.js';
import {
  claimExport,
  countLongEnded,
  countPastExports,
  countWaitingExports,
  dropPortionsOf,
  dropStalePortions,
  type ExportEnd,
  endExport,
  endExports,
  forgetExports,
  leaveExport,
  type PersonalRequest,
  writePortion,
} from './requests.sql.js';

const PORTION_BYTES = 1_048_576;
/** Portions deleted by one statement. */
const DROPPED_PORTIONS = 64;
const EXPORT_MS_MAX = 10 * 60_000;
const HOUR_MS = 3_600_000;
/** How long a request is kept after its end. */
const REMEMBERED_MS = 90 * DAY_MS;

export const exportPersonalData: Job = {
  name: 'export-personal',
  cron: '* * * * *',
  about:
    'makes the files of personal data that members requested, and deletes them after privacy.exportHours',
  purges: false,
  run: async (context, client) => {
    const { now } = context;
    let changed = await endExports(client, now());
    // The file is stored in the database, so it waits until the disk has space.
    const hasSpace = (context.diskLevel?.() ?? 0) < 2;
    const request = hasSpace ? await claimExport(client, now()) : undefined;
    if (request !== undefined) {
      await makeFile(context, client, request);
      changed += 1;
    }
    const dropped = await inBatches(context, () => dropStalePortions(client, DROPPED_PORTIONS));
    const endedBefore = now() - REMEMBERED_MS;
    const forgotten = await inBatches(context, () => forgetExports(client, endedBefore, context.bounds.rows));
    const waiting = await countWaitingExports(client);
    return {
      changed: changed + dropped.changed + forgotten.changed,
      more: dropped.more || forgotten.more || (hasSpace && waiting > 0),
    };
  },
  dryRun: async ({ now }, client) => {
    const counts = [
      { reason: 'asked for', class: 'export' as const, rows: await countWaitingExports(client) },
      { reason: 'past', class: 'export' as const, rows: await countPastExports(client, now()) },
      {
        reason: 'long ended',
        class: 'export' as const,
        rows: await countLongEnded(client, now() - REMEMBERED_MS),
      },
    ];
    return counts.filter(({ rows }) => rows > 0);
  },
};

/** Why a file was not finished. The member reads `reason`; undefined means that the request was cancelled. */
class Stopped extends Error {
  constructor(readonly reason: string | undefined) {
    super(reason ?? 'cancelled');
  }
}

async function makeFile(context: JobContext, client: Client, request: PersonalRequest): Promise<void> {
  const { communities, now, signal } = context;
  const { requestId } = request;
  const settings = communities.get(request.community)?.settings ?? settingsFrom(new Map());
  try {
    while ((await dropPortionsOf(client, requestId, DROPPED_PORTIONS)) > 0) signal.throwIfAborted();
    const bytes = await writeFile(context, client, request, settings['privacy.exportBytesMax']);
    const expiresAt = now() + settings['privacy.exportHours'] * HOUR_MS;
    await endExport(client, requestId, { status: 'ready', bytes, expiresAt }, now());
  } catch (error) {
    // The node is stopping: the request stays `running`, and the next worker makes the file again.
    if (signal.aborted) return leaveExport(client, requestId).catch(() => undefined);
    const reason = error instanceof Stopped ? error.reason : 'Making the file failed. Request it again.';
    // If the connection itself has failed, the request stays `running` and is retried.
    if (reason !== undefined)
      await endExport(client, requestId, failed(reason), now()).catch(() => undefined);
    if (!(error instanceof Stopped)) throw error;
  }
}

const failed = (error: string): ExportEnd => ({ status: 'failed', error });

async function writeFile(
  { database, store, communities, now, signal, audit }: JobContext,
  client: Client,
  { requestId, community, pubkey }: PersonalRequest,
  bytesMax: number,
): Promise<number> {
  const tooLong = AbortSignal.timeout(EXPORT_MS_MAX);
  const { slug = '', settings } = communities.get(community) ?? {};
  // The connection that holds the jobs' lock writes the portions: when the lock is lost, nothing more is
  // written.
  const portions = new Portions(client, requestId, bytesMax);
  const reader = await database.connect({
    statementTimeoutMs: EXPORT_MS_MAX,
    idleInTransactionTimeoutMs: EXPORT_MS_MAX,
  });
  try {
    const { bytes } = await writePersonalFile(
      {
        client: reader,
        person: await findPerson(reader, community, pubkey),
        community: { slug, name: settings?.['relay.name'] ?? slug },
        now: now(),
        signal: AbortSignal.any([signal, tooLong]),
        audit,
        events: store,
      },
      (piece) => portions.add(piece),
    );
    await portions.flush();
    return bytes;
  } catch (error) {
    if (tooLong.aborted)
      throw new Stopped('Making the file took longer than ten minutes. Your operator can make it for you.');
    throw error;
  } finally {
    await reader.end().catch(() => undefined);
  }
}

/** Takes pieces of any size and writes portions of one size. */
class Portions {
  private held: Buffer[] = [];
  private heldBytes = 0;
  private bytes = 0;
  private position = 0;

  constructor(
    private readonly client: Client,
    private readonly requestId: string,
    private readonly bytesMax: number,
  ) {}

  async add(piece: Buffer): Promise<void> {
    this.bytes += piece.length;
    if (this.bytes > this.bytesMax)
      throw new Stopped('The file is larger than this community allows. Your operator can make it for you.');
    this.held.push(piece);
    this.heldBytes += piece.length;
    if (this.heldBytes >= PORTION_BYTES) await this.flush();
  }

  async flush(): Promise<void> {
    if (this.heldBytes === 0) return;
    const portion = Buffer.concat(this.held);
    this.held = [];
    this.heldBytes = 0;
    if (!(await writePortion(this.client, this.requestId, this.position, portion)))
      throw new Stopped(undefined);
    this.position += 1;
  }
}
