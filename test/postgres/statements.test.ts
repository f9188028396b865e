/** The statements of one step of a pipelined session: one message, one answer. */
import type { Client } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { isNoAnswer } from '../../src/limits/in-time.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { errorCode, SQLSTATE } from '../../src/postgres/rules-error-code.js';
import { Session } from '../../src/postgres/session.js';
import { eventually } from '../support/cli.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { FaultProxy, isCommit } from '../support/servers/fault-proxy.js';

let test: TestDatabase;
let database: Database;
let session: Client;
beforeAll(async () => {
  test = await createTestDatabase();
  database = openDatabase(test.connection);
  await database.pool.query('CREATE TABLE steps (step int PRIMARY KEY)');
});
afterAll(async () => {
  await database.close();
  await test.drop();
});
beforeEach(async () => {
  await database.pool.query('TRUNCATE steps');
  session = await database.connect({ pipelined: { transactionMsMax: 60_000 } });
});
afterEach(() => session.end());

const insert = (step: unknown) => ({
  name: 'insert',
  text: 'INSERT INTO steps VALUES ($1) RETURNING step',
  values: [step],
});
const BEGIN = { name: 'begin', text: 'BEGIN' };
const COMMIT = { name: 'commit', text: 'COMMIT' };
const all = async () => (await database.pool.query('SELECT step FROM steps ORDER BY step')).rows;
const outcomes = async (answers: readonly Promise<unknown>[]) =>
  (await Promise.allSettled(answers)).map((each) =>
    each.status === 'fulfilled' ? 'done' : errorCode(each.reason),
  );

it('statements of one step run in order, with one answer of the server', async () => {
  let answers = 0;
  session.connection.on('readyForQuery', () => {
    answers += 1;
  });
  const counted = { text: 'SELECT count(*)::int AS count FROM steps' };
  const [, first, between, second] = await Promise.all(
    [BEGIN, insert(1), counted, insert(2), COMMIT].map((each) => session.query(each)),
  );
  expect([first, between, second].map((result) => result!.rows)).toEqual([
    [{ step: 1 }],
    [{ count: 1 }],
    [{ step: 2 }],
  ]);
  expect(answers).toBe(1);
  expect(await all()).toEqual([{ step: 1 }, { step: 2 }]);
});

it('a server without a limit for transactions answers each statement', async () => {
  const older = new Session({ ...test.connection, pipeline: true });
  await older.connect();
  older.connection.emit('parameterStatus', { parameterName: 'server_version', parameterValue: '16.4' });
  await older.groupStatements(60_000);
  let answers = 0;
  older.connection.on('readyForQuery', () => {
    answers += 1;
  });
  await Promise.all([BEGIN, insert(1), COMMIT].map((each) => older.query(each)));
  expect(answers).toBe(3);
  expect(await all()).toEqual([{ step: 1 }]);
  await older.end();
});

it('a client that stops in the middle of a step does not keep its locks', async () => {
  const proxy = await FaultProxy.start(test.connection);
  const behind = openDatabase(proxy.connection);
  const stopped = await behind.connect({ pipelined: { transactionMsMax: 500 } });
  const frozen = proxy.when(isCommit, { kind: 'freeze' });
  const answers = Promise.allSettled([BEGIN, insert(1), COMMIT].map((each) => stopped.query(each)));
  await frozen;
  // It waits for the other transaction, which has inserted the same key.
  await session.query(insert(1));
  proxy.release();
  expect((await answers).at(-1)!.status).toBe('rejected');
  await stopped.end();
  await behind.close();
  await proxy.stop();
});

it('values keep the types of the database', async () => {
  const { rows } = await session.query({ text: 'SELECT 7::bigint AS large' });
  expect(rows).toEqual([{ large: 7 }]);
});

it('after a failed statement the others are skipped, the COMMIT too', async () => {
  const skipped = { name: 'skipped', text: 'SELECT 1 AS one' };
  const answers = [BEGIN, insert(1), insert(1), skipped, COMMIT].map((each) => session.query(each));
  expect(await outcomes(answers)).toEqual([
    'done',
    'done',
    '23505',
    SQLSTATE.failedTransaction,
    SQLSTATE.failedTransaction,
  ]);
  await session.query('ROLLBACK');
  expect(await all()).toEqual([]);
  // The server did not prepare it, so it is prepared now.
  expect((await session.query(skipped)).rows).toEqual([{ one: 1 }]);
});

it('after a value that cannot be sent the others are skipped, the COMMIT too', async () => {
  const endless: { self?: unknown } = {};
  endless.self = endless;
  const answers = [BEGIN, insert(1), insert(endless), COMMIT].map((each) => session.query(each));
  const [begun, inserted, , committed] = await outcomes(answers);
  expect([begun, inserted, committed]).toEqual(['done', 'done', SQLSTATE.failedTransaction]);
  await expect(answers[2]).rejects.toThrow();
  await session.query('ROLLBACK');
  expect(await all()).toEqual([]);
});

it('a plain text keeps its place among the statements', async () => {
  const answers = [
    session.query(BEGIN),
    session.query(insert(3)),
    session.query('COMMIT; BEGIN'),
    session.query(insert(4)),
    session.query('ROLLBACK'),
  ];
  await Promise.all(answers);
  expect(await all()).toEqual([{ step: 3 }]);
});

it('when the connection breaks, no statement of the step is answered', async () => {
  const answers = [BEGIN, { text: 'SELECT pg_sleep(30)' }, COMMIT].map((each) => session.query(each));
  const broken = Promise.allSettled(answers);
  await eventually('the server sleeps', async () => {
    const { rows } = await database.pool.query(
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'",
    );
    return rows.length === 1 || undefined;
  });
  session.connection.stream.destroy(new Error('ECONNRESET'));
  for (const each of await broken) expect(each.status === 'rejected' && isNoAnswer(each.reason)).toBe(true);
});
