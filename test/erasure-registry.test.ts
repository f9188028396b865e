/** I12: the registry of stores against the schema of a migrated database. A table that nobody registered fails here. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EXEMPT_COLUMNS, PERSONAL_STORES } from '../src/erasure/registry.js';
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
