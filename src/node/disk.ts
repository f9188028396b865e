/**
 * Reads the free space of the disk of the embedded PostgreSQL every second, without a query. For an
 * operator's own database (DATABASE_URL) this process cannot know it: the level stays 0, and capacity.*
 * limits what is kept.
 */
import type { StatsFs } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { NodeSettings } from '../communities/rules-node-settings.js';
import { startPolling } from '../limits/poll-loop.js';
import type { Log } from './log.js';
import type { Metrics } from './metrics.js';
import {
  DISK_UNKNOWN,
  DISK_WORDS,
  type Disk,
  type DiskLevel,
  diskLevelAt,
  diskLevelFor,
  isSharedNow,
  reserveOf,
} from './rules-disk.js';

const LOOK_MS = 1_000;

export interface DiskGuard {
  now(): Disk;
  /** The level of this community, which shares the disk with the others. */
  levelFor(community: number): DiskLevel;
  stop(): Promise<void>;
}

export interface DiskGuardOptions {
  /** Undefined: the database is on a disk that this process cannot see. */
  readonly folder: string | undefined;
  readonly settings: () => NodeSettings;
  /** The bytes that each community keeps; read only while the disk is short of space. */
  readonly kept: () => Promise<ReadonlyMap<number, number>>;
  readonly metrics: Metrics;
  readonly log: Log;
}

export async function startDiskGuard(options: DiskGuardOptions): Promise<DiskGuard> {
  const { folder, metrics, log } = options;
  let disk = DISK_UNKNOWN;
  metrics.watchDisk(() => disk);
  if (folder === undefined)
    return { now: () => disk, levelFor: () => disk.level, stop: async () => undefined };
  let kept: ReadonlyMap<number, number> = new Map();
  const look = async (): Promise<void> => {
    const before = disk.level;
    disk = await readDisk(folder, options.settings(), disk);
    // If they cannot be read, the last known ones stay in use.
    if (isSharedNow(disk)) kept = await options.kept().catch(() => kept);
    if (disk.level === before) return;
    const details = {
      freeBytes: disk.freeBytes,
      minBytes: Math.ceil(disk.minBytes),
      from: before,
      to: disk.level,
    };
    if (disk.level > before) log.warn(details, `the disk is nearly full: ${DISK_WORDS[disk.level]}`);
    else log.info(details, `the disk has more space again: ${DISK_WORDS[disk.level]}`);
  };
  await look();
  const stop = startPolling(LOOK_MS, look);
  return {
    now: () => disk,
    levelFor: (community) => diskLevelFor(disk, community, kept, options.settings()['node.diskSharePercent']),
    stop,
  };
}

/** If the system does not answer, the last known state. */
export async function readDisk(folder: string, settings: NodeSettings, before: Disk): Promise<Disk> {
  const found = await statNearest(resolve(folder)).catch(() => undefined);
  if (found === undefined) return before;
  const totalBytes = found.blocks * found.bsize;
  // Without the blocks reserved for root, which PostgreSQL cannot use.
  const freeBytes = found.bavail * found.bsize;
  const minBytes = reserveOf(totalBytes, settings);
  return { level: diskLevelAt(freeBytes, minBytes, before.level), freeBytes, totalBytes, minBytes };
}

/** Of the nearest parent that exists: the folder itself may not exist yet. */
async function statNearest(folder: string): Promise<StatsFs> {
  for (let at = folder; ; at = dirname(at)) {
    try {
      return await statfs(at);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || at === dirname(at)) throw error;
    }
  }
}
