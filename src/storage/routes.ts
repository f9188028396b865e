/**
 * Storage over HTTP: how long a community keeps what, and for operators of the node the sizes of the
 * database, its partitions with their end, and what a purge would delete now.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { isNodeOperator, type NodeOperators, refuseOthers } from '../api/node-operators.js';
import { denial } from '../api/rules-errors.js';
import { milliseconds } from '../api/schemas.js';
import type { Communities, Community } from '../communities/communities.js';
import { readTotals } from '../communities/communities.sql.js';
import type { EventStore } from '../events/store.js';
import type { EventTable } from '../events/stored-events.js';
import type { JobsPreview } from '../jobs/run.js';
import { listOwnRetention } from '../topics/node-topics.sql.js';
import { BUCKETS, bucketOf, dropsAt, groupOf, STORAGE_GROUPS, type StorageGroup } from './rules.js';
import { type DatabaseSizes, readSizes, type TableSize } from './storage.sql.js';

const STORAGE = '/admin/storage';
const TOPICS_MAX = 200;
/** Sizes change slowly, and reading them touches every file of the database. */
const SIZES_MS = 10_000;
const PURGE_MS_MAX = 15_000;
const RETRY_AFTER_SECONDS = 5;

export interface StorageOptions extends NodeOperators {
  readonly pool: Pool;
  readonly communities: Communities;
  readonly events: Pick<EventStore, 'stored'>;
  /** A dry run of all jobs that purge. */
  readonly previewPurge: (msMax: number) => Promise<JobsPreview>;
}

const count = z.number().int();
const retention = z.strictObject({
  class: z.enum(['regular', 'history', 'deleted', 'requests', 'ids', 'outbox']),
  days: count.nullable().describe('Null: for ever'),
  setting: z.string(),
});
const group = z.strictObject({
  group: z.enum(STORAGE_GROUPS),
  rows: count.describe('An estimate of the planner; of DynamoDB up to six hours old'),
  table_bytes: count,
  index_bytes: count,
});
const partition = z.strictObject({
  bucket: z.enum(BUCKETS),
  from: milliseconds.nullable().describe('Events ingested since; null: of all times'),
  until: milliseconds.nullable(),
  rows: count.nullable().describe('An estimate of the planner; null before its first one'),
  bytes: count.describe('Events with their indexes'),
  tag_bytes: count.describe('Tags with their indexes'),
  drops_at: milliseconds
    .nullable()
    .describe('Dropped then at the earliest, by the rules as they are now; null: never'),
});
const storage = z.strictObject({
  events: count.describe('Served events of this community'),
  bytes: count,
  retention: z.array(retention),
  topics: z
    .array(
      z.strictObject({
        topic_id: z.string(),
        name: z.string().nullable(),
        days: count.nullable().describe('Null: for ever'),
        events: count,
        bytes: count,
      }),
    )
    .describe('Topics with retention days of their own'),
  more_topics: z.boolean().describe(`There are more than ${TOPICS_MAX} such topics`),
  node: z
    .strictObject({
      read_at: milliseconds,
      database_bytes: count.describe('Of PostgreSQL, also where events are in DynamoDB'),
      groups: z.array(group),
      partitions: z
        .array(partition)
        .describe('The oldest first; none where events are in DynamoDB, which has no months'),
    })
    .nullable()
    .describe('Of the whole database; null unless you are an operator of the node'),
});

const purge = z.strictObject({
  complete: z.boolean().describe('False: the time was over; later jobs were not counted'),
  jobs_counted: z.array(z.string()),
  counts: z.array(
    z.strictObject({
      job: z.string(),
      reason: z.string(),
      class: z.string(),
      rows: count,
      topics: z.array(z.strictObject({ topic: z.string(), rows: count })).describe('The ten largest'),
    }),
  ),
});
const PURGE_TOPICS_MAX = 10;

const foreverIf = (zero: number | 'forever', days: number | 'forever') =>
  days === zero || days === 'forever' ? null : days;

function retentionOf({ settings }: Community): z.output<typeof retention>[] {
  return [
    {
      class: 'regular',
      days: foreverIf(0, settings['retention.regularDays']),
      setting: 'retention.regularDays',
    },
    {
      class: 'history',
      days: foreverIf('forever', settings['retention.historyDays']),
      setting: 'retention.historyDays',
    },
    {
      class: 'deleted',
      days: settings['deletion.mode'] === 'physical' ? 0 : settings['deletion.auditDays'],
      setting: 'deletion.auditDays',
    },
    {
      class: 'requests',
      days: foreverIf(0, settings['deletion.keepRequestsDays']),
      setting: 'deletion.keepRequestsDays',
    },
    { class: 'ids', days: settings['retention.dedupeDays'], setting: 'retention.dedupeDays' },
    { class: 'outbox', days: settings['retention.outboxDays'], setting: 'retention.outboxDays' },
  ];
}

function groupsOf(tables: readonly TableSize[]): z.output<typeof group>[] {
  const sums = new Map(
    STORAGE_GROUPS.map((name) => [name, { group: name, rows: 0, table_bytes: 0, index_bytes: 0 }]),
  );
  for (const { name, rows, tableBytes, indexBytes } of tables) {
    const sum = sums.get(groupOf(name) satisfies StorageGroup)!;
    sum.rows += rows ?? 0;
    sum.table_bytes += tableBytes;
    sum.index_bytes += indexBytes;
  }
  return [...sums.values()];
}

/** Events and their tags have partitions of the same names. */
function partitionsOf(
  tables: readonly TableSize[],
  rules: readonly Community[],
): z.output<typeof partition>[] {
  const tags = new Map(
    tables.filter(({ name }) => name.startsWith('event_tags_')).map((one) => [one.name, one]),
  );
  return tables
    .filter(({ name }) => name.startsWith('events_'))
    .flatMap(({ name, rows, tableBytes, indexBytes, end }) => {
      const named = bucketOf(name);
      if (named === undefined) return [];
      const { bucket, suffix } = named;
      const tag = tags.get(name.replace('events_', 'event_tags_'));
      const month = /^\d/.test(suffix) && end !== null ? monthTo(end) : { from: null, until: null };
      return {
        bucket,
        ...month,
        rows,
        bytes: tableBytes + indexBytes,
        tag_bytes: tag === undefined ? 0 : tag.tableBytes + tag.indexBytes,
        drops_at: month.until === null ? null : dropsAt(bucket, month.until, rules),
      };
    })
    .sort((a, b) => (a.from ?? 0) - (b.from ?? 0) || BUCKETS.indexOf(a.bucket) - BUCKETS.indexOf(b.bucket));
}

function monthTo(until: number): { from: number; until: number } {
  const end = new Date(until);
  return { from: Date.UTC(end.getUTCFullYear(), end.getUTCMonth() - 1, 1), until };
}

export function storageRoutes(options: StorageOptions): Route[] {
  const { pool, communities } = options;
  const sizes = cachedSizes(options);
  const shared = { tags: ['admin: storage'], who: 'operator', method: 'GET' } as const;
  let isPreviewing = false;
  return [
    route({
      ...shared,
      url: STORAGE,
      role: 'viewer',
      summary: 'What is kept for how long, and how much space it takes',
      description: 'The sizes may be ten seconds old.',
      response: storage,
      errors: [],
      handler: async (call) => {
        const { community, now } = call;
        const own = await listOwnRetention(pool, community.id, TOPICS_MAX + 1);
        const size = await readTotals(pool, community.id);
        const common = {
          ...size,
          retention: retentionOf(community),
          topics: own.slice(0, TOPICS_MAX).map(({ topic, days, ...same }) => ({
            topic_id: topic,
            ...same,
            days: foreverIf(0, days),
          })),
          more_topics: own.length > TOPICS_MAX,
        };
        if (!isNodeOperator(options, call)) return { ...common, node: null };
        const { at, found } = await sizes(now);
        const node = {
          read_at: at,
          database_bytes: found.bytes,
          groups: groupsOf([...found.tables, ...found.eventTables.map(asTable)]),
          partitions: options.events.stored.inDatabase ? partitionsOf(found.tables, communities.all()) : [],
        };
        return { ...common, node };
      },
    }),
    route({
      ...shared,
      url: `${STORAGE}/purge-preview`,
      summary: 'What a purge would delete now, of all communities',
      description: 'For operators of the node. The same as `minato purge --dry-run`, for at most 15 seconds.',
      response: purge,
      errors: [],
      handler: async (call) => {
        const refused = refuseOthers(options, call, 'A purge is one of the whole node');
        if (refused !== undefined) return refused;
        if (isPreviewing) return denial('RATE_LIMITED', { retry_after_seconds: RETRY_AFTER_SECONDS });
        isPreviewing = true;
        try {
          const { complete, jobs, counts } = await options.previewPurge(PURGE_MS_MAX);
          return {
            complete,
            jobs_counted: [...jobs],
            counts: counts.map(({ job, reason, class: of, rows, topics = [] }) => ({
              job,
              reason,
              class: of,
              rows,
              topics: topics.slice(0, PURGE_TOPICS_MAX).map((topic) => ({ ...topic })),
            })),
          };
        } finally {
          isPreviewing = false;
        }
      },
    }),
  ];
}

interface Sizes extends DatabaseSizes {
  /** Beside the database. */
  readonly eventTables: readonly EventTable[];
}

/** Tables beside the database are in the group of the tables that they replace. */
const REPLACED = { events: 'events', index: 'event_tags', state: 'event_heads' } as const;
const asTable = ({ holds, ...same }: EventTable): TableSize => ({
  ...same,
  name: REPLACED[holds],
  end: null,
});

/** Requests at the same time share one reading. */
function cachedSizes({ pool, events: { stored } }: StorageOptions) {
  let cached: { at: number; reading: Promise<Sizes> } | undefined;
  const read = async (): Promise<Sizes> => {
    const [sizes, eventTables] = await Promise.all([readSizes(pool), stored.tables()]);
    return { ...sizes, eventTables };
  };
  return async (now: number): Promise<{ at: number; found: Sizes }> => {
    if (cached === undefined || now - cached.at >= SIZES_MS) {
      const reading = read();
      const mine = { at: now, reading };
      cached = mine;
      reading.catch(() => {
        if (cached === mine) cached = undefined;
      });
    }
    const { at, reading } = cached;
    return { at, found: await reading };
  };
}
