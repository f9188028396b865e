/** A log whose lines of all levels are noted, also those that its level leaves out. */
import type { Log } from '../../../src/node/log.js';
import { ledger } from './ledger.js';

export function notedLog(log: Log): Log {
  const noted =
    (level: keyof Log) =>
    (...line: readonly [unknown, ...unknown[]]): void => {
      ledger.note('log', JSON.stringify(line));
      (log[level] as (...line: readonly unknown[]) => void)(...line);
    };
  return { debug: noted('debug'), info: noted('info'), warn: noted('warn'), error: noted('error') } as Log;
}
