/**
 * Consumers of the outbox: offset and effect are one transaction, one instance holds the lease, a change that
 * fails becomes a dead letter and the rest continues (I8, I14). The instances are real, each with its own
 * connections; the consumer writes a table of the test.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { erase } from '../../src/erasure/jobs.js';
import {
  askRetry,
  listLetters,
  pauseConsumer,
  replayFrom,
  resumeConsumer,
} from '../../src/outbox/consumers/admin.sql.js';
import { LETTERS_MAX } from '../../src/outbox/consumers/batches.js';
import {
  type Progress,
  readLease,
  saveProgress,
  takeLease,
} from '../../src/outbox/consumers/consumers.sql.js';
import { readHead } from '../../src/outbox/outbox.sql.js';
import { eventually } from '../support/cli.js';
import { START } from '../support/models/event-model.js';
import { FaultProxy, isCommit } from '../support/servers/fault-proxy.js';
import { hasPassed, type Instance, Poster, startInstance, stateOf } from '../support/stores/consuming.js';
import { type Ledger, makeLedger, readLedger, readWholeView } from '../support/stores/ledger.js';
import { type Life, openLife } from '../support/stores/life.js';

let life: Life;
let proxy: FaultProxy;
/** A new consumer for each test, on a store with the events of the tests before. */
let name: string;
let ledger: Ledger;
let poster: Poster;
let instances: Instance[];
let tests = 0;

beforeAll(async () => {
  life = await openLife(START * 1_000, [{}, {}], 2);
});
afterAll(() => life?.close());
beforeEach(async () => {
  proxy = await FaultProxy.start(life.test.connection);
  tests += 1;
  name = `ledger_${tests}`;
  ledger = await makeLedger(life.client, name);
  poster = new Poster(life);
  instances = [];
});
afterEach(async () => {
  for (const instance of instances) await instance.stop();
  await proxy.stop();
});

async function start(consumer = ledger, connection = life.test.connection): Promise<Instance> {
  const instance = await startInstance(life, [consumer], connection);
  instances.push(instance);
  return instance;
}

/** A consumer that has caught up, so that only new changes are counted. */
async function startFresh(connection = life.test.connection): Promise<Instance> {
  const instance = await start(ledger, connection);
  await hasPassed(life, name, instances);
  ledger.given.length = 0;
  return instance;
}

/** It has exactly the effective events. */
async function expectWhole(): Promise<void> {
  await hasPassed(life, name, instances);
  expect(await readLedger(life.client, name)).toEqual(await readWholeView(life.client));
}

const holder = async () => (await readLease(life.client, name))?.holder;
const letters = () => listLetters(life.client, name, { after: 0, limit: 100 });
const parked = (count: number) =>
  eventually(`${count} letters`, async () => {
    instances[0]!.consumers.hurry();
    return (await letters()).length === count ? true : undefined;
  });
const isRising = (numbers: readonly number[]) =>
  numbers.every((seq, at) => at === 0 || seq > numbers[at - 1]!);

describe('following', () => {
  it('a consumer has the effective events after posts, versions and deletions', async () => {
    await startFresh();
    const [first] = await poster.sendMany(3);
    await poster.send({ kind: 0, content: 'old' });
    await poster.send({ kind: 0, content: 'new' });
    await expectWhole();
    await poster.delete(first!);
    await expectWhole();
    expect(isRising(ledger.given)).toBe(true);
    expect(await stateOf(life, name)).toMatchObject({
      lagRows: 0,
      lagSeconds: 0,
      deadLetters: 0,
      error: null,
    });
  });

  it('an offset without a row, of a request to vanish, is passed', async () => {
    await startFresh();
    await poster.sendMany(2);
    await poster.vanish();
    await hasPassed(life, name, instances);
    expect((await stateOf(life, name)).lastSeq).toBe(await readHead(life.client));
    expect(Math.max(...ledger.given)).toBeLessThan(await readHead(life.client));
    await life.run(erase);
    await expectWhole();
  });

  it('a batch that fails after its effect is rolled back, and its offset does not move', async () => {
    await startFresh();
    const before = await stateOf(life, name);
    const seen: unknown[] = [];
    ledger.after = async (_batch, generation, tx) => {
      const own = await tx.query(`SELECT 1 FROM ${name} WHERE generation = $1 AND seq > $2`, [
        generation,
        before.lastSeq,
      ]);
      const others = (await readLedger(life.client, name)).filter(({ seq }) => seq > before.lastSeq);
      const { lastSeq } = await stateOf(life, name);
      seen.push([own.rowCount! > 0, others.length, lastSeq]);
      if (seen.length === 1) throw new Error('behind the effect');
    };
    await poster.sendMany(3);
    await expectWhole();
    expect(seen.slice(0, 2)).toEqual([
      [true, 0, before.lastSeq],
      [true, 0, before.lastSeq],
    ]);
    expect(await letters()).toEqual([]);
  });

  it.each([
    ['does not arrive, does it all again', 'cut', true],
    ['is done and its answer lost, goes on behind it', 'lose-answer', false],
  ] as const)('one whose COMMIT %s', async (_what, kind, again) => {
    await startFresh(proxy.connection);
    ledger.after = () => {
      ledger.after = () => undefined;
      void proxy.when(isCommit, { kind });
    };
    const [event] = await poster.sendMany(1);
    await expectWhole();
    const { seq } = (await readLedger(life.client, name)).find(({ id }) => id === event!.id)!;
    expect(ledger.given.filter((given) => given === seq)).toHaveLength(again ? 2 : 1);
    expect(await letters()).toEqual([]);
  });

  it('events come in slices, and a batch saves one offset', async () => {
    const sizes: number[] = [];
    await startFresh();
    ledger.after = (batch) => void sizes.push(batch.length);
    await pauseConsumer(life.client, name, life.now);
    await poster.sendMany(320);
    await resumeConsumer(life.client, name);
    await expectWhole();
    expect(sizes).toEqual([250, 70]);
  });

  it('its lag, rows and state are measured', async () => {
    const { measured } = await startFresh();
    await poster.sendMany(4);
    await expectWhole();
    const atEase = { lag_rows: 0, lag_seconds: 0, dead_letters: 0, lagging: 0, rebuilding: 0 };
    expect(await measured(name)).toEqual({ ...atEase, rows_total: 4 });
    await pauseConsumer(life.client, name, life.now);
    await poster.sendMany(3);
    life.now += 5_000;
    expect(await measured(name)).toMatchObject({ lag_rows: 3, lag_seconds: 5, lagging: 1 });
  });
});

describe('its lease', () => {
  it('one instance works at a time; if its connections break, another continues at its offset', async () => {
    const other = await makeLedger(life.client, name);
    await startFresh(proxy.connection);
    await start(other);
    await poster.sendMany(3);
    await expectWhole();
    expect(other.given).toEqual([]);
    const first = await holder();

    proxy.goDown();
    const [last] = await poster.sendMany(3);
    await expectWhole();
    expect(await holder()).not.toBe(first);
    const taken = other.given.length;
    expect(taken).toBeGreaterThanOrEqual(3);
    const given = ledger.given.length;

    proxy.comeBack();
    await poster.delete(last!);
    await expectWhole();
    expect(ledger.given).toHaveLength(given);
  });

  it('a clean stop frees the lease for the next instance', async () => {
    const instance = await startFresh();
    expect(await holder()).not.toBeNull();
    await instance.stop();
    instances = [];
    expect(await holder()).toBeNull();
  });

  it('a stalled holder whose lease was taken over saves nothing more', async () => {
    const other = await makeLedger(life.client, name);
    const stalledOne = await startFresh(proxy.connection);
    const first = await holder();
    const otherOne = await start(other);
    // Its beats and the offset that it is about to save are both blocked.
    let stands = true;
    const stalled = proxy.when(
      ({ body }) => stands && (body.includes('SET beat') || body.includes('consumer-progress')),
      { kind: 'freeze' },
      Number.POSITIVE_INFINITY,
    );
    const [event] = await poster.sendMany(1);
    await stalled;
    await eventually('another has the turn', async () => ((await holder()) === first ? undefined : true));
    const taken = await holder();
    stands = false;
    proxy.release();
    await expectWhole();
    expect((await readLedger(life.client, name)).filter(({ id }) => id === event!.id)).toHaveLength(1);
    expect(await holder()).toBe(taken);
    expect((await stalledOne.measured(name)).rows_total).toBe(0);
    expect((await otherOne.measured(name)).rows_total).toBe(1);
  });

  it('an offset is saved only by its holder, for its generation and offset, not while paused', async () => {
    await startFresh();
    const { generation, lastSeq } = await stateOf(life, name);
    const mine = { consumer: name, holder: (await holder())!, generation, from: lastSeq, to: lastSeq };
    const save = async (other: Partial<Progress>, paused = false): Promise<boolean> => {
      const tx = life.client;
      await tx.query('BEGIN');
      if (paused) await pauseConsumer(tx, name, life.now);
      const saved = await saveProgress(tx, { ...mine, rows: 0, rowsPerSecond: 0, now: life.now, ...other });
      await tx.query('ROLLBACK');
      return saved;
    };
    expect(await save({})).toBe(true);
    for (const other of [{ holder: randomUUID() }, { generation: generation + 1 }, { from: lastSeq - 1 }])
      expect(await save(other)).toBe(false);
    expect(await save({}, true)).toBe(false);
  });

  it('a lease is taken only if it has not changed since it was read', async () => {
    await startFresh();
    const seen = (await readLease(life.client, name))!;
    await eventually('it beats', async () =>
      (await readLease(life.client, name))!.beat > seen.beat ? true : undefined,
    );
    expect(await takeLease(life.client, name, seen, randomUUID())).toBe(false);
  });
});

describe('failures', () => {
  it('a change that always fails is parked, the others are applied once and in order', async () => {
    await startFresh();
    await pauseConsumer(life.client, name, life.now);
    const events = await poster.sendMany(13);
    const poison = events[7]!.id;
    ledger.before = (batch) => {
      if (batch.some(({ id }) => id === poison)) throw new Error('it cannot be taken');
    };
    await resumeConsumer(life.client, name);
    await hasPassed(life, name, instances);
    expect(isRising(ledger.given)).toBe(true);
    expect(ledger.given).toHaveLength(12);
    expect(await letters()).toMatchObject([
      { id: poison, op: 'upsert', attempts: 5, error: 'it cannot be taken', retryAsked: false },
    ]);
    const whole = await readWholeView(life.client);
    expect(await readLedger(life.client, name)).toEqual(whole.filter(({ id }) => id !== poison));

    // The first retry fails, the second one succeeds.
    await askRetry(life.client, name, {});
    await eventually('it is parked again', async () => {
      instances[0]!.consumers.hurry();
      return (await letters())[0]?.attempts === 6 ? true : undefined;
    });
    expect((await letters())[0]?.retryAsked).toBe(false);
    ledger.before = () => undefined;
    await askRetry(life.client, name, {});
    await parked(0);
    await expectWhole();
  });

  it('a change that the database refuses is parked; deleted since, it is retried as a delete', async () => {
    await startFresh();
    ledger.before = async (batch, _generation, tx) => {
      if (batch.some(({ payload }) => payload?.includes('poison'))) await tx.query("SELECT 'x'::int");
    };
    const stays = await poster.send({ content: 'poison' });
    const goes = await poster.send({ content: 'poison too' });
    await hasPassed(life, name, instances);
    expect((await letters()).map(({ id }) => id)).toEqual([stays.id, goes.id]);
    ledger.before = () => undefined;
    await poster.delete(goes);
    await askRetry(life.client, name, {});
    await parked(0);
    await expectWhole();

    // A deletion that failed is applied later.
    ledger.before = (batch) => {
      if (batch.some(({ op }) => op === 'delete')) throw new Error('nothing is deleted');
    };
    await poster.delete(stays);
    await hasPassed(life, name, instances);
    expect(await letters()).toMatchObject([{ id: stays.id, op: 'delete', reason: 'nip09' }]);
    expect((await readLedger(life.client, name)).some(({ id }) => id === stays.id)).toBe(true);
    ledger.before = () => undefined;
    await askRetry(life.client, name, {});
    await parked(0);
    await expectWhole();
  });

  it('an outage parks nothing, is reported, and ends without intervention', async () => {
    await startFresh(proxy.connection);
    const before = ledger.given.length;
    ledger.after = () => {
      ledger.after = () => undefined;
      proxy.goDown();
    };
    const [event] = await poster.sendMany(2);
    await eventually('it is cut off', () => (ledger.given.length > before ? true : undefined));
    await poster.delete(event!);
    proxy.comeBack();
    await expectWhole();
    expect(await letters()).toEqual([]);

    const locker = await life.database.connect();
    await locker.query(`BEGIN; LOCK TABLE ${name}`);
    await poster.sendMany(2);
    await eventually('it is reported', async () =>
      (await stateOf(life, name)).failingSince ? true : undefined,
    );
    await locker.end();
    await expectWhole();
    expect(await stateOf(life, name)).toMatchObject({ error: null, failingSince: null, deadLetters: 0 });
  });

  it('a batch that takes too long is retried with fewer rows, and nothing is parked', async () => {
    await startFresh();
    await pauseConsumer(life.client, name, life.now);
    await poster.sendMany(120);
    const sizes: number[] = [];
    ledger.before = async (batch, _generation, tx) => {
      sizes.push(batch.length);
      if (batch.length > 70) await tx.query('SET LOCAL statement_timeout = 20; SELECT pg_sleep(5)');
    };
    await resumeConsumer(life.client, name);
    await expectWhole();
    expect(sizes.filter((size) => size > 70).length).toBeGreaterThan(0);
    expect(await stateOf(life, name)).toMatchObject({ deadLetters: 0, failingSince: null });
  });

  it('a single change that takes too long is parked in the end, and the others continue', async () => {
    await startFresh();
    await pauseConsumer(life.client, name, life.now);
    const sent = await poster.sendMany(3);
    ledger.before = async (batch, _generation, tx) => {
      if (batch.some(({ id }) => id === sent[1]!.id))
        await tx.query('SET LOCAL statement_timeout = 20; SELECT pg_sleep(5)');
    };
    await resumeConsumer(life.client, name);
    await eventually('it is parked', async () =>
      (await stateOf(life, name)).deadLetters === 1 ? true : undefined,
    );
    await eventually('the others are there', async () =>
      (await readLedger(life.client, name)).some(({ id }) => id === sent[2]!.id) ? true : undefined,
    );
    ledger.before = () => undefined;
    await askRetry(life.client, name, {});
    await eventually('it is taken in', async () =>
      (await stateOf(life, name)).deadLetters === 0 ? true : undefined,
    );
    await expectWhole();
  });

  it('a change that breaks the session each time is parked in the end, and the others continue', async () => {
    await startFresh();
    await pauseConsumer(life.client, name, life.now);
    const sent = await poster.sendMany(4);
    ledger.before = async (batch, _generation, tx) => {
      if (batch.some(({ id }) => id === sent[1]!.id))
        await tx.query('SELECT pg_terminate_backend(pg_backend_pid())');
    };
    await resumeConsumer(life.client, name);
    await eventually('it is parked', async () =>
      (await stateOf(life, name)).deadLetters === 1 ? true : undefined,
    );
    await eventually('the others are there', async () =>
      (await readLedger(life.client, name)).some(({ id }) => id === sent[3]!.id) ? true : undefined,
    );
    ledger.before = () => undefined;
    await askRetry(life.client, name, {});
    await eventually('it is taken in', async () =>
      (await stateOf(life, name)).deadLetters === 0 ? true : undefined,
    );
    await expectWhole();
  });

  it('a consumer that fails at every change stops instead of parking them all', async () => {
    await startFresh();
    const { generation } = await stateOf(life, name);
    await life.client.query(
      `INSERT INTO consumer_dead_letters (consumer, generation, seq, ingested_at, created_at, failed_at,
         community, kind, attempts, op, error, event_id, author, topics)
       SELECT $1, $2, -n, 0, 0, 0, 1, 1, 5, 'upsert', '', '\\x00', '\\x00', '{}'
       FROM generate_series(1, $3::int) n`,
      [name, generation, LETTERS_MAX],
    );
    ledger.before = () => {
      throw new Error('nothing can be taken');
    };
    await poster.sendMany(2);
    const { error } = await eventually('it is reported', async () => {
      const now = await stateOf(life, name);
      return now.failingSince === null ? undefined : now;
    });
    expect(error).toBe(`${LETTERS_MAX} changes failed already; the last: nothing can be taken`);
    expect(await stateOf(life, name)).toMatchObject({ lagRows: 2, deadLetters: LETTERS_MAX });
    ledger.before = () => undefined;
    await expectWhole();
  });
});

describe('pause and replay', () => {
  it('a paused consumer keeps its lease and saves nothing, not even its current batch', async () => {
    await startFresh();
    const before = await stateOf(life, name);
    let batches = 0;
    ledger.after = async () => {
      batches += 1;
      await pauseConsumer(life.database.pool, name, life.now);
    };
    await poster.sendMany(2);
    await eventually('a batch was under way', () => (batches > 0 ? true : undefined));
    await eventually('it has looked again', async () => {
      const { beat } = (await readLease(life.client, name))!;
      await eventually('a beat', async () =>
        (await readLease(life.client, name))!.beat > beat ? true : undefined,
      );
      return true;
    });
    expect(await stateOf(life, name)).toMatchObject({ lastSeq: before.lastSeq, held: true });
    expect((await readLedger(life.client, name)).filter(({ seq }) => seq > before.lastSeq)).toEqual([]);
    expect(batches).toBe(1);
    ledger.after = () => undefined;
    await resumeConsumer(life.client, name);
    await expectWhole();
  });

  it('a replay from an offset, also in the middle of a batch, changes nothing in the end', async () => {
    await startFresh();
    const [first] = await poster.sendMany(4);
    await poster.delete(first!);
    await expectWhole();
    const { lastSeq } = await stateOf(life, name);
    expect(await replayFrom(life.client, name, lastSeq - 4)).toBeUndefined();
    await expectWhole();

    let moved = 0;
    ledger.after = async () => {
      moved += 1;
      if (moved === 1) await replayFrom(life.database.pool, name, lastSeq - 5);
    };
    ledger.given.length = 0;
    await poster.send();
    await expectWhole();
    // The current batch was rolled back and repeated, with the rows before it.
    expect(ledger.given.filter((seq) => seq === lastSeq + 1)).toHaveLength(2);
    expect(ledger.given).toContain(lastSeq - 4);
  });
});
