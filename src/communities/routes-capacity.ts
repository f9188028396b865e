/**
 * The capacity of a community, for its operators: the active step, the thresholds of all steps, and what is
 * stored.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { milliseconds } from '../api/schemas.js';
import { readCommunitySteps, readSize, WHOLE } from '../events/postgres/capacity.js';
import { communityLimits, fullness, type Limits, MARKS, type Size } from '../events/rules/capacity.js';
import { DISK_UNKNOWN, type Disk } from '../node/rules-disk.js';

export const stepNumber = z
  .union([z.literal(0), z.literal(1), z.literal(2), z.literal(3)])
  .describe(
    '0: everything is accepted, 1: no backfill, 2: no posts of low priority, 3: the oldest events are purged',
  );
export const percent = z
  .number()
  .int()
  .describe('Usage in percent of the nearest limit, rounded down; 0 without limits');

export const percentOf = (size: Size, limits: Limits): number => Math.floor(fullness(size, limits));

const mark = z.strictObject({ from: z.number().int(), until: z.number().int() });
const capacity = z.strictObject({
  space: z.strictObject({
    step: stepNumber,
    since: milliseconds.nullable().describe('When the step began; null in step 0'),
    percent,
    events: z.number().int().describe('Served, without deletion requests'),
    bytes: z.number().int().describe('Of these events, as JSON'),
    max_events: z.number().int().describe('capacity.maxEvents; 0: no limit'),
    max_bytes: z.number().int().describe('capacity.maxBytes; 0: no limit'),
  }),
  lag: z.strictObject({
    step: z
      .union([z.literal(0), z.literal(1), z.literal(2)])
      .describe('The step because of consumers that are behind'),
    since: milliseconds.nullable(),
  }),
  disk: z.strictObject({
    level: z
      .union([z.literal(0), z.literal(1), z.literal(2), z.literal(3)])
      .describe('Of the whole node: 0: fine, 1: no backfill, 2: no posts, 3: nothing is stored'),
    free_percent: z
      .number()
      .nullable()
      .describe(
        'Free space on the disk of the embedded PostgreSQL; null with DATABASE_URL, where it is unknown',
      ),
    min_percent: z.number().nullable().describe('Below this, posts are refused'),
  }),
  marks: z
    .strictObject({ 1: mark, 2: mark, 3: mark })
    .describe('In percent of a limit: a step begins at `from` and ends below `until`'),
});

export interface CapacityOptions {
  readonly pool: Pool;
  /** Space for the database. */
  readonly disk?: () => Disk;
}

function showDisk({ level, freeBytes, totalBytes, minBytes }: Disk): z.output<typeof capacity>['disk'] {
  const percentOfDisk = (bytes: number | undefined) =>
    bytes === undefined || !totalBytes ? null : Math.round((bytes * 1_000) / totalBytes) / 10;
  return { level, free_percent: percentOfDisk(freeBytes), min_percent: percentOfDisk(minBytes) };
}

export function capacityRoutes({ pool, disk = () => DISK_UNKNOWN }: CapacityOptions): Route[] {
  return [
    route({
      method: 'GET',
      url: '/admin/capacity',
      role: 'viewer',
      summary: 'The capacity of this community and the active step',
      tags: ['admin: capacity'],
      who: 'operator',
      response: capacity,
      errors: [],
      handler: async ({ community: { id, settings } }) => {
        const { maxEvents, maxBytes } = communityLimits(settings);
        const { events, bytes } = await readSize(pool, { community: id, topic: WHOLE });
        const steps = await readCommunitySteps(pool, id);
        const space = steps.find(({ cause }) => cause === 'space');
        const lag = steps.find(({ cause }) => cause === 'lag');
        return {
          space: {
            step: space?.step ?? 0,
            since: space?.since ?? null,
            percent: percentOf({ events, bytes }, { maxEvents, maxBytes }),
            events,
            bytes,
            max_events: maxEvents,
            max_bytes: maxBytes,
          },
          lag: { step: lag?.step === 3 ? 2 : (lag?.step ?? 0), since: lag?.since ?? null },
          disk: showDisk(disk()),
          marks: MARKS,
        };
      },
    }),
  ];
}
