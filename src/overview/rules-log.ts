/** Lines of the log as operators read them, and the filter for them. Pure. */

export const LOG_LEVELS = ['debug', 'info', 'warn', 'error'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export interface LogEntry {
  /** ISO 8601, as it was logged. */
  readonly time: string;
  readonly level: LogLevel;
  readonly message: string;
  /** Everything else of the line. */
  readonly fields: Readonly<Record<string, unknown>>;
}

const isLevel = (value: unknown): value is LogLevel => (LOG_LEVELS as readonly unknown[]).includes(value);

/** Undefined for what is not a line of this log. */
export function parseLine(text: string): LogEntry | undefined {
  let line: unknown;
  try {
    line = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof line !== 'object' || line === null) return undefined;
  const { time, level, msg, ...fields } = line as Record<string, unknown>;
  if (typeof time !== 'string') return undefined;
  return {
    time,
    level: isLevel(level) ? level : 'error',
    message: typeof msg === 'string' ? msg : '',
    fields,
  };
}

export interface LogFilter {
  /** The least level. */
  readonly level: LogLevel;
  /** Part of the line, in any case; empty: any. */
  readonly text: string;
}

/** `text` is the whole line. */
export function passes(entry: LogEntry, text: string, filter: LogFilter): boolean {
  if (LOG_LEVELS.indexOf(entry.level) < LOG_LEVELS.indexOf(filter.level)) return false;
  return filter.text === '' || text.toLowerCase().includes(filter.text.toLowerCase());
}
