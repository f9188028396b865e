import { describe, expect, it } from 'vitest';
import {
  type Disk,
  type DiskLevel,
  diskLevelAt,
  diskLevelFor,
  refuseForDisk,
  reserveOf,
} from './rules-disk.js';

const GB = 1_073_741_824;
const MB = 1_048_576;

describe('the reserve of a disk', () => {
  it('is the larger of a percentage and a number of bytes, at most the whole disk', () => {
    const reserve = (totalBytes: number, percent: number, bytes: number) =>
      reserveOf(totalBytes, { 'node.diskFreeMinPercent': percent, 'node.diskFreeMinBytes': bytes });
    expect(reserve(100 * GB, 5, GB)).toBe(5 * GB);
    expect(reserve(10 * GB, 5, GB)).toBe(GB);
    expect(reserve(10 * GB, 100, 0)).toBe(10 * GB);
    expect(reserve(GB, 5, 2 * GB)).toBe(GB);
    expect(reserve(GB, 0, 0)).toBe(0);
  });
});

describe('levels of a disk', () => {
  const min = 4 * GB;

  it('begin below their thresholds', () => {
    const fresh = (freeBytes: number) => diskLevelAt(freeBytes, min, 0);
    expect([6 * GB, 6 * GB - 1, min, min - 1, 128 * MB, 128 * MB - 1, 0].map(fresh)).toEqual([
      0, 1, 1, 2, 2, 3, 3,
    ]);
    // With a small reserve the last level begins at a quarter of it.
    expect(diskLevelAt(26 * MB, 100 * MB, 0)).toBe(2);
    expect(diskLevelAt(24 * MB, 100 * MB, 0)).toBe(3);
  });

  it('end 10 % above it, so that they do not flap', () => {
    expect(diskLevelAt(min * 1.05, min, 2)).toBe(2);
    expect(diskLevelAt(min * 1.11, min, 2)).toBe(1);
    expect(diskLevelAt(min * 1.6, min, 1)).toBe(1);
    expect(diskLevelAt(min * 1.66, min, 1)).toBe(0);
    expect(diskLevelAt(min * 2, min, 3)).toBe(0);
  });

  it('are off without a reserve', () => {
    for (const before of [0, 1, 2, 3] as const) expect(diskLevelAt(0, 0, before)).toBe(0);
  });
});

describe('the share of a community', () => {
  const short: Disk = { level: 0, freeBytes: 7 * GB, totalBytes: 100 * GB, minBytes: 4 * GB };
  const kept = new Map([
    [1, 60 * MB],
    [2, 40 * MB],
    [3, 0],
  ]);
  const levels = (disk: Disk, percent = 50) =>
    [1, 2, 3].map((community) => diskLevelFor(disk, community, kept, percent));

  it('applies while the disk is short of space, and only to a community that keeps more than it', () => {
    expect(levels(short)).toEqual([2, 0, 0]);
    expect(levels(short, 30)).toEqual([2, 2, 0]);
    expect(levels(short, 100)).toEqual([0, 0, 0]);
    expect(levels({ ...short, freeBytes: 8 * GB })).toEqual([0, 0, 0]);
    expect(levels({ ...short, level: 1 })).toEqual([2, 1, 1]);
    expect(levels({ ...short, level: 3 })).toEqual([3, 3, 3]);
  });

  it('does not apply to a single community, nor if the free space is unknown', () => {
    expect(diskLevelFor(short, 1, new Map([[1, 60 * MB]]), 50)).toBe(0);
    expect(levels({ ...short, freeBytes: undefined })).toEqual([0, 0, 0]);
  });
});

describe('on a disk that is nearly full', () => {
  const FULL = 'the disk of this relay is nearly full, try again later';
  const taken = (level: DiskLevel, kind: number, isBackfill = false) =>
    refuseForDisk(level, { kind }, { isBackfill, isEphemeral: kind === 20_001 })?.why ?? 'taken';

  it.each([
    // level, post, backfill, replaceable, deletion, vanish, ephemeral
    [0, 'taken', 'taken', 'taken', 'taken', 'taken', 'taken'],
    [1, 'taken', FULL, 'taken', 'taken', 'taken', 'taken'],
    [2, FULL, FULL, FULL, 'taken', 'taken', 'taken'],
    [3, FULL, FULL, FULL, FULL, FULL, 'taken'],
  ] as const)('level %i refuses what its row says', (level, ...expected) => {
    expect([
      taken(level, 1),
      taken(level, 1, true),
      taken(level, 0),
      taken(level, 5),
      taken(level, 62),
      taken(level, 20_001),
    ]).toEqual(expected);
  });

  it('the refusal is an error of the relay, not of the client', () => {
    expect(refuseForDisk(2, { kind: 1 }, { isBackfill: false, isEphemeral: false })?.refused).toBe('error');
  });
});
