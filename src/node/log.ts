/** Structured logs. At info level they hold neither contents nor addresses of clients. */
import { pino } from 'pino';

export type Log = Pick<ReturnType<typeof pino>, 'debug' | 'info' | 'warn' | 'error'>;

/** A server logs to stdout; a command keeps that for its result and logs to stderr. */
export function createLog(level: string, to: 'stdout' | 'stderr' = 'stdout'): Log {
  const options = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  };
  return pino(options, pino.destination({ fd: to === 'stdout' ? 1 : 2, sync: true }));
}
