import { describe, expect, it } from 'vitest';
import { problemsOf, stateText, type Watched } from './consumer-words.js';

const AT = Date.UTC(2031, 0, 15, 12, 30);
const well: Watched = {
  consumer: 'search',
  generation: 1,
  lastSeq: 120,
  headSeq: 120,
  lagRows: 0,
  lagSeconds: 0,
  behind: false,
  rowsPerSecond: 3.4,
  applied: 120,
  deadLetters: 0,
  held: true,
  beat: 7,
  worked: true,
  pausedAt: null,
  updatedAt: AT,
  error: null,
  failingSince: null,
  rebuild: undefined,
};
const rebuild = {
  generation: 2,
  reason: 'a test',
  requestedAt: AT,
  startedAt: AT,
  pinnedSeq: 100,
  scannedSeq: 50,
  scanned: 30,
  expected: 60,
  lastSeq: null,
};

describe('a consumer', () => {
  it.each<[string, Partial<Watched>, string, RegExp[]]>([
    ['that has read all', {}, 'up to date', []],
    ['that is at it', { lagRows: 5, lagSeconds: 1 }, 'following', []],
    [
      'that lags',
      { lagRows: 9_000, lagSeconds: 7_300 },
      'following',
      [/lags 9,000 rows, 2 h, at 3 rows a second/],
    ],
    ['that is paused', { pausedAt: AT, worked: true }, 'paused since 2031-01-15T12:30Z', [/is paused/]],
    ['that is left alone with nothing to do', { worked: false }, 'nobody works on it', []],
    [
      'that is left alone',
      { worked: false, lagRows: 1 },
      'nobody works on it',
      [/no node with the role worker/],
    ],
    [
      'that fails',
      { failingSince: AT, error: 'disk full' },
      'fails since 2031-01-15T12:30Z',
      [/fails since 2031-01-15T12:30Z: disk full/],
    ],
    ['that is behind', { behind: true }, 'behind the outbox', [/further behind \(at 120\)/]],
    ['that could not take a row', { deadLetters: 1 }, 'up to date', [/could not take 1 row$/]],
    ['to be rebuilt', { rebuild: { ...rebuild, startedAt: null, pinnedSeq: null } }, 'to be rebuilt', []],
    ['that is scanned', { rebuild }, 'rebuilt: scanning, 50 %', []],
    ['that is replayed', { rebuild: { ...rebuild, lastSeq: 105 } }, 'rebuilt: replaying, 25 %', []],
    [
      'that is rebuilt by nobody',
      { rebuild, worked: false },
      'nobody works on it',
      [/no node with the role worker/],
    ],
  ])('%s is told so, and what to do', (_, state, word, problems) => {
    const told = { ...well, ...state };
    expect(stateText(told)).toBe(word);
    const found = problemsOf(told);
    expect(found).toHaveLength(problems.length);
    for (const [at, problem] of problems.entries()) expect(found[at]!.text).toMatch(problem);
    for (const { advice } of found) expect(advice).toMatch(/\w/);
  });
});
