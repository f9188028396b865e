/** One result of `minato doctor`: its level, its text, and what to do about it. */

import { NoAnswer } from '../limits/in-time.js';

export type Level = 'ok' | 'info' | 'warn' | 'fail';

export interface Finding {
  readonly level: Level;
  readonly text: string;
  /** What to do about it. */
  readonly advice?: string;
}

export const ok = (text: string): Finding => ({ level: 'ok', text });
export const info = (text: string, advice?: string): Finding => withAdvice('info', text, advice);
export const warn = (text: string, advice: string): Finding => withAdvice('warn', text, advice);
export const fail = (text: string, advice: string): Finding => withAdvice('fail', text, advice);
const withAdvice = (level: Level, text: string, advice?: string): Finding => ({
  level,
  text,
  ...(advice === undefined ? {} : { advice }),
});

export function messageOf(error: unknown): string {
  // Several addresses of one host failed, each for its own reason.
  if (error instanceof AggregateError) return [...new Set(error.errors.map(messageOf))].join(', ');
  // The caller already names the server that did not answer.
  if (error instanceof NoAnswer && error.cause !== undefined) return messageOf(error.cause);
  return error instanceof Error ? error.message : String(error);
}
