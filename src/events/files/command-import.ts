/**
 * `minato import`: sends lines of events through the same pipeline as a post. A line is settled once its
 * event is committed, was already stored, or is refused for good. The checkpoint never passes a line that is
 * not settled (I1, I2).
 */
import { closeSync, ftruncateSync, openSync, writeSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Command } from 'commander';
import type { Pool } from 'pg';
import { z } from 'zod';
import { COMMUNITY_OPTION, chooseCommunity, withDatabase } from '../../cli/context.js';
import { count, type Interruption, startProgress, watchInterruption } from '../../cli/progress.js';
import { readConfigVersions } from '../../communities/communities.sql.js';
import { FRAME_BYTES_MAX } from '../../communities/rules-settings.js';
import type { Writer } from '../../node/writer.js';
import { BUSY, isRefusal, type Outcome, type Refusal, words } from '../rules/reply.js';
import { type Checkpoint, checkpointAt } from './checkpoint.js';
import { Ledger, ledgerSchema, type Reject, type Settled } from './import-ledger.js';
import { isStandardStream, type Line, openSource, readLines, type Source } from './jsonl.js';

/** The same as for a frame, so no event that a socket could send is refused for the length of its line. */
const LINE_BYTES_MAX = FRAME_BYTES_MAX;
const TICK_MS = 1_000;
const ATTEMPTS_MAX = 20;
const RETRY_MS_MAX = 1_000;
const EXIT_REFUSED = 2;
/** Of no event: to ask the store whether it answers. */
const NO_ID = '0'.repeat(64);

interface Options {
  community: string;
  rejects?: string;
  restart?: boolean;
}

export function importCommand(): Command {
  return new Command('import')
    .description('import events from JSONL, through the same checks as a post')
    .argument('[file]', 'one event per line; .gz is decompressed; "-" or no name reads standard input')
    .option(...COMMUNITY_OPTION)
    .option('--rejects <file>', 'write each refused line there, as {"line", "reason", "text"}')
    .option('--restart', 'start from the first line, even if an earlier run of this file was interrupted')
    .addHelpText(
      'after',
      `
An interrupted run resumes where it stopped: its position is kept in FILE.minato-import until the end.
Standard input cannot be resumed; when it is sent again, stored events count as duplicates.

Exit code: 0 every line was stored or is a duplicate, 2 some were refused, 1 the import failed,
130 interrupted.

Examples:
  $ minato import events.jsonl.gz --rejects refused.jsonl
  $ curl -s https://example.org/events.jsonl | minato import --community art`,
    )
    .action(importFile);
}

async function importFile(file: string | undefined, options: Options): Promise<void> {
  const input = await openInput(file, options);
  const interruption = watchInterruption();
  try {
    await withDatabase(async ({ database, config, log }) => {
      const { startWriter } = await import('../../node/writer.js');
      const writer = await startWriter({ database, config, log });
      try {
        await new Import(
          input,
          writer,
          chooseCommunity(writer.communities, options.community).id,
          database.pool,
          interruption,
        ).run();
      } finally {
        await writer.close();
      }
    });
  } finally {
    input.source.stream.destroy();
    input.rejects?.close();
    interruption.done();
  }
}

// ─── The file and the place in it ──────────────────────────────────────────────────────────────────────────

const stateSchema = z.object({
  size: z.number(),
  modifiedMs: z.number(),
  community: z.string(),
  ledger: ledgerSchema,
  rejects: z.object({ path: z.string(), bytes: z.number() }).optional(),
});
type State = z.infer<typeof stateSchema>;
type Identity = Pick<State, 'size' | 'modifiedMs' | 'community'>;

interface Input {
  /** The name in messages. */
  readonly name: string;
  readonly source: Source;
  readonly identity: Identity | undefined;
  /** None for standard input. */
  readonly checkpoint: Checkpoint<State> | undefined;
  readonly resumed: State | undefined;
  readonly rejects: RejectsFile | undefined;
}

async function openInput(file: string | undefined, options: Options): Promise<Input> {
  if (isStandardStream(file)) {
    if (process.stdin.isTTY) process.stderr.write('Reading events from the terminal; press Ctrl-D to end.\n');
    const rejects = options.rejects === undefined ? undefined : new RejectsFile(options.rejects, 0);
    const none = { identity: undefined, checkpoint: undefined, resumed: undefined };
    return { name: 'standard input', source: openSource(file), rejects, ...none };
  }
  const identity = { ...(await identify(file)), community: options.community };
  const checkpoint = checkpointAt(`${file}.minato-import`, stateSchema);
  const resumed = options.restart ? undefined : fitting(await checkpoint.read(), identity, file);
  const rejects = options.rejects === undefined ? undefined : openRejects(options.rejects, resumed);
  return { name: file, source: openSource(file), identity, checkpoint, resumed, rejects };
}

async function identify(file: string): Promise<Omit<Identity, 'community'>> {
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => {
    throw new Error(
      error.code === 'ENOENT' ? `there is no file ${file}` : `${file} cannot be read (${error.code})`,
    );
  });
  if (!found.isFile()) throw new Error(`${file} is not a file; read a pipe with "minato import < ${file}"`);
  return { size: found.size, modifiedMs: found.mtimeMs };
}

function fitting(state: State | undefined, identity: Identity, file: string): State | undefined {
  if (state === undefined) return undefined;
  const { size, modifiedMs, community } = identity;
  if (state.size === size && state.modifiedMs === modifiedMs && state.community === community) {
    const lines = count(state.ledger.lines);
    process.stderr.write(
      `Resuming after line ${lines} of an interrupted run (use --restart to start again).\n`,
    );
    return state;
  }
  const what =
    state.community === community
      ? `${file} has changed since`
      : `it was for the community ${state.community}`;
  process.stderr.write(`An earlier run of ${file} was interrupted, but ${what}: starting again.\n`);
  return undefined;
}

/** Lines that a killed run wrote after its checkpoint are cut off, because they are imported again. */
function openRejects(path: string, resumed: State | undefined): RejectsFile {
  const same = resumed?.rejects?.path === resolve(path);
  return new RejectsFile(path, same ? (resumed?.rejects?.bytes ?? 0) : 0);
}

class RejectsFile {
  readonly path: string;
  private readonly handle: number;

  constructor(
    path: string,
    public bytes: number,
  ) {
    this.path = resolve(path);
    this.handle = openSync(this.path, bytes > 0 ? 'r+' : 'w');
    ftruncateSync(this.handle, bytes);
  }

  add(line: number, { reason, text }: Reject): void {
    this.bytes += writeSync(this.handle, `${JSON.stringify({ line, reason, text })}\n`, this.bytes);
  }
  close(): void {
    closeSync(this.handle);
  }
}

// ─── One run ───────────────────────────────────────────────────────────────────────────────────────────────

// None of these is a final refusal: the next run resumes here.
const storesNothing = (outcome: Refusal) => new Error(`nothing can be stored now (${words(outcome)})`);
const DISK_FULL = new Error(
  'the disk of the node is nearly full (node.diskFreeMinPercent); ' +
    'free some space, then run the same command again',
);

class Import {
  private readonly ledger: Ledger;
  /** Set by a signal of the operator, or by an outage of the store. */
  private stopped = false;
  private outage: Error | undefined;
  private readonly underWay = new Set<Promise<void>>();
  /** Lines that were accepted in this run. */
  private accepted = 0;
  /** The check under way, which all lines that fail share. */
  private asking: Promise<boolean> | undefined;
  private readonly resumedLines: number;
  private checkpointFailed = false;
  private startedAt = Date.now();

  constructor(
    private readonly input: Input,
    private readonly writer: Writer,
    private readonly community: number,
    private readonly pool: Pool,
    private readonly interruption: Interruption,
  ) {
    this.ledger = new Ledger(input.resumed?.ledger, (line, reject) => input.rejects?.add(line, reject));
    this.resumedLines = this.ledger.state.lines;
    if (interruption.signal.aborted) this.stop();
    else interruption.signal.addEventListener('abort', () => this.stop(), { once: true });
  }

  async run(): Promise<void> {
    const stopTicking = this.startTicking();
    let failure: unknown;
    try {
      await this.readAll();
    } catch (error) {
      if (!this.stopped) failure = error;
    }
    while (this.underWay.size > 0) await Promise.all(this.underWay);
    await stopTicking();
    failure ??= this.outage;
    const whole = failure === undefined && !this.stopped;
    if (whole) await this.input.checkpoint?.remove();
    else await this.saveCheckpoint();
    this.report();
    if (failure !== undefined) throw new Error(`${this.reason(failure)}.${this.howToContinue()}`);
    if (!whole) {
      process.stderr.write(`Interrupted.${this.howToContinue()}\n`);
      process.exitCode = this.interruption.exitCode() ?? 1;
    } else if (this.ledger.refusedCount > 0) process.exitCode = EXIT_REFUSED;
  }

  private async readAll(): Promise<void> {
    if (this.stopped) return;
    for await (const lines of readLines(this.input.source.stream, LINE_BYTES_MAX)) {
      for (const line of lines) {
        if (line.number <= this.resumedLines) continue;
        await this.ledger.room();
        if (this.stopped) return;
        this.take(line);
      }
    }
  }

  private take(line: Line): void {
    if (line.number === this.resumedLines + 1) this.startedAt = Date.now();
    this.ledger.begin(line.number, line.bytes.length);
    const parsed = parseLine(line);
    if ('settled' in parsed) {
      this.settle(line.number, parsed.settled);
      return;
    }
    const work = this.admit(parsed.event)
      .then((outcome) => {
        if (outcome === undefined) return;
        this.settle(line.number, isRefusal(outcome) ? rejected(outcome, parsed.text) : outcome);
      })
      .finally(() => this.underWay.delete(work));
    this.underWay.add(work);
  }

  private settle(line: number, settled: Settled): void {
    try {
      this.ledger.settle(line, settled);
    } catch (error) {
      this.stopFor(new Error(`the file of --rejects cannot be written (${reasonOf(error)})`));
    }
  }

  /**
   * Undefined: the line stays open, and the next run imports it. A line is refused for good only for a reason
   * of its own, never because the store was down or busy.
   */
  private async admit(event: unknown): Promise<Outcome | Refusal | undefined> {
    /** How many lines were accepted when this one failed for the first time. */
    let acceptedBefore: number | undefined;
    for (let attempt = 1; ; attempt++) {
      const community = this.writer.communities.get(this.community);
      if (community === undefined) return this.stopFor(new Error('the community no longer exists'));
      const { accepted } = this;
      const outcome = await this.writer.admission.admit(community, event);
      if (!isRefusal(outcome)) {
        this.accepted += 1;
        return outcome;
      }
      if (outcome.refused !== 'rate-limited' && outcome.refused !== 'error') return outcome;
      if (this.stopped) return undefined;
      if (outcome.refused === 'error' && this.writer.disk.now().level > 0) return this.stopFor(DISK_FULL);
      if (outcome.refused === 'error' && !(await this.storeAnswers())) return undefined;
      acceptedBefore ??= this.accepted;
      // Others were accepted while it waited, so its turn comes too.
      if (outcome === BUSY && this.accepted > accepted) attempt = 1;
      if (attempt >= ATTEMPTS_MAX)
        return this.isOfTheLine(outcome, acceptedBefore) ? outcome : this.stopFor(storesNothing(outcome));
      await delay(Math.min(RETRY_MS_MAX, 20 * 2 ** attempt));
    }
  }

  /**
   * An error is caused by the event if others are accepted meanwhile. A line without others is refused, so
   * that a file never stops at the same event for ever.
   */
  private isOfTheLine(outcome: Refusal, acceptedBefore: number): boolean {
    if (outcome === BUSY) return false;
    return outcome.refused !== 'error' || this.accepted > acceptedBefore || this.underWay.size === 1;
  }

  private storeAnswers(): Promise<boolean> {
    this.asking ??= this.askStore().finally(() => {
      this.asking = undefined;
    });
    return this.asking;
  }

  /** Settings are in the database, events perhaps elsewhere. */
  private async askStore(): Promise<boolean> {
    let name = 'the database';
    try {
      await readConfigVersions(this.pool);
      name = 'the store of the events';
      await this.writer.store.known(this.community, [NO_ID]);
      return true;
    } catch (error) {
      this.stopFor(new Error(`${name} does not answer (${reasonOf(error)})`));
      return false;
    }
  }

  private stopFor(outage: Error): undefined {
    this.outage ??= outage;
    this.stop();
  }

  private stop(): void {
    this.stopped = true;
    this.ledger.close();
    // Otherwise the reader would wait for a pipe that sends nothing.
    this.input.source.stream.destroy();
  }

  // ─── Checkpoint and progress ─────────────────────────────────────────────────────────────────────────────

  private startTicking(): () => Promise<void> {
    const progress = startProgress(this.input.identity?.size);
    const stopped = new AbortController();
    const tick = async (): Promise<void> => {
      while (!stopped.signal.aborted) {
        await delay(TICK_MS, undefined, { signal: stopped.signal }).catch(() => undefined);
        if (stopped.signal.aborted) return;
        progress.update(this.input.source.bytesRead(), this.summaryLine());
        await this.saveCheckpoint();
      }
    };
    const ticking = tick();
    return async () => {
      stopped.abort();
      await ticking;
      progress.stop();
    };
  }

  private async saveCheckpoint(): Promise<void> {
    const { checkpoint, identity, rejects } = this.input;
    if (checkpoint === undefined || identity === undefined || this.checkpointFailed) return;
    const place = rejects === undefined ? {} : { rejects: { path: rejects.path, bytes: rejects.bytes } };
    try {
      await checkpoint.write({ ...identity, ledger: this.ledger.state, ...place });
    } catch (error) {
      this.checkpointFailed = true;
      const why = `${checkpoint.path} cannot be written (${reasonOf(error)})`;
      process.stderr.write(`${why}: if this run is interrupted, it must start again.\n`);
    }
  }

  private summaryLine(): string {
    const { lines, outcomes } = this.ledger.state;
    const refused = this.ledger.refusedCount;
    const stored = count(outcomes.stored);
    return `${count(lines)} lines, ${stored} stored, ${count(refused)} refused, ${count(this.rate())}/s`;
  }

  private rate(): number {
    const seconds = Math.max(0.001, (Date.now() - this.startedAt) / 1_000);
    return Math.round((this.ledger.state.lines - this.resumedLines) / seconds);
  }

  private report(): void {
    const { outcomes, refused, lines, shown } = this.ledger.state;
    const { malformed = 0, ...byPrefix } = refused;
    const rows: [string, number][] = [
      ...Object.entries(outcomes),
      ...Object.entries(byPrefix)
        .sort()
        .map(([prefix, times]): [string, number] => [`refused: ${prefix}`, times]),
      ['malformed', malformed],
    ];
    for (const [name, times] of rows)
      process.stdout.write(`${name.padEnd(24)} ${count(times).padStart(12)}\n`);
    process.stdout.write(`${count(lines)} lines, ${count(this.rate())} events/s\n`);
    if (this.input.rejects !== undefined || shown.length === 0) return;
    process.stderr.write(`\nThe first refused lines (use --rejects FILE to get all of them):\n`);
    for (const { line, reason } of shown) process.stderr.write(`  line ${line}: ${reason}\n`);
  }

  private reason(failure: unknown): string {
    if (failure === this.outage) return reasonOf(failure);
    return `${this.input.name} cannot be read further (${reasonOf(failure)})`;
  }

  private howToContinue(): string {
    const lines = count(this.ledger.state.lines);
    if (this.input.checkpoint === undefined) return ` The first ${lines} lines are imported.`;
    return ` The first ${lines} lines are imported; run the same command to continue from there.`;
  }
}

type Parsed = { readonly event: unknown; readonly text: string } | { readonly settled: Settled };

const utf8 = new TextDecoder('utf-8', { fatal: true });

function parseLine({ bytes, tooLong }: Line): Parsed {
  if (tooLong)
    return { settled: malformed(`the line is longer than ${LINE_BYTES_MAX} bytes`, `${bytes.toString()}…`) };
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    return { settled: malformed('the line is not UTF-8', bytes.toString()) };
  }
  if (text.trim() === '') return { settled: 'blank' };
  try {
    return { event: JSON.parse(text), text };
  } catch {
    return { settled: malformed('the line is not JSON', text) };
  }
}

function malformed(reason: string, text: string): Reject {
  return { refused: 'malformed', reason, text };
}

function rejected({ refused, why }: Refusal, text: string): Reject {
  return { refused, reason: words({ refused, why }), text };
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
