import { expect, it } from 'vitest';
import { isLogFile, isSegment, missingSegment, nextSegment, olderSegments } from './rules-wal.js';

const segment = (number: number, timeline = 1) =>
  [timeline, Math.floor(number / 256), number % 256]
    .map((part) => part.toString(16).toUpperCase().padStart(8, '0'))
    .join('');
const range = (from: number, to: number, timeline = 1) =>
  Array.from({ length: to - from + 1 }, (_, at) => segment(from + at, timeline));

it('the files of the log are known by their names', () => {
  expect(isSegment('0000000100000000000000FE')).toBe(true);
  expect(
    ['0000000100000000000000fe', '00000001.history', '0000000100000000000000FE.partial'].map(isSegment),
  ).toEqual([false, false, false]);
  for (const name of [
    '00000002.history',
    segment(3),
    `${segment(3)}.partial`,
    `${segment(3)}.00000028.backup`,
  ])
    expect(isLogFile(name), name).toBe(true);
  for (const name of ['../x', 'x', '', `${segment(3)}.gz`, `${segment(3)}/..`])
    expect(isLogFile(name)).toBe(false);
});

it('the segment after FF is the first of the next 4 GB', () => {
  expect(nextSegment(segment(4))).toBe(segment(5));
  expect(nextSegment('0000000100000000000000FF')).toBe('000000010000000100000000');
});

it('a segment that is missing in the middle is found, on each timeline by itself', () => {
  expect(missingSegment(range(250, 270), segment(250))).toBeUndefined();
  expect(missingSegment([...range(250, 254), ...range(257, 270)], segment(250))).toBe(segment(255));
  expect(missingSegment(range(251, 270), segment(250))).toBe(segment(250));
  // What is older than the backup does not matter.
  expect(missingSegment([segment(1), ...range(250, 260)], segment(250))).toBeUndefined();
  // The second timeline begins within a segment of the first.
  expect(missingSegment([...range(250, 255), ...range(254, 259, 2)], segment(250))).toBeUndefined();
  expect(missingSegment([...range(250, 255), segment(254, 2), segment(256, 2)], segment(250))).toBe(
    segment(255, 2),
  );
  expect(missingSegment([], segment(1))).toBeUndefined();
});

it('only what is older than the oldest kept backup is deleted, and never a history', () => {
  const names = [
    ...range(1, 5).map((name) => `${name}.gz`),
    '00000002.history.gz',
    'salt',
    `${segment(2)}.gz.sealed`,
  ];
  expect(olderSegments(names, segment(3))).toEqual([
    `${segment(1)}.gz`,
    `${segment(2)}.gz`,
    `${segment(2)}.gz.sealed`,
  ]);
});
