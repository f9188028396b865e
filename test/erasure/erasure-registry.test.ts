/**
 * I12: the declared tables against the schema of a migrated database. A table that nobody declared fails
 * here.
 */
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DYNAMODB_TABLES, DynamodbAudit } from '../../src/audit/dynamodb.js';
import { settingsFrom } from '../../src/communities/rules-settings.js';
import { STORES, TABLES } from '../../src/erasure/all-tables.sql.js';
import { walkSql } from '../../src/erasure/people.sql.js';
import { auditDeleters } from '../../src/erasure/stores/audit.js';
import type { DeletionRegistry } from '../../src/erasure/stores/deletion-registry.js';
import { countedOutbox } from '../../src/erasure/stores/outbox.sql.js';
import { type Erasing, registryOf } from '../../src/erasure/stores/registry.js';
import { EXEMPT_REDIS_PREFIXES, REDIS_PREFIXES, sessionDeleters } from '../../src/erasure/stores/sessions.js';
import { Dynamodb } from '../../src/events/dynamodb/client.js';
import { startErasing } from '../../src/events/dynamodb/erasing/erasing.js';
import { TABLE_NAMES } from '../../src/events/dynamodb/keys.js';
import { NodeKeys } from '../../src/keys/keys.js';
import { SubjectKey } from '../../src/keys/subject-key.js';
import { PERSONAL_STORES, READING_ORDER } from '../../src/personal-data/registry.js';
import { declareTable, isErased, type Table, walksOf } from '../../src/postgres/table.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

interface Column {
  readonly name: string;
  readonly table: string;
  readonly type: string;
}

let store: TestStore;
let columns: readonly Column[];

beforeAll(async () => {
  store = await openTestStore();
  columns = await readColumns();
});
afterAll(() => store.close());

/** Of every table but the one of the migrator; a partition has the columns of its parent. */
async function readColumns(): Promise<Column[]> {
  const { rows } = await store.database.pool.query<Column>(
    `SELECT c.table_name || '.' || c.column_name AS name, c.table_name AS table, c.data_type AS type
     FROM information_schema.columns c
     JOIN pg_class k ON k.oid = format('%I.%I', c.table_schema, c.table_name)::regclass
     WHERE c.table_schema = 'public' AND k.relkind IN ('r', 'p') AND NOT k.relispartition
       AND c.table_name <> 'schema_migrations' ORDER BY 1`,
  );
  return rows;
}

/** What the schema has after `sql`, which is taken back. */
async function columnsAfter(sql: string, back: string): Promise<Column[]> {
  await store.database.pool.query(sql);
  try {
    return await readColumns();
  } finally {
    await store.database.pool.query(back);
  }
}

/**
 * Bytes are keys, ids and hashes; a text or JSON can name somebody where its own name says so; a topic can be
 * about somebody.
 */
function canNamePerson({ name, type }: Pick<Column, 'name' | 'type'>): boolean {
  if (['bytea', 'inet', 'cidr'].includes(type)) return true;
  if (!['text', 'jsonb', 'ARRAY'].includes(type)) return false;
  const whole = /^(key|value|payload|target|details|comment|topics?|bound)$/;
  const part = /pubkey|author|actor|member|subscriber|person|user|owner|address|note|_by$|_key$/;
  const column = name.slice(name.indexOf('.') + 1);
  return whole.test(column) || part.test(column);
}

/** A public key, by the name of its column. */
const isKey = ({ name, type }: Column) =>
  type === 'bytea' && /\.(named|reporter|subject)$|pubkey|author|actor|_by$/.test(name);

const columnsOf = ({ name }: Table, of: readonly string[]) => of.map((column) => `${name}.${column}`);
const shown = (table: Table) =>
  columnsOf(
    table,
    Object.values(table.files).flatMap(({ names }) => names),
  );
const unshown = (table: Table) => columnsOf(table, Object.keys(table.inNoFile));
const people = (table: Table) => columnsOf(table, Object.keys(table.people));

describe('the declared tables', () => {
  const undeclared = (all: readonly Column[]) =>
    [...new Set(all.map(({ table }) => table))].filter((table) => !TABLES.some(({ name }) => name === table));

  it('are those of the schema, each once', () => {
    expect(undeclared(columns)).toEqual([]);
    const names = TABLES.map(({ name }) => name);
    expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([]);
    expect(names.filter((name) => !columns.some(({ table }) => table === name))).toEqual([]);
    expect(names.length).toBeGreaterThan(60);
  });

  it('a table that is added and not declared breaks the build', async () => {
    const after = await columnsAfter('CREATE TABLE gossip (said text)', 'DROP TABLE gossip');
    expect(undeclared(after)).toEqual(['gossip']);
  });

  it('say what a row is, and why something is not shown, not checked or not erased', () => {
    for (const table of TABLES) {
      const reasons = [
        ...Object.values(table.inNoFile),
        ...Object.values(table.people).flatMap((how) =>
          typeof how === 'object' && 'unchecked' in how ? [how.unchecked] : [],
        ),
        ...('never' in table.erased ? [table.erased.never] : []),
      ];
      for (const text of [table.row, ...reasons]) expect(text, table.name).toMatch(/^[A-Z].{15,}\.$/);
    }
  });

  it('name only columns that exist, and each as shown or as not shown', () => {
    const existing = new Set(columns.map(({ name }) => name));
    for (const table of TABLES) {
      const named = [...shown(table), ...unshown(table), ...people(table)];
      expect(named.filter((name) => !existing.has(name))).toEqual([]);
      expect(shown(table).filter((name) => unshown(table).includes(name))).toEqual([]);
    }
  });

  it('say which tables have partitions, where rows are deleted by their place', async () => {
    const { rows } = await store.database.pool.query<{ name: string }>(
      `SELECT relname AS name FROM pg_class WHERE relkind = 'p' AND NOT relispartition`,
    );
    const partitioned = new Set(rows.map(({ name }) => name));
    const byPlace = TABLES.filter(isErased).filter(({ erased }) => erased.by === undefined);
    for (const { name, erased } of byPlace)
      expect([name, erased.isPartitioned ?? false]).toEqual([name, partitioned.has(name)]);
    expect(byPlace.some(({ name }) => partitioned.has(name))).toBe(true);
  });

  it('find the rows of the outbox by author, also those that the node has signed', async () => {
    const session = await store.database.connect({ indexWalks: true });
    try {
      const { text, values } = countedOutbox(1, { pubkey: 'a'.repeat(64), until: 1 });
      const { rows } = await session.query<{ 'QUERY PLAN': string }>(`EXPLAIN ${text}`, values);
      const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
      expect(plan).toMatch(/Index Cond: .*author = ANY/);
      expect(plan).not.toContain('Seq Scan on events_outbox');
    } finally {
      await session.end();
    }
  });

  const forgotten = (all: readonly Column[]) => {
    const known = new Set(TABLES.flatMap((table) => [...shown(table), ...unshown(table)]));
    return all.filter(canNamePerson).filter(({ name }) => !known.has(name));
  };

  it('show every column that can name a person in a file, or say why not', () => {
    expect(forgotten(columns)).toEqual([]);
    expect(columns.filter(canNamePerson).length).toBeGreaterThan(40);
  });

  it('a column that is added and forgotten breaks the build', async () => {
    const after = await columnsAfter(
      `ALTER TABLE plans ADD COLUMN friend bytea, ADD COLUMN subscriber text, ADD COLUMN topics text[],
        ADD COLUMN client_ip inet`,
      `ALTER TABLE plans DROP COLUMN friend, DROP COLUMN subscriber, DROP COLUMN topics,
        DROP COLUMN client_ip`,
    );
    expect(forgotten(after).map(({ name }) => name)).toEqual([
      'plans.client_ip',
      'plans.friend',
      'plans.subscriber',
      'plans.topics',
    ]);
  });

  it('are erased where they have a community, name people or are shown to them', () => {
    const withCommunity = columns.flatMap(({ name, table }) =>
      name === `${table}.community` ? [table] : [],
    );
    const kept = TABLES.filter((table) => !isErased(table));
    expect(kept.filter(({ name }) => withCommunity.includes(name))).toEqual([]);
    expect(kept.filter((table) => [...people(table), ...shown(table)].length > 0)).toEqual([]);
    const without = TABLES.filter(isErased).filter(({ name }) => !withCommunity.includes(name));
    expect(without.filter(({ erased }) => erased.through === undefined && erased.by === undefined)).toEqual(
      [],
    );
  });
});

describe('the files of a person', () => {
  it('are declared once each, and every name of the reading order is one of them', () => {
    const names = PERSONAL_STORES.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    expect(READING_ORDER.filter((name) => !names.includes(name))).toEqual([]);
    expect(names.slice(0, READING_ORDER.length)).toEqual(READING_ORDER);
  });

  it('say to the person in a sentence what they are', () => {
    for (const { name, about } of PERSONAL_STORES) {
      expect(name).toMatch(/^[a-z]+(-[a-z]+)*$/);
      expect(about, name).toMatch(/^[A-Z].{15,}\.$/);
    }
  });
});

interface Plan {
  readonly 'Node Type': string;
  readonly 'Index Cond'?: string;
  readonly 'Relation Name'?: string;
  readonly Plans?: readonly Plan[];
}

describe('the daily check', () => {
  const walks = TABLES.flatMap((table) =>
    Object.entries(table.people).flatMap(([column, how]) =>
      walksOf(how).map((walk) => ({ table: table.name, column, ...walk })),
    ),
  );
  const unlooked = (tables: readonly Table[]) => {
    const known = new Set(tables.flatMap(people));
    return columns.filter(isKey).filter(({ name }) => !known.has(name));
  };

  it('looks in every column of public keys, or the table says why not', () => {
    expect(unlooked(TABLES)).toEqual([]);
    const [first, ...others] = TABLES;
    expect(unlooked([declareTable(first!.name, { ...first!, people: {} }), ...others])).not.toEqual([]);
    expect(walks.length).toBeGreaterThan(30);
  });

  it.each(walks)(
    '$table.$column: the index $index begins with them, and its condition is the declared one',
    async ({ table, column, index, where }) => {
      const { rows } = await store.database.pool.query<{ keys: string[]; where: string | null }>(
        `SELECT ARRAY[pg_get_indexdef(i.indexrelid, 1, true), pg_get_indexdef(i.indexrelid, 2, true)] AS keys,
         pg_get_expr(i.indpred, i.indrelid, true) AS where
       FROM pg_index i JOIN pg_class k ON k.oid = i.indexrelid
       WHERE i.indrelid = $1::regclass AND k.relname = $2 AND i.indisvalid`,
        [table, index],
      );
      expect(rows).toEqual([{ keys: ['community', column], where: where ?? null }]);
    },
  );

  it('walks an index from key to key in every partition, and sorts nothing', async () => {
    const client = await store.database.connect();
    // An empty table is read as a whole otherwise.
    await client.query('SET enable_seqscan = off');
    const slow: unknown[] = [];
    const look = (plan: Plan, walk: (typeof walks)[number]): void => {
      const isWalked = plan['Index Cond']?.includes(`(${walk.column} > `) ?? false;
      if (/Sort/.test(plan['Node Type']) || (plan['Relation Name'] !== undefined && !isWalked))
        slow.push([walk, plan['Node Type'], plan['Relation Name']]);
      for (const under of plan.Plans ?? []) look(under, walk);
    };
    for (const walk of walks) {
      const { rows } = await client.query<{ 'QUERY PLAN': [{ Plan: Plan }] }>(
        `EXPLAIN (FORMAT JSON) ${walkSql({ ...walk, where: walk.where ?? 'true' })}`,
        [1, Buffer.alloc(0)],
      );
      look(rows[0]!['QUERY PLAN'][0].Plan, walk);
    }
    await client.end();
    expect(slow).toEqual([]);
  });
});

describe('the deletion registry', () => {
  let registry: DeletionRegistry;
  beforeAll(() => {
    const { pool } = store.database;
    const subjectKey = new SubjectKey({ folder: store.test.folder });
    const keys = new NodeKeys({ folder: store.test.folder, pool, now: Date.now });
    const audit = auditDeleters({
      pool,
      dynamodb: new DynamodbAudit({ endpoint: 'http://127.0.0.1:1', region: 'x', prefix: 'minato_' }),
      settingsOf: () => settingsFrom(new Map()),
      now: Date.now,
      hashOf: () => '',
    });
    const sessions = sessionDeleters({ pool, redisUrl: 'redis://127.0.0.1:1' });
    const db = new Dynamodb({ endpoint: 'http://127.0.0.1:1', region: 'x', prefix: 'minato_' });
    const settingsOf = () => settingsFrom(new Map());
    const events = startErasing({ db, pool, now: Date.now, settingsOf }, store.tagHash);
    const erasing = {
      ...{ pool, keys, subjectKey, store: events },
      others: () => [...sessions, ...audit],
    } as unknown as Erasing;
    registry = registryOf(erasing, { client: new pg.Client(), pool, now: Date.now, rows: 1 });
  });

  it('has a deleter for every table that is erased', () => {
    const held = registry.holds();
    expect(TABLES.filter(isErased).filter(({ name }) => !held.includes(name))).toEqual([]);
    expect(TABLES.filter((table) => !isErased(table)).filter(({ name }) => held.includes(name))).toEqual([]);
    expect(STORES.filter(({ name }) => !registry.registeredNames().includes(name))).toEqual([]);
  });

  it('deletes the tables of a store together, and in one way', () => {
    const stores = TABLES.filter(isErased).map(({ erased }) => erased.store);
    const blocks = stores.filter((name, at) => name !== stores[at - 1]);
    expect(blocks).toEqual([...new Set(blocks)]);
    for (const { name, by, tables } of STORES)
      expect(
        tables.map(({ erased }) => erased.by),
        name,
      ).toEqual(tables.map(() => by));
  });

  it('deletes children before their parents, as the foreign keys have them', async () => {
    const { rows } = await store.database.pool.query<{ child: string; parent: string }>(
      `SELECT DISTINCT c.conrelid::regclass::text AS child, c.confrelid::regclass::text AS parent
       FROM pg_constraint c
       WHERE c.contype = 'f' AND c.confdeltype = 'a' AND c.conrelid <> c.confrelid`,
    );
    const erased = TABLES.filter(isErased).map(({ name }) => name);
    const between = rows.filter(({ child, parent }) => erased.includes(child) && erased.includes(parent));
    expect(between.length).toBeGreaterThan(5);
    expect(between.filter(({ child, parent }) => erased.indexOf(child) > erased.indexOf(parent))).toEqual([]);
  });

  it('answers for every prefix that is written in Redis and every table in DynamoDB', () => {
    const held = new Set(registry.holds());
    const prefixes = REDIS_PREFIXES.filter((prefix) => !(prefix in EXEMPT_REDIS_PREFIXES));
    expect(prefixes.filter((prefix) => !held.has(prefix))).toEqual([]);
    const tables = [...DYNAMODB_TABLES, ...Object.values(TABLE_NAMES)];
    expect(tables.filter((table) => !held.has(table))).toEqual([]);
  });

  it('is named store by store, and no name twice', () => {
    const names = registry.registeredNames();
    expect(names).toEqual(
      expect.arrayContaining([
        'postgres:events',
        'postgres:members',
        'postgres:search_documents',
        'postgres:events_outbox',
        'redis:sessions',
        'dynamodb:audit_logs',
        'dynamodb:events',
        'dynamodb:event_state',
        'dynamodb:event_index',
        'files:keys',
      ]),
    );
    for (const name of names) expect(name).toMatch(/^(postgres|redis|dynamodb|files):[a-z_]+$/);
    expect(() => registry.register({ ...Object.create(null), name: names[0]! })).toThrow('two deleters');
  });
});
