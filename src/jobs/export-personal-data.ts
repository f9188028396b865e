/**
 * Makes the files that members asked for, one in a run, so that the other jobs have their turn between two of them; and takes
 * away the files whose time is over, and in the end the requests themselves.
 *
 * While a job runs no other does, so a request that is `running` when this one begins was left by a worker that was killed: what
 * it had written is dropped and the file is made anew, three times at most. A cancelled request stops at its next portion. I14: a file has a bound
 * in bytes (privacy.exportBytesMax) and in time; beyond them the operator makes it by command.
 */
import type { Client } from 'pg';
import { DAY_MS } from '../core/retention.js';
import { settingsFrom } from '../core/settings.js';
import { writePersonalFile } from '../erasure/personal-file.js';
import { findPerson } from '../store/personal-data.js';
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
} from '../store/personal-requests.js';
import { inBatches, type Job, type JobContext } from './job.js';

const PORTION_BYTES = 1_048_576;
/** Portions that go in one statement. */
const DROPPED_PORTIONS = 64;
const EXPORT_MS_MAX = 10 * 60_000;
const HOUR_MS = 3_600_000;
/** How long a request is remembered after its end. */
const REMEMBERED_MS = 90 * DAY_MS;

export const exportPersonalData: Job = {
  name: 'export-personal',
  cron: '* * * * *',
  about: 'makes the files of personal data that members asked for, and drops them after privacy.exportHours',
  purges: false,
  run: async (context, client) => {
    const { now } = context;
    let changed = await endExports(client, now());
    const request = await claimExport(client, now());
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
      more: dropped.more || forgotten.more || waiting > 0,
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

/** Why a file was not finished; `told` is what the member reads. */
class Stopped extends Error {
  constructor(readonly told: string | undefined) {
    super(told ?? 'cancelled');
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
    // The node is stopping: the request stays `running`, and whoever runs next makes it anew.
    if (signal.aborted) return leaveExport(client, requestId).catch(() => undefined);
    const told = error instanceof Stopped ? error.told : 'Something failed while it was made. Ask again.';
    // Should the session itself have failed, the request stays `running` and is taken up again.
    if (told !== undefined) await endExport(client, requestId, failed(told), now()).catch(() => undefined);
    if (!(error instanceof Stopped)) throw error;
  }
}

const failed = (error: string): ExportEnd => ({ status: 'failed', error });

async function writeFile(
  { database, communities, now, signal, audit }: JobContext,
  client: Client,
  { requestId, community, pubkey }: PersonalRequest,
  bytesMax: number,
): Promise<number> {
  const tooLong = AbortSignal.timeout(EXPORT_MS_MAX);
  const { slug = '', settings } = communities.get(community) ?? {};
  // Portions are written by the session that holds the jobs' lock: should it be lost, nothing more is written here.
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
      },
      (piece) => portions.add(piece),
    );
    await portions.flush();
    return bytes;
  } catch (error) {
    if (tooLong.aborted)
      throw new Stopped('It took longer than ten minutes. Ask your operator, who can make it.');
    throw error;
  } finally {
    await reader.end().catch(() => undefined);
  }
}

/** Pieces of any size, written as portions of one size. */
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
      throw new Stopped('It is larger than this community allows. Ask your operator, who can make it.');
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
