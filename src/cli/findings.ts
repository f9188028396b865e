/** What `minato doctor` finds. */
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
