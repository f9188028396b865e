/**
 * Structured logs. At info level they hold neither contents nor addresses of clients. The newest lines of
 * this process are also kept in memory, for operators of the node. A reader of the log that hangs never
 * hangs the node (I15): pino's own destinations block the event loop (sync), or block a thread for which
 * `process.exit` waits.
 */
import { constants, fstatSync, openSync, writevSync } from 'node:fs';
import { pino } from 'pino';
import { errorCode } from '../postgres/rules-error-code.js';

export type Log = Pick<ReturnType<typeof pino>, 'debug' | 'info' | 'warn' | 'error'>;

/** I14: the oldest lines are dropped when there are more, or more bytes. */
const LINES_MAX = 2_000;
const CHARS_MAX = 1_000_000;
const LINE_CHARS_MAX = 8_000;

export interface LogLine {
  /** Rises with each line, also over restarts. */
  readonly position: number;
  /** One JSON object. */
  readonly text: string;
}

/** The newest lines of the log. */
export class LogLines {
  private readonly lines: LogLine[] = [];
  private chars = 0;
  private next: number;

  /** `startedAt`: milliseconds. A process writes fewer lines than milliseconds pass. */
  constructor(startedAt: number) {
    this.next = startedAt;
  }

  add(text: string): void {
    const position = this.next;
    this.next += 1;
    // A cut line would not be JSON any more.
    if (text.length > LINE_CHARS_MAX) return;
    this.lines.push({ position, text });
    this.chars += text.length;
    while (this.lines.length > LINES_MAX || this.chars > CHARS_MAX)
      this.chars -= this.lines.shift()?.text.length ?? 0;
  }

  /** Lines after this position, the oldest first, `limit` at most. */
  after(position: number, limit: number): readonly LogLine[] {
    const first = this.lines.findIndex((line) => line.position > position);
    return first === -1 ? [] : this.lines.slice(first, first + limit);
  }

  /** The position after which the newest `count` lines are. */
  newest(count: number): number {
    const first = this.lines[Math.max(0, this.lines.length - count)];
    return (first?.position ?? this.next) - 1;
  }
}

/** I14: lines that wait for their reader. A server drops the next ones until all of these are written. */
const WAITING_BYTES_MAX = 1_048_576;
/** Of one write: the system takes 1,024. */
const WRITTEN_LINES_MAX = 512;
/** A pipe holds 64 KiB, so a reader that was behind gets 3 MB a second. */
const FULL_RETRY_MS = 20;
/** Nobody reads any more, or the disk is full. */
const FAILED_RETRY_MS = 1_000;
/** A reader that is behind when the process ends. */
const END_MS_MAX = 1_000;
const END_PAUSE_MS = 5;
/** Between two lines that say the same. */
const RARE_MS = 1_000;

interface Waiting {
  readonly bytes: Buffer;
  /** Which are lost with it. */
  readonly lines: number;
  /** Its beginning has been written. */
  readonly isRest?: true;
}

type Outcome = 'written' | 'full' | 'failed';

/** Writes lines to a descriptor on which a write never waits. */
class LogOutput {
  private waiting: Waiting[] = [];
  private waitingBytes = 0;
  private dropped = 0;
  private timer: NodeJS.Timeout | undefined;

  /** `lineAbout` makes the line that says how many were dropped. */
  constructor(
    private readonly fd: number,
    private readonly lineAbout: (dropped: number) => string,
  ) {}

  /** One line with its end. It is written at once if its reader keeps up. */
  write(line: string): void {
    const bytes = Buffer.from(line);
    if (this.dropped > 0 || this.waitingBytes + bytes.length > WAITING_BYTES_MAX) this.dropped += 1;
    else this.add({ bytes, lines: 1 });
    if (this.timer === undefined) this.flush();
  }

  /** The process ends: a reader that is behind gets a moment. */
  end(): void {
    const pause = new Int32Array(new SharedArrayBuffer(4));
    const deadline = performance.now() + END_MS_MAX;
    while (this.attempt() === 'full' && performance.now() < deadline) Atomics.wait(pause, 0, 0, END_PAUSE_MS);
  }

  private flush(): void {
    const outcome = this.attempt();
    if (outcome === 'written') return;
    const again = () => {
      this.timer = undefined;
      this.flush();
    };
    this.timer = setTimeout(again, outcome === 'full' ? FULL_RETRY_MS : FAILED_RETRY_MS).unref();
  }

  private attempt(): Outcome {
    for (;;) {
      if (this.waiting.length === 0) {
        if (this.dropped === 0) return 'written';
        this.add({ bytes: Buffer.from(this.lineAbout(this.dropped)), lines: this.dropped });
        this.dropped = 0;
      }
      try {
        const pieces = this.waiting.slice(0, WRITTEN_LINES_MAX).map(({ bytes }) => bytes);
        this.remove(writevSync(this.fd, pieces));
      } catch (error) {
        if (errorCode(error) === 'EAGAIN') return 'full';
        this.loseAll();
        return 'failed';
      }
    }
  }

  private add(waiting: Waiting): void {
    this.waiting.push(waiting);
    this.waitingBytes += waiting.bytes.length;
  }

  private remove(written: number): void {
    this.waitingBytes -= written;
    let left = written;
    let whole = 0;
    for (const { bytes } of this.waiting) {
      if (bytes.length > left) break;
      left -= bytes.length;
      whole += 1;
    }
    this.waiting.splice(0, whole);
    const [first] = this.waiting;
    if (first !== undefined && left > 0)
      this.waiting[0] = { ...first, bytes: first.bytes.subarray(left), isRest: true };
  }

  /** A line that was cut is ended, so that the next one can be read. */
  private loseAll(): void {
    for (const { lines } of this.waiting) this.dropped += lines;
    const isCut = this.waiting[0]?.isRest === true;
    this.waiting = [];
    this.waitingBytes = 0;
    if (isCut) this.add({ bytes: Buffer.from('\n'), lines: 0, isRest: true });
  }
}

/** Of a server: one for the process, so that its lines are in order. */
let output: LogOutput | undefined;

function outputOf(instance: string | undefined): LogOutput {
  if (output !== undefined) return output;
  let about = '';
  const log = pino(optionsOf('warn', instance), {
    write: (line: string) => {
      about = line;
    },
  });
  output = new LogOutput(unblocked(1), (dropped) => {
    log.warn({ dropped }, 'lines of the log were dropped: they were not read in time');
    return about;
  });
  process.once('exit', () => output?.end());
  return output;
}

/**
 * A descriptor of the same pipe, terminal or socket on which a write never waits. Other processes share the
 * inherited one and may change that, so it is opened again where the system can do it. A file would be
 * written from its beginning.
 */
function unblocked(fd: 1): number {
  const found = fstatSync(fd);
  const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = constants;
  if (found.isFIFO() || found.isCharacterDevice()) {
    try {
      return openSync(`/proc/self/fd/${fd}`, O_WRONLY | O_NONBLOCK | O_NOCTTY);
    } catch {
      // Nobody reads it, it belongs to another user, or this is not Linux.
    }
  }
  // Node.js makes a pipe or a socket non-blocking when it opens its stream.
  void process.stdout;
  return fd;
}

function optionsOf(level: string, instance: string | undefined) {
  return {
    level,
    base: instance === undefined ? null : { instance },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  };
}

/**
 * In order with the other words of a command. What a full pipe does not take waits in memory, and the command
 * ends after it is written; beyond the bound a line is lost. pino's own destination calls itself for each
 * attempt to write to such a pipe, until the stack has no room.
 */
const commandOutput = {
  write(line: string): void {
    if (process.stderr.writableLength < WAITING_BYTES_MAX) process.stderr.write(line);
  },
};

/** A server logs to stdout; a command keeps that for its result and logs to stderr. */
export function createLog(
  level: string,
  to: 'stdout' | 'stderr' = 'stdout',
  lines?: LogLines,
  /** The instance, where a node has several. */
  instance?: string,
): Log {
  const options = optionsOf(level, instance);
  if (to === 'stderr') return pino(options, commandOutput);
  return pino(options, {
    write: (line: string) => {
      outputOf(instance).write(line);
      lines?.add(line.trimEnd());
    },
  });
}

/** A line that an instance has written, with its end. */
export function passOn(line: string): void {
  outputOf('primary').write(line);
}

/** Something that may happen with every request: a line a second, with how many others it stands for. */
export class RareLine<T> {
  private timer: NodeJS.Timeout | undefined;
  private others: { count: number; last: T } | undefined;

  constructor(private readonly write: (about: T, others: number) => void) {}

  add(about: T): void {
    if (this.timer === undefined) this.writeNow(about, 0);
    else this.others = { count: (this.others?.count ?? 0) + 1, last: about };
  }

  private writeNow(about: T, others: number): void {
    this.write(about, others);
    this.timer = setTimeout(() => {
      this.timer = undefined;
      const { others: waiting } = this;
      this.others = undefined;
      if (waiting !== undefined) this.writeNow(waiting.last, waiting.count - 1);
    }, RARE_MS).unref();
  }
}
