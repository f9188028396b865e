/**
 * Shared by commands: prints refusals as sentences, reads lists page by page, parses and prints public keys
 * and times.
 */
import { InvalidArgumentError } from 'commander';
import { z } from 'zod';
import { type Denial, ERRORS, isDenial } from '../api/rules-errors.js';
import { pubkeyOf } from '../node/config.js';
import type { Page, PageOf } from '../postgres/page.js';

const PAGE_ROWS = 500;

/** The result. A refusal becomes an error with its message and its details. */
export function granted<T>(result: T | Denial): T {
  if (!isDenial(result)) return result;
  const { message } = ERRORS[result.denied];
  const details = Object.entries(result.details ?? {}).map(
    ([name, value]) =>
      `${name.replaceAll('_', ' ')}: ${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  throw new Error(details.length === 0 ? message : `${message} (${details.join(', ')})`);
}

export async function printAll<T>(
  read: (page: PageOf) => Promise<Page<T> | Denial>,
  line: (item: T) => string,
  none: string,
): Promise<void> {
  let printed = 0;
  for (let cursor: string | undefined; ; ) {
    const page = granted(await read({ limit: PAGE_ROWS, cursor }));
    for (const item of page.items) process.stdout.write(`${line(item)}\n`);
    printed += page.items.length;
    cursor = page.cursor;
    if (cursor === undefined) break;
  }
  if (printed === 0) process.stdout.write(`${none}\n`);
}

export function pubkeyArgument(text: string): string {
  const pubkey = pubkeyOf(text);
  if (pubkey === undefined) throw new InvalidArgumentError('must be 64 lowercase hex characters or an npub.');
  return pubkey;
}

/** For an option that may be given several times. */
export const pubkeyArguments = (text: string, before: readonly string[] = []) => [
  ...before,
  pubkeyArgument(text),
];

/** From min to max, both included. `also`: other values that are allowed. */
export function wholeNumber(min: number, max: number, also = ''): (text: string) => number {
  return (text) => {
    const number = /^-?\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (number >= min && number <= max) return number;
    throw new InvalidArgumentError(`must be a whole number from ${min} to ${max}${also}.`);
  };
}

/** The error as a sentence. For a value that a schema refuses: its name and what is allowed. */
export function sentenceOf(error: unknown): string {
  if (error instanceof z.ZodError) return error.issues.map(issueText).join('; ');
  return error instanceof Error ? error.message : String(error);
}

function issueText(issue: z.core.$ZodIssue): string {
  const where = issue.path.length === 0 ? 'the value' : issue.path.join('.');
  if (issue.code === 'too_big' && issue.origin === 'number')
    return `${where} must be at most ${issue.maximum}`;
  if (issue.code === 'too_small' && issue.origin === 'number')
    return `${where} must be at least ${issue.minimum}`;
  return `${where}: ${issue.message.replace(/^./, (first) => first.toLowerCase())}`;
}

/** In UTC, to the minute. */
export function timeText(milliseconds: number): string {
  return `${new Date(milliseconds).toISOString().slice(0, 16)}Z`;
}

/** Parses one of these words. */
export function oneOf<T extends string>(words: readonly T[]): (text: string) => T {
  return (text) => {
    const word = words.find((one) => one === text);
    if (word === undefined) throw new InvalidArgumentError(`must be one of ${words.join(', ')}.`);
    return word;
  };
}
