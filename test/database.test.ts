/** Connections to PostgreSQL break; the node goes on. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Database, openDatabase } from '../src/postgres/database.js';
import { createTestDatabase, type TestDatabase } from './support/database.js';

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
  'a connection of %s that breaks in the middle of a transaction fails its query and nothing else',
  async (name) => {
    const client = await database[name].connect();
    await client.query('BEGIN');
    const asked = client.query('SELECT pg_sleep(30)');
    const { stream } = (client as unknown as { connection: { stream: { destroy(error: Error): void } } })
      .connection;
    stream.destroy(new Error('ECONNRESET'));
    // Without a listener on the connection itself this run would end with an uncaught exception.
    await expect(asked).rejects.toThrow();
    client.release(true);
    expect((await database[name].query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  },
);
