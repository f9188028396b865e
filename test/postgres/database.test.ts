/** Broken connections to PostgreSQL do not stop the node. */
import { readFile } from 'node:fs/promises';
import { getPriority } from 'node:os';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { isNoAnswer } from '../../src/limits/in-time.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { DEAR_NICENESS } from '../../src/postgres/step-back.js';
import { eventually } from '../support/cli.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { FaultProxy } from '../support/servers/fault-proxy.js';

let test: TestDatabase;
let database: Database;
beforeAll(async () => {
  test = await createTestDatabase();
  database = openDatabase(test.connection);
});
afterAll(async () => {
  await database.close();
  await test.drop();
});

it.each(['pool', 'ownPool', 'apiPool', 'limitsPool'] as const)(
  'a connection of %s that breaks during a transaction fails its query and nothing else',
  async (name) => {
    const client = await database[name].connect();
    await client.query('BEGIN');
    const sleeping = client.query('SELECT pg_sleep(30)');
    const { stream } = (client as unknown as { connection: { stream: { destroy(error: Error): void } } })
      .connection;
    stream.destroy(new Error('ECONNRESET'));
    // Without an error listener on the connection this run would end with an uncaught exception.
    await expect(sleeping).rejects.toThrow();
    client.release(true);
    expect((await database[name].query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  },
);

it.runIf(process.platform === 'linux')(
  'a process of the embedded server that runs expensive queries has a low priority',
  async () => {
    const niceness = async (pid: number) => {
      const group = await readFile(`/proc/${pid}/autogroup`, 'utf8').catch(() => undefined);
      const ofGroup = group === undefined ? undefined : Number(/nice (-?\d+)/.exec(group)?.[1]);
      return [getPriority(pid), ofGroup ?? getPriority(pid)];
    };
    const pidOf = async (pool: Database['pool']) =>
      (await pool.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')).rows[0]!.pid;
    const { light, medium, heavy, search } = database.queryPools;
    for (const pool of [medium, heavy, search, database.searchPool]) {
      const pid = await pidOf(pool);
      await eventually('it steps back', async () =>
        (await niceness(pid)).every((value) => value === DEAR_NICENESS) ? true : undefined,
      );
    }
    for (const pool of [light, database.pool, database.ownPool])
      expect(await niceness(await pidOf(pool))).toEqual([0, 0]);
  },
);

it('a query whose connection breaks has no answer, also when the pool runs it', async () => {
  const proxy = await FaultProxy.start(test.connection);
  const behind = openDatabase(proxy.connection);
  try {
    for (const kind of ['cut', 'cut-after', 'lose-answer'] as const) {
      void proxy.when('SELECT 4711', { kind });
      const failure = await behind.pool.query('SELECT 4711').then(
        () => undefined,
        (error: unknown) => error,
      );
      expect(isNoAnswer(failure), `${kind}: ${failure}`).toBe(true);
    }
    expect((await behind.pool.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  } finally {
    await behind.close();
    await proxy.stop();
  }
});

it('an array of texts is read as it was written', async () => {
  const parts = ['a', 'N', 'NULL', '"', '\\', '{', '}', ',', ' ', '', 'ü', '\n'];
  const element = (at: number) =>
    parts[at % 12]! + parts[(at * 5 + (at >> 3)) % 12]! + parts[(at >> 2) % 12]!;
  const arrays = Array.from({ length: 300 }, (_, at) =>
    Array.from({ length: at % 5 }, (_, n) => ((at + n) % 17 === 0 ? null : element(at * 7 + n * 3))),
  );
  for (const array of [...arrays, ['plain'], ['plain', 'kukuri:topic'], [''], [null], ['NULL']]) {
    const { rows } = await database.pool.query<{ array: unknown }>('SELECT $1::text[] AS array', [array]);
    expect(rows[0]!.array).toEqual(array);
  }
  const { rows } = await database.pool.query(
    `SELECT '{{a,b},{c,d}}'::text[] AS nested, NULL::text[] AS none`,
  );
  expect(rows[0]).toEqual({
    nested: [
      ['a', 'b'],
      ['c', 'd'],
    ],
    none: null,
  });
});
