/** I12: the registry of stores against the schema of a migrated database. A table that nobody registered fails here. */
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DYNAMODB_TABLES, DynamodbAudit } from '../src/audit/dynamodb.js';
import { settingsFrom } from '../src/core/settings.js';
import { type Erasing, registryOf } from '../src/erasure/all.js';
import { auditDeleters } from '../src/erasure/audit-deleters.js';
import type { DeletionRegistry } from '../src/erasure/deletion-registry.js';
import { EXEMPT_COLUMNS, PERSONAL_STORES } from '../src/erasure/registry.js';
import { EXEMPT_REDIS_PREFIXES, REDIS_PREFIXES, sessionDeleters } from '../src/erasure/sessions.js';
import { NodeKeys } from '../src/keys.js';
import { PEOPLE_COLUMNS } from '../src/store/erasure-people.js';
import { SubjectKey } from '../src/subject-key.js';
import { openTestStore, type TestStore } from './support/store.js';

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

/** Of every table; a partition has the columns of its parent. */
async function readColumns(): Promise<Column[]> {
  const { rows } = await store.database.pool.query<Column>(
    `SELECT c.table_name || '.' || c.column_name AS name, c.table_name AS table, c.data_type AS type
     FROM information_schema.columns c
     JOIN pg_class k ON k.oid = format('%I.%I', c.table_schema, c.table_name)::regclass
     WHERE c.table_schema = 'public' AND k.relkind IN ('r', 'p') AND NOT k.relispartition ORDER BY 1`,
  );
  return rows;
}

/** Bytes are keys, ids and hashes; a text or JSON can name somebody where its own name says so; a topic can be about somebody. */
function canNamePerson({ name, type }: Pick<Column, 'name' | 'type'>): boolean {
  if (['bytea', 'inet', 'cidr'].includes(type)) return true;
  if (!['text', 'jsonb', 'ARRAY'].includes(type)) return false;
  return /^(key|value|payload|target|details|comment|topics?|bound)$|pubkey|author|actor|member|subscriber|person|user|owner|address|note|_by$|_key$/.test(
    name.slice(name.indexOf('.') + 1),
  );
}

/** A setting's key is one of a list, and so is what is fixed for the node. */
const PLAIN_KEYS = ['community_settings.key', 'node_state.key', 'node_state.value'];

const registered = () => new Set(PERSONAL_STORES.flatMap((one) => one.columns));

/** Tables of which no row is anybody's or any community's, and why a deleter need not know them. */
const NOBODYS: Readonly<Record<string, string>> = {
  communities: 'Its row goes at the end of the erasure itself, behind everything that refers to it.',
  erasure_certificates: 'The proofs, which stay; each names nobody.',
  subject_key_requests: 'Instances that ask for the key of the erased; gone within minutes.',
  used_credentials: 'Signatures and challenges that were used, by themselves; forgotten after minutes.',
};

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
    const erasing = { pool, keys, subjectKey, others: () => [...sessions, ...audit] } as unknown as Erasing;
    registry = registryOf(erasing, { client: new pg.Client(), pool, now: Date.now, rows: 1 });
  });

  /** Every table with a community or somebody's key, of which nobody answers for the rows. */
  const forgotten = (all: readonly Column[]) => {
    const theirs = all.filter(
      (column) =>
        column.name === `${column.table}.community` || registered().has(column.name) || canNamePerson(column),
    );
    const held = new Set([...registry.holds(), ...Object.keys(NOBODYS)]);
    return [...new Set(theirs.map(({ table }) => table))].filter((table) => !held.has(table));
  };

  it('has a deleter for every table that has a community or can name a person', () => {
    const about = new Set(Object.keys(EXEMPT_COLUMNS).map((name) => name.slice(0, name.indexOf('.'))));
    const nodes = ['node_state', 'consumer_rebuilds'];
    expect(forgotten(columns).filter((table) => !nodes.includes(table))).toEqual([]);
    expect(about.size).toBeGreaterThan(0);
  });

  it('a table that is added without a deleter breaks the build', async () => {
    await store.database.pool.query(
      'CREATE TABLE gossip (community integer NOT NULL, pubkey bytea NOT NULL, said text)',
    );
    const after = await readColumns();
    await store.database.pool.query('DROP TABLE gossip');
    expect(forgotten(after)).toContain('gossip');
  });

  it('answers for every prefix that is written in Redis and every table in DynamoDB', () => {
    const held = new Set(registry.holds());
    const prefixes = REDIS_PREFIXES.filter((prefix) => !(prefix in EXEMPT_REDIS_PREFIXES));
    expect(prefixes.filter((prefix) => !held.has(prefix))).toEqual([]);
    expect(DYNAMODB_TABLES.filter((table) => !held.has(table))).toEqual([]);
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
        'files:keys',
      ]),
    );
    for (const name of names) expect(name).toMatch(/^(postgres|redis|dynamodb|files):[a-z_]+$/);
    expect(() => registry.register({ ...Object.create(null), name: names[0]! })).toThrow('two deleters');
  });

  it('looks for the erased in every column that names people by their key', () => {
    const keys = [...registered()].filter((name) => {
      const column = columns.find((one) => one.name === name);
      return column?.type === 'bytea' && /pubkey|author|actor|named|reporter|subject|_by$/.test(name);
    });
    // An erasure that is under way is no leftover, and its hash names nobody.
    const own = ['erasures.pubkey', 'erasures.subject', 'audit_log.actor'];
    expect(keys.filter((name) => !PEOPLE_COLUMNS.includes(name) && !own.includes(name))).toEqual([]);
  });
});

describe('the registry of stores', () => {
  it('has every column of the schema that can name a person, or says why not', () => {
    const suspects = columns.filter(canNamePerson).map(({ name }) => name);
    const known = new Set([...registered(), ...Object.keys(EXEMPT_COLUMNS), ...PLAIN_KEYS]);
    expect(suspects.filter((name) => !known.has(name))).toEqual([]);
    expect(suspects.length).toBeGreaterThan(40);
  });

  it('would notice a table that somebody adds and forgets', async () => {
    await store.database.pool.query(
      'CREATE TABLE forgotten (community integer NOT NULL, friend bytea NOT NULL, subscriber text, topics text[], client_ip inet)',
    );
    const added = (await readColumns()).filter(({ table }) => table === 'forgotten');
    await store.database.pool.query('DROP TABLE forgotten');
    expect(added.filter(canNamePerson).map(({ name }) => name)).toEqual([
      'forgotten.client_ip',
      'forgotten.friend',
      'forgotten.subscriber',
      'forgotten.topics',
    ]);
  });

  it('names only tables and columns that exist', () => {
    const existing = new Set(columns.map(({ name }) => name));
    const tables = new Set(columns.map(({ table }) => table));
    const named = [...registered(), ...Object.keys(EXEMPT_COLUMNS), ...PLAIN_KEYS];
    expect(named.filter((name) => !existing.has(name))).toEqual([]);
    expect(PERSONAL_STORES.flatMap((one) => one.tables).filter((table) => !tables.has(table))).toEqual([]);
  });

  it('exempts nothing that it registers, and gives a reason for each exemption', () => {
    expect(Object.keys(EXEMPT_COLUMNS).filter((name) => registered().has(name))).toEqual([]);
    for (const [name, reason] of Object.entries(EXEMPT_COLUMNS))
      expect(reason, name).toMatch(/^[A-Z].{20,}\.$/);
  });

  it('tells the person in a sentence what each store is', () => {
    for (const { name, about } of PERSONAL_STORES) {
      expect(name).toMatch(/^[a-z]+(-[a-z]+)*$/);
      expect(about, name).toMatch(/^[A-Z].{15,}\.$/);
    }
  });
});
