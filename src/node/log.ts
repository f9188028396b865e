/**
 * Structured logs. At info level they hold neither contents nor addresses of clients. The newest lines of
 * this process are also kept in memory, for operators of the node.
 */
import { pino } from 'pino';

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

/** A server logs to stdout; a command keeps that for its result and logs to stderr. */
export function createLog(
  level: string,
  to: 'stdout' | 'stderr' = 'stdout',
  lines?: LogLines,
  /** The instance, where a node has several. */
  instance?: string,
): Log {
  const options = {
    level,
    base: instance === undefined ? null : { instance },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  };
  const file = pino.destination({ fd: to === 'stdout' ? 1 : 2, sync: true });
  if (lines === undefined) return pino(options, file);
  const both = {
    write: (line: string) => {
      file.write(line);
      lines.add(line.trimEnd());
    },
  };
  return pino(options, both);
}
