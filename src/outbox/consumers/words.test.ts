import { describe, expect, it } from 'vitest';
import { problemsOf, stateText, type Watched } from './words.js';

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
  scannedPlace: null,
  scanned: 30,
  expected: 60,
  lastSeq: null,
};

describe('a consumer', () => {
  it.each<[string, Partial<Watched>, string, RegExp[]]>([
    ['that has read all', {}, 'up to date', []],
    ['that is working', { lagRows: 5, lagSeconds: 1 }, 'following', []],
    [
      'that lags',
      { lagRows: 9_000, lagSeconds: 7_300 },
      'following',
      [/lags 9,000 rows, 2 h, at 3 rows a second/],
    ],
    ['that is paused', { pausedAt: AT, worked: true }, 'paused since 2031-01-15T12:30Z', [/has been paused/]],
    ['that no node runs, with nothing to do', { worked: false }, 'no node runs it', []],
    ['that no node runs', { worked: false, lagRows: 1 }, 'no node runs it', [/no node with the role worker/]],
    [
      'that fails',
      { failingSince: AT, error: 'disk full' },
      'failing since 2031-01-15T12:30Z',
      [/has been failing since 2031-01-15T12:30Z: disk full/],
    ],
    ['that is behind', { behind: true }, 'behind the outbox', [/is at 120, and the outbox no longer has/]],
    ['with a dead letter', { deadLetters: 1 }, 'up to date', [/could not apply 1 row$/]],
    ['to be rebuilt', { rebuild: { ...rebuild, startedAt: null, pinnedSeq: null } }, 'to be rebuilt', []],
    ['in the scan of a rebuild', { rebuild }, 'rebuild: scanning, 50 %', []],
    ['in the replay of a rebuild', { rebuild: { ...rebuild, lastSeq: 105 } }, 'rebuild: replaying, 25 %', []],
    [
      'to be rebuilt that no node runs',
      { rebuild, worked: false },
      'no node runs it',
      [/no node with the role worker/],
    ],
  ])('%s is shown with its problems and what to do', (_, changes, word, problems) => {
    const state = { ...well, ...changes };
    expect(stateText(state)).toBe(word);
    const found = problemsOf(state);
    expect(found).toHaveLength(problems.length);
    for (const [at, problem] of problems.entries()) expect(found[at]!.text).toMatch(problem);
    for (const { advice } of found) expect(advice).toMatch(/\w/);
  });
});
