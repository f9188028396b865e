/**
 * Decides what is refused while the disk of the embedded PostgreSQL is nearly full. A PostgreSQL with a full
 * disk stops for everybody, so the node keeps a reserve for what still has to be written: the write-ahead
 * log, deletions, erasures, consumers that catch up.
 *
 *   0 fine → 1 no backfill → 2 no posts → 3 nothing more is stored, not even deletion requests
 *
 * A level begins below its threshold and ends 10 % above it, so that it does not flap.
 *
 * If several communities share the disk, posts of a community that keeps more than its share are refused
 * earlier: as soon as less than twice the reserve is free. The rest of the space is for the others.
 */

import type { NodeSettings } from '../communities/rules-node-settings.js';
import { KIND_DELETION, KIND_VANISH } from '../events/rules/classify.js';
import { type Refusal, refusal } from '../events/rules/reply.js';

export type DiskLevel = 0 | 1 | 2 | 3;

export interface Disk {
  readonly level: DiskLevel;
  /** Undefined if unknown: the database is the operator's own, or the system does not report it. */
  readonly freeBytes: number | undefined;
  readonly totalBytes: number | undefined;
  /** With less free space than this, posts are refused. */
  readonly minBytes: number;
}
export const DISK_UNKNOWN: Disk = { level: 0, freeBytes: undefined, totalBytes: undefined, minBytes: 0 };

type DiskSettings = Pick<NodeSettings, 'node.diskFreeMinPercent' | 'node.diskFreeMinBytes'>;

/** The space that only deletion requests may use: some segments of the write-ahead log. */
const LAST_BYTES = 134_217_728;
const LEFT_AT = 1.1;
/** The shares of communities apply while less than this many reserves are free. */
const SHARED_BELOW = 2;

export const DISK_WORDS: Record<DiskLevel, string> = {
  0: 'all is taken in',
  1: 'backfill is refused',
  2: 'posts are refused',
  3: 'posts and deletion requests are refused',
};

/** The larger of the two settings, at most the whole disk. */
export function reserveOf(totalBytes: number, settings: DiskSettings): number {
  const share = (totalBytes * settings['node.diskFreeMinPercent']) / 100;
  return Math.min(totalBytes, Math.max(share, settings['node.diskFreeMinBytes']));
}

/** The threshold in bytes below which a level begins. */
const markOf = (level: 1 | 2 | 3, minBytes: number) =>
  level === 1 ? minBytes * 1.5 : level === 2 ? minBytes : Math.min(minBytes / 4, LAST_BYTES);

export function diskLevelAt(freeBytes: number, minBytes: number, before: DiskLevel): DiskLevel {
  let level = before;
  while (level > 0 && freeBytes >= markOf(level as 1 | 2 | 3, minBytes) * LEFT_AT)
    level = (level - 1) as DiskLevel;
  while (level < 3 && freeBytes < markOf((level + 1) as 1 | 2 | 3, minBytes))
    level = (level + 1) as DiskLevel;
  return level;
}

export function isSharedNow({ freeBytes, minBytes }: Pick<Disk, 'freeBytes' | 'minBytes'>): boolean {
  return freeBytes !== undefined && freeBytes < minBytes * SHARED_BELOW;
}

/** The level of one community. `kept`: the bytes that each community keeps. */
export function diskLevelFor(
  disk: Disk,
  community: number,
  kept: ReadonlyMap<number, number>,
  sharePercent: number,
): DiskLevel {
  if (disk.level >= 2 || kept.size < 2 || !isSharedNow(disk)) return disk.level;
  const all = [...kept.values()].reduce((sum, bytes) => sum + bytes, 0);
  return (kept.get(community) ?? 0) * 100 > all * sharePercent ? 2 : disk.level;
}

const FULL = refusal('error', 'the disk of this relay is nearly full, try again later');

/**
 * Deletion requests and requests to vanish are accepted up to level 2, because they free space. Ephemeral
 * events are never stored and always accepted.
 */
export function refuseForDisk(
  level: DiskLevel,
  event: { readonly kind: number },
  { isBackfill, isEphemeral }: { readonly isBackfill: boolean; readonly isEphemeral: boolean },
): Refusal | undefined {
  if (level === 0 || isEphemeral) return undefined;
  if (level === 3) return FULL;
  if (event.kind === KIND_DELETION || event.kind === KIND_VANISH) return undefined;
  return level === 2 || isBackfill ? FULL : undefined;
}
