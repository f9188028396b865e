import { describe, expect, it } from 'vitest';
import {
  bestLocale,
  CONTENT_LENGTH_MAX,
  canonicalLocale,
  findTextProblem,
  hasAgreed,
  POLICY_STATUSES,
  POLICY_STEPS,
  POLICY_VERSION,
  type PolicyRef,
  TITLE_LENGTH_MAX,
} from './rules.js';

const terms = (version: string): PolicyRef => ({ type: 'terms', version });
const privacy = (version: string): PolicyRef => ({ type: 'privacy', version });

describe('a language', () => {
  it.each([
    ['en', 'en'],
    ['EN-us', 'en-US'],
    ['zh-hant-tw', 'zh-Hant-TW'],
    ['pt-BR', 'pt-BR'],
    ['iw', 'he'],
  ])('%s is %s', (tag, canonical) => expect(canonicalLocale(tag)).toBe(canonical));

  it.each(['', 'e', 'english language', 'en_US', 'en-', '-en', '*', '../en', `en-${'a'.repeat(40)}`])(
    '"%s" is none',
    (tag) => expect(canonicalLocale(tag)).toBeUndefined(),
  );

  it.each<[string | undefined, string]>([
    ['de', 'de'],
    ['en-GB', 'en-GB'],
    ['en-AU', 'en-US'],
    ['en', 'en-US'],
    ['fr', 'ja'],
    ['e', 'ja'],
    [undefined, 'ja'],
  ])('for %s is %s: the same tag, one of the same language, or the first', (wanted, chosen) =>
    expect(bestLocale(['ja', 'en-US', 'en-GB', 'de'], wanted)).toBe(chosen),
  );

  it('is undefined when there is no text', () => expect(bestLocale([], 'en')).toBeUndefined());
});

describe('a member', () => {
  it('has agreed when they agreed to the current version of every type', () => {
    const current = [terms('2'), privacy('1')];
    expect(hasAgreed(current, new Set(['terms/2', 'privacy/1', 'terms/1']))).toBe(true);
    for (const agreed of [[], ['terms/2'], ['privacy/1'], ['terms/1', 'privacy/1'], ['terms/1', 'privacy/2']])
      expect(hasAgreed(current, new Set(agreed))).toBe(false);
  });

  it('has agreed when no policy is current', () => expect(hasAgreed([], new Set())).toBe(true));
});

describe('a version', () => {
  it.each(['1', '2026-04', 'v1.0_b', 'a'.repeat(64)])('may be called %s', (name) =>
    expect(POLICY_VERSION.test(name)).toBe(true),
  );
  it.each(['', '.', '..', '-1', 'a/b', 'a b', 'a\n', 'é', 'a'.repeat(65)])('may not be called "%s"', (name) =>
    expect(POLICY_VERSION.test(name)).toBe(false),
  );

  it('cannot become current as a draft, and a repeated step does nothing', () => {
    expect(POLICY_STATUSES.map((status) => POLICY_STEPS.publish[status])).toEqual(['do', 'done', 'done']);
    expect(POLICY_STATUSES.map((status) => POLICY_STEPS['make-current'][status])).toEqual([
      'conflict',
      'do',
      'done',
    ]);
  });
});

it('a text has a title and content that the database can store', () => {
  expect(findTextProblem('Terms', 'Be kind.')).toBeUndefined();
  expect(findTextProblem('t'.repeat(TITLE_LENGTH_MAX), 'c'.repeat(CONTENT_LENGTH_MAX))).toBeUndefined();
  for (const [title, content] of [
    ['', 'x'],
    [' ', 'x'],
    ['x', ''],
    ['x', ' \n'],
    ['t'.repeat(TITLE_LENGTH_MAX + 1), 'x'],
    ['x', 'c'.repeat(CONTENT_LENGTH_MAX + 1)],
    ['x', 'a\u0000b'],
    ['\ud800', 'x'],
  ] as const)
    expect(findTextProblem(title, content), JSON.stringify([title, content]).slice(0, 40)).toMatch(/\w/);
});
