import { afterAll, beforeAll, expect, it } from 'vitest';
import { hexArray, int2Array, int4Array, int8Array, textArray } from '../../src/postgres/binary.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

let store: TestStore;
beforeAll(async () => {
  store = await openTestStore();
});
afterAll(() => store.close());

async function throughPostgres(type: string, array: Buffer): Promise<(string | null)[]> {
  const { rows } = await store.database.pool.query<{ value: string | null }>(
    `SELECT value::text AS value FROM unnest($1::${type}[]) WITH ORDINALITY AS a (value, place)
     ORDER BY place`,
    [array],
  );
  return rows.map(({ value }) => value);
}

const NUMBERS = [0, 1, -1, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 32 + 1, -(2 ** 32) - 1];
const EXTREMES = [Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER];
const BIG = [0n, -1n, 2n ** 63n - 1n, -(2n ** 63n), 0x0123456789abcdefn];

it.each([
  ['bigint', int8Array([...NUMBERS, ...EXTREMES, ...BIG]), [...NUMBERS, ...EXTREMES, ...BIG].map(String)],
  ['int', int4Array([0, -1, 2 ** 31 - 1, -(2 ** 31)]), ['0', '-1', '2147483647', '-2147483648']],
  ['smallint', int2Array([0, -1, 32_767, -32_768]), ['0', '-1', '32767', '-32768']],
  ['bytea', hexArray(['', '00ff', 'ab'.repeat(32)]), ['\\x', '\\x00ff', `\\x${'ab'.repeat(32)}`]],
  ['text', textArray(['', undefined, 'ü"\\,{}港', 'NULL']), ['', null, 'ü"\\,{}港', 'NULL']],
])('an array of %s arrives value by value', async (type, array, due) => {
  expect(await throughPostgres(type, array)).toEqual(due);
});
