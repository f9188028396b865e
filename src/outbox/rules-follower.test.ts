import { describe, expect, it } from 'vitest';
import { FOLLOWER_NAME, judgeFollowers } from './rules-follower.js';

const state = { name: 'index', acknowledgedSeq: 5, limitSeconds: 60, isOverrun: false };
const announced = { neededSeq: 9, announcedAt: 1_000 };

describe('followers that have not acknowledged the deletes of an erasure', () => {
  it('are awaited until their own time limit, which begins when the deletes are announced', () => {
    const known = { name: 'index', acknowledgedSeq: 5, limitSeconds: 60, neededSeq: 9 };
    expect(judgeFollowers([state], announced)).toEqual({
      awaited: [{ ...known, until: 61_000 }],
      overrun: [],
    });
  });

  it('are named but not awaited if they must rebuild anyway', () => {
    const { awaited, overrun } = judgeFollowers([{ ...state, isOverrun: true }], announced);
    expect([awaited, overrun]).toEqual([
      [],
      [{ name: 'index', acknowledgedSeq: 5, limitSeconds: 60, neededSeq: 9 }],
    ]);
  });
});

it.each([
  ['index', true],
  ['a', true],
  ['9.a_b-c', true],
  ['a'.repeat(63), true],
  ['a'.repeat(64), false],
  ['', false],
  ['.a', false],
  ['Index', false],
  ['a b', false],
  ['a\n', false],
])('%j as the name of a follower: %s', (name, isName) => {
  expect(FOLLOWER_NAME.test(name)).toBe(isName);
});
