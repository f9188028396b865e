/** docs/schema.md matches the schema and the declarations of the tables. */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { schemaPage } from '../../scripts/schema-page.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

let store: TestStore;
beforeAll(async () => {
  store = await openTestStore();
});
afterAll(() => store.close());

const PAGE = new URL('../../docs/schema.md', import.meta.url);

it('docs/schema.md is up to date ("npm run docs:schema" makes it)', async () => {
  expect(await schemaPage(store.database.pool)).toBe(await readFile(PAGE, 'utf8'));
});

it('a changed column, index or table changes the page', async () => {
  const { pool } = store.database;
  const before = await schemaPage(pool);
  await pool.query('ALTER TABLE plans ADD COLUMN price bigint');
  await pool.query('CREATE INDEX plans_price ON plans (price) WHERE price > 0');
  const after = await schemaPage(pool);
  const lines = new Set(before.split('\n'));
  expect(after.split('\n').filter((line) => !lines.has(line))).toEqual([
    '| `price` | bigint |  |',
    '  - `plans_pkey` unique (community, plan_id)',
    '  - `plans_price` (price) WHERE (price > 0)',
  ]);
});
