/**
 * `minato export`: writes what a REQ would serve, in the order of the outbox. It reads up to the end of the
 * outbox at the end of the export: a version that is superseded in the meantime has a successor further on,
 * so every event that is effective at the end is written. With `--history` it writes the superseded versions
 * that exist when the export reads them.
 */
import { once } from 'node:events';
import { type FileHandle, open } from 'node:fs/promises';
import { Command } from 'commander';
import { z } from 'zod';
import { COMMUNITY_OPTION, type CommandContext, withCommunity } from '../../cli/context.js';
import { bytesText, count, startProgress, watchInterruption } from '../../cli/progress.js';
import type { Community } from '../../communities/communities.js';
import { readTotals } from '../../communities/communities.sql.js';
import type { Exported } from '../postgres/read/export.js';
import { type Filter, matchFilter, parseFilter } from '../rules/filter.js';
import { isRefusal } from '../rules/reply.js';
import { type Checkpoint, checkpointAt } from './checkpoint.js';
import { type ExportPlace, type ExportSource, fromDynamodb, fromPostgres } from './export-sources.js';
import { gzip, isGzipName, isStandardStream } from './jsonl.js';

/** Not after every page: the data must be on disk before the checkpoint that points after it. */
const CHECKPOINT_MS = 1_000;
const EXIT_BROKEN_PIPE = 141;
const TOO_SLOW = 'New events arrive faster than the export writes them. The newest ones are left out.\n';

interface Options {
  community: string;
  filter?: string;
  history?: boolean;
  force?: boolean;
  resume?: boolean;
}

export function exportCommand(): Command {
  return new Command('export')
    .description('write the events of a community as JSONL')
    .argument(
      '[file]',
      'one event per line; a name ending in .gz is compressed; "-" or no name writes to standard output',
    )
    .option(...COMMUNITY_OPTION)
    .option('--filter <json>', 'only events that match this NIP-01 filter; limit is not supported')
    .option('--history', 'the superseded versions instead, which are kept for retention.historyDays')
    .option('--force', 'overwrite an existing file')
    .option('--resume', 'resume an interrupted export; its position is kept in FILE.minato-export')
    .addHelpText(
      'after',
      `
Writes the events that are served, in the order of arrival; from DynamoDB the newest first, and those that
arrive meanwhile at the end, where one may be repeated. With --history it writes only the superseded
versions of replaceable and addressable events. Deleted, expired and vanished events, and events past
their retention, are never written.

Examples:
  $ minato export backup.jsonl.gz
  $ minato export --filter '{"kinds":[0,3]}' > profiles.jsonl
  $ minato export --history --filter '{"kinds":[30023]}' drafts.jsonl
  $ minato export | ssh elsewhere minato import`,
    )
    .action(exportFile);
}

async function exportFile(file: string | undefined, options: Options): Promise<void> {
  const filter = options.filter === undefined ? undefined : readFilter(options.filter);
  const interruption = watchInterruption();
  try {
    await withCommunity(options.community, async (context, community) => {
      const target = isStandardStream(file) ? new PipeTarget() : await FileTarget.open(file, options);
      const what = options.history ? 'history' : 'served';
      const { source, close } = await openSource(context, community, what);
      try {
        const total =
          filter === undefined && what === 'served'
            ? (await readTotals(context.database.pool, community.id)).events
            : undefined;
        const end = await writeEvents({ source, filter, total, target, signal: interruption.signal });
        if (end === 'pipe closed') process.exitCode = EXIT_BROKEN_PIPE;
        if (end !== 'interrupted') return;
        process.stderr.write(
          `Interrupted.${isStandardStream(file) ? '' : ' Run the same command with --resume to continue.'}\n`,
        );
        process.exitCode = interruption.exitCode() ?? 1;
      } finally {
        await close();
        await target.close();
      }
    });
  } finally {
    interruption.done();
  }
}

/** The writer that reads DynamoDB is started only where events are there. */
async function openSource(
  { config, database, log }: CommandContext,
  community: Community,
  what: Exported,
): Promise<{ readonly source: ExportSource; close(): Promise<void> }> {
  if (config.eventStore === 'postgres')
    return { source: fromPostgres(database.pool, community, what), close: async () => undefined };
  const { startWriter } = await import('../../node/writer.js');
  const writer = await startWriter({ database, config, log });
  return { source: fromDynamodb(writer.dynamodb!.store, community, what), close: () => writer.close() };
}

function readFilter(text: string): Filter {
  let input: unknown;
  try {
    input = JSON.parse(text);
  } catch {
    throw new Error(`--filter is not JSON; a filter looks like '{"kinds":[1],"#t":["tea"]}'`);
  }
  const filter = parseFilter(input, { 'limits.filterValuesMax': Number.MAX_SAFE_INTEGER });
  if (isRefusal(filter))
    throw new Error(`--filter: ${filter.why}${filter.refused === 'unsupported' ? ' is unknown' : ''}`);
  if (filter.limit !== undefined)
    throw new Error('--filter: limit is not supported, an export writes all matching events');
  if (filter.search !== undefined)
    throw new Error('--filter: search is not supported, because it finds only the best matches');
  return filter;
}

interface Job {
  readonly source: ExportSource;
  readonly filter: Filter | undefined;
  /** How many events there are, if that is known. */
  readonly total: number | undefined;
  readonly target: Target;
  readonly signal: AbortSignal;
}

type End = 'whole' | 'interrupted' | 'pipe closed';

async function writeEvents({ source, filter, total, target, signal }: Job): Promise<End> {
  const progress = startProgress(total);
  const startedAt = Date.now();
  let { events, ...place } = target.place;
  const eventsBefore = events;
  const rate = () => Math.round(((events - eventsBefore) * 1_000) / Math.max(1, Date.now() - startedAt));
  const run = async (): Promise<End> => {
    for (;;) {
      if (signal.aborted) return 'interrupted';
      const page = await source(place);
      const matching =
        filter === undefined
          ? page.events
          : page.events.filter(({ matched }) => matchFilter(filter, matched()));
      const payloads = matching.map(({ payload }) => payload);
      place = page.place;
      events += payloads.length;
      if (!(await target.write(payloads, { ...place, events }))) return 'pipe closed';
      progress.update(events, `${count(events)} events, ${count(rate())}/s`);
      if (page.isLate) process.stderr.write(TOO_SLOW);
      if (page.isEnd) return 'whole';
    }
  };
  const end = await run();
  await target.finish(end === 'whole');
  progress.stop();
  process.stderr.write(`${count(events)} events, ${bytesText(target.bytes)}, ${count(rate())} events/s\n`);
  return end;
}

// ─── Targets ───────────────────────────────────────────────────────────────────────────────────────────────

interface Place extends ExportPlace {
  readonly events: number;
}

interface Target {
  /** The position of an interrupted export. */
  readonly place: Place;
  readonly bytes: number;
  /** False when the reader has closed the pipe. */
  write(payloads: readonly string[], place: Place): Promise<boolean>;
  finish(whole: boolean): Promise<void>;
  close(): Promise<void>;
}

class PipeTarget implements Target {
  readonly place: Place = { seq: 0, events: 0 };
  bytes = 0;
  private broken: NodeJS.ErrnoException | undefined;
  private readonly onError = (error: Error): void => {
    this.broken = error;
  };

  constructor() {
    process.stdout.on('error', this.onError);
  }

  async write(payloads: readonly string[]): Promise<boolean> {
    const page = Buffer.from(toLines(payloads));
    this.bytes += page.length;
    if (page.length > 0 && !process.stdout.write(page)) await this.drained();
    if (this.broken !== undefined && this.broken.code !== 'EPIPE') throw this.broken;
    return this.broken === undefined;
  }

  private async drained(): Promise<void> {
    if (this.broken === undefined) await once(process.stdout, 'drain').catch(() => undefined);
  }

  async finish(): Promise<void> {
    // The error of the last write is reported after the write.
    if (this.broken === undefined)
      await new Promise<void>((resolve) => process.stdout.write('', () => resolve()));
    if (this.broken !== undefined && this.broken.code !== 'EPIPE') throw this.broken;
  }

  async close(): Promise<void> {}
}

const stateSchema = z.object({
  seq: z.number().int().min(0),
  walk: z.string().optional(),
  events: z.number().int().min(0),
  bytes: z.number().int().min(0),
  community: z.string(),
  filter: z.string(),
  history: z.boolean().default(false),
});
type State = z.infer<typeof stateSchema>;
/** What is exported. An interrupted export is resumed only with the same values. */
type Subject = Pick<State, 'community' | 'filter' | 'history'>;

/**
 * Each page is a gzip member of its own. Members can follow one another, so a file cut between two members is
 * valid.
 */
class FileTarget implements Target {
  place: Place;
  bytes: number;
  private checkpointAtMs = 0;

  private constructor(
    private readonly path: string,
    private readonly handle: FileHandle,
    private readonly checkpoint: Checkpoint<State>,
    private readonly subject: Subject,
    from: State | undefined,
  ) {
    this.place = { seq: from?.seq ?? 0, walk: from?.walk, events: from?.events ?? 0 };
    this.bytes = from?.bytes ?? 0;
  }

  static async open(path: string, options: Options): Promise<FileTarget> {
    const checkpoint = checkpointAt(`${path}.minato-export`, stateSchema);
    const { community, filter = '', history = false } = options;
    const subject = { community, filter, history };
    const from = options.resume ? await readPlace(checkpoint, subject, path) : undefined;
    const handle = await openOutput(path, options);
    try {
      if (from !== undefined) await cutBack(handle, from.bytes, path);
      const target = new FileTarget(path, handle, checkpoint, subject, from);
      await target.save();
      return target;
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  async write(payloads: readonly string[], place: Place): Promise<boolean> {
    if (payloads.length > 0) await this.append(toLines(payloads));
    this.place = place;
    if (Date.now() - this.checkpointAtMs >= CHECKPOINT_MS) await this.save();
    return true;
  }

  async finish(whole: boolean): Promise<void> {
    if (!whole) return this.save();
    // A gzip file has at least one member.
    if (this.bytes === 0) await this.append('');
    await this.handle.datasync();
    await this.checkpoint.remove();
  }

  close(): Promise<void> {
    return this.handle.close();
  }

  private async append(lines: string): Promise<void> {
    const page = isGzipName(this.path) ? await gzip(lines) : Buffer.from(lines);
    for (let written = 0; written < page.length; ) {
      const { bytesWritten } = await this.handle.write(
        page,
        written,
        page.length - written,
        this.bytes + written,
      );
      written += bytesWritten;
    }
    this.bytes += page.length;
  }

  private async save(): Promise<void> {
    await this.handle.datasync();
    await this.checkpoint.write({ ...this.subject, ...this.place, bytes: this.bytes });
    this.checkpointAtMs = Date.now();
  }
}

async function readPlace(checkpoint: Checkpoint<State>, subject: Subject, path: string): Promise<State> {
  const from = await checkpoint.read();
  if (from === undefined)
    throw new Error(
      `there is no interrupted export of ${path}: ${checkpoint.path} does not exist or cannot be parsed`,
    );
  const { community, filter, history } = from;
  if (community !== subject.community || filter !== subject.filter || history !== subject.history) {
    const more = `${filter === '' ? '' : ` --filter '${filter}'`}${history ? ' --history' : ''}`;
    throw new Error(`the interrupted export of ${path} was made with --community ${community}${more}`);
  }
  process.stderr.write(`Resuming after ${count(from.events)} events.\n`);
  return from;
}

async function openOutput(path: string, { force, resume }: Options): Promise<FileHandle> {
  try {
    return await open(path, resume ? 'r+' : force ? 'w' : 'wx', 0o600);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST')
      throw new Error(
        `${path} exists: use --force to overwrite it, or --resume to resume an interrupted export`,
      );
    throw new Error(`${path} cannot be written (${code})`);
  }
}

async function cutBack(handle: FileHandle, bytes: number, path: string): Promise<void> {
  const { size } = await handle.stat();
  if (size < bytes) throw new Error(`${path} is shorter than its checkpoint says; start again with --force`);
  await handle.truncate(bytes);
}

function toLines(payloads: readonly string[]): string {
  return payloads.map((payload) => `${payload}\n`).join('');
}
