/**
 * I9: a consumer that is rebuilt from the effective events and the end of the outbox has the same state as
 * one that follows, whatever happens meanwhile. A consumer that cannot follow any more is rebuilt and never
 * skips.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { erase } from '../../src/erasure/jobs.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { listLetters, pauseConsumer, resumeConsumer } from '../../src/outbox/consumers/admin.sql.js';
import { askRebuild, readRebuild } from '../../src/outbox/consumers/consumers.sql.js';
import { readHead } from '../../src/outbox/outbox.sql.js';
import { eventually } from '../support/cli.js';
import { START } from '../support/models/event-model.js';
import { FaultProxy, isCommit } from '../support/servers/fault-proxy.js';
import { hasPassed, type Instance, Poster, startInstance, stateOf } from '../support/stores/consuming.js';
import {
  type Ledger,
  makeLedger,
  openGenerations,
  readLedger,
  readWholeView,
} from '../support/stores/ledger.js';
import { type Life, openLife } from '../support/stores/life.js';

/** More than two pages of a scan. */
const EVENTS = 230;
/** More than a rebuild of them has, with what is followed meanwhile. */
const COMMITS_MAX = 30;

let life: Life;
let name: string;
let ledger: Ledger;
let poster: Poster;
let old: NostrEvent[];
let instances: Instance[];
let tests = 0;

beforeAll(async () => {
  life = await openLife(START * 1_000, [{}]);
  old = await new Poster(life).sendMany(EVENTS);
});
afterAll(() => life?.close());
beforeEach(async () => {
  tests += 1;
  name = `built_${tests}`;
  ledger = await makeLedger(life.client, name);
  poster = new Poster(life);
  instances = [];
});
afterEach(async () => {
  for (const instance of instances) await instance.stop();
});

async function start(connection = life.test.connection): Promise<Instance> {
  const instance = await startInstance(life, [ledger], connection);
  instances.push(instance);
  return instance;
}

async function stop(): Promise<void> {
  for (const instance of instances) await instance.stop();
  instances = [];
}

async function expectWhole(generation: number): Promise<void> {
  await hasPassed(life, name, instances);
  expect(await readLedger(life.client, name)).toEqual(await readWholeView(life.client));
  expect((await stateOf(life, name)).generation).toBe(generation);
}

const ask = () => askRebuild(life.client, name, 'asked for', life.now);
const letters = () => listLetters(life.client, name, { after: 0, limit: 100 });

describe('a rebuild', () => {
  it('gives a new consumer the existing events; then it follows the outbox', async () => {
    await start();
    await expectWhole(1);
    await poster.sendMany(2);
    await expectWhole(1);
    expect(await openGenerations(life.client, name)).toEqual([1]);
  });

  it('runs beside the live generation, which stays current, and then replaces it', async () => {
    await start();
    await expectWhole(1);
    let posted: NostrEvent | undefined;
    let wasFresh = false;
    ledger.before = async (_batch, generation) => {
      if (generation !== 2) return;
      if (posted === undefined) posted = await poster.send();
      else {
        const { id } = posted;
        const held = await readLedger(life.database.pool, name, 1);
        wasFresh ||= held.some((row) => row.id === id) && (await stateOf(life, name)).generation === 1;
      }
    };
    expect(await ask()).toBe(true);
    expect(await ask(), 'one that is under way is left alone').toBe(false);
    await expectWhole(2);
    expect(wasFresh).toBe(true);
    expect((await stateOf(life, name)).rebuild).toBeUndefined();
  });

  it('brings back nothing that is deleted during its scan, before or after it was scanned', async () => {
    await start();
    await expectWhole(1);
    const [first, ...rest] = await poster.sendMany(120);
    const last = rest.at(-1)!;
    const version = await poster.send({ kind: 0, content: 'old' });
    let pages = 0;
    ledger.after = async (batch, generation) => {
      if (generation !== 2) return;
      pages += 1;
      const hasFirst = batch.some(({ id, op }) => id === first!.id && op === 'upsert');
      if (!hasFirst) return;
      await poster.delete(first!, last);
      await poster.send({ kind: 0, content: 'new' });
      await poster.sendMany(3);
    };
    await ask();
    await expectWhole(2);
    const held = new Set((await readLedger(life.client, name)).map(({ id }) => id));
    expect([first!, last, version].filter(({ id }) => held.has(id))).toEqual([]);
    expect(pages).toBeGreaterThan(3);
  });

  it('ignores events of vanished authors', async () => {
    await start();
    await expectWhole(1);
    const gone = new Poster(life);
    await gone.sendMany(3);
    await hasPassed(life, name, instances);
    await gone.vanish();
    await ask();
    await hasPassed(life, name, instances);
    expect((await readLedger(life.client, name)).some(({ payload }) => payload.includes(gone.pubkey))).toBe(
      false,
    );
    await life.run(erase);
    await expectWhole(2);
  });

  it('that is interrupted at any step continues from there, before or after a commit', async () => {
    await start();
    await expectWhole(1);
    await stop();
    const reached = new Set<string>();
    let generation = 1;
    for (let commits = 1; commits <= COMMITS_MAX && !reached.has('swapped'); commits += 1) {
      generation += 1;
      await ask();
      await crashAt(commits, commits % 2 === 0 ? 'cut' : 'cut-after');
      reached.add(await stepOf(generation));
      const [first] = await poster.sendMany(2);
      await poster.delete(first!, old.pop()!);
      await start();
      await expectWhole(generation);
      await stop();
    }
    expect([...reached].sort()).toEqual(['asked for', 'pinned', 'replaying', 'scanning', 'swapped']);
  });

  /** An instance that is gone at its so-many-th COMMIT. */
  async function crashAt(commits: number, kind: 'cut' | 'cut-after'): Promise<void> {
    const proxy = await FaultProxy.start(life.test.connection);
    let seen = 0;
    const crashed = proxy.when((message) => isCommit(message) && ++seen === commits, { kind });
    await start(proxy.connection);
    await crashed;
    proxy.goDown();
    await stop();
    await proxy.stop();
    // As after the seconds that a watcher waits.
    await life.client.query('UPDATE consumer_offsets SET holder = NULL WHERE consumer = $1', [name]);
  }

  async function stepOf(generation: number): Promise<string> {
    const rebuild = await readRebuild(life.client, name);
    if (rebuild === undefined)
      return (await stateOf(life, name)).generation === generation ? 'swapped' : 'lost';
    if (rebuild.pinnedSeq === null) return 'asked for';
    if (rebuild.lastSeq !== null) return 'replaying';
    return rebuild.scannedSeq === 0 ? 'pinned' : 'scanning';
  }

  it('keeps dead letters of the new generation only, and deletes those of the old one', async () => {
    await start();
    await expectWhole(1);
    const poison = await poster.send({ content: 'poison' });
    await hasPassed(life, name, instances);
    ledger.before = (batch) => {
      if (batch.some(({ id, op }) => id === poison.id && op === 'upsert'))
        throw new Error('it cannot be taken');
    };
    await ask();
    await hasPassed(life, name, instances);
    expect(await letters()).toMatchObject([{ generation: 2, id: poison.id, error: 'it cannot be taken' }]);
    const whole = await readWholeView(life.client);
    expect(await readLedger(life.client, name)).toEqual(whole.filter(({ id }) => id !== poison.id));
    ledger.before = () => undefined;
    await ask();
    await expectWhole(3);
    const { rows } = await life.client.query('SELECT seq FROM consumer_dead_letters WHERE consumer = $1', [
      name,
    ]);
    expect(rows).toEqual([]);
  });

  it('waits while the consumer is paused', async () => {
    await start();
    await expectWhole(1);
    await pauseConsumer(life.client, name, life.now);
    await ask();
    const { beat } = await turn();
    await eventually('it is still held', async () => ((await turn()).beat > beat + 1 ? true : undefined));
    expect(await readRebuild(life.client, name)).toMatchObject({ generation: 2, pinnedSeq: null });
    await resumeConsumer(life.client, name);
    await expectWhole(2);
  });

  const turn = async () => {
    const { rows } = await life.client.query<{ beat: number }>(
      'SELECT beat FROM consumer_offsets WHERE consumer = $1',
      [name],
    );
    return rows[0]!;
  };

  it('is requested when the rules of a consumer have changed', async () => {
    await start();
    await expectWhole(1);
    await stop();
    ledger.why = 'other kinds are searched';
    ledger.opened = () => {
      ledger.why = undefined;
    };
    await start();
    await eventually('generation 2', async () => {
      instances[0]!.consumers.hurry();
      return (await stateOf(life, name)).generation === 2 ? true : undefined;
    });
    await expectWhole(2);
  });

  it('leaves no old generation, also after a crash between the swap and the clean-up', async () => {
    await start();
    await expectWhole(1);
    await ask();
    await expectWhole(2);
    await stop();
    await life.client.query(`INSERT INTO ${name}_open VALUES (1) ON CONFLICT DO NOTHING`);
    await start();
    await eventually('the old one is gone', async () =>
      (await openGenerations(life.client, name)).includes(1) ? undefined : true,
    );
    expect(await openGenerations(life.client, name)).toEqual([2]);
  });
});

describe('a consumer behind the outbox', () => {
  /** Trims the rows up to now, as after a long pause. */
  async function forget(): Promise<void> {
    const head = await readHead(life.client);
    await life.client.query('DELETE FROM events_outbox WHERE seq <= $1', [head]);
    await life.client.query('UPDATE lane_state SET outbox_floor = $1', [head + 1]);
  }

  it('gets an error, stays readable, and is rebuilt', async () => {
    await start();
    await expectWhole(1);
    const [first] = await poster.sendMany(2);
    await expectWhole(1);
    await stop();
    const before = await readLedger(life.client, name);
    await poster.delete(first!);
    await poster.sendMany(3);
    await forget();
    await poster.sendMany(2);
    ledger.given.length = 0;
    let seen: unknown;
    ledger.opened = async () => {
      const { behind, generation, failingSince, error } = await stateOf(life, name);
      const held = await readLedger(life.client, name);
      seen = { behind, generation, isFailing: failingSince !== null, error, held };
    };
    const { measured } = await start();
    await expectWhole(2);
    expect(seen).toEqual({
      behind: true,
      generation: 1,
      isFailing: true,
      error: expect.stringContaining('it must be rebuilt'),
      held: before,
    });
    expect(await stateOf(life, name)).toMatchObject({ behind: false, error: null, failingSince: null });
    expect(await measured(name)).toMatchObject({ lagging: 0, rebuilding: 0 });
  });

  it('whose rebuild falls behind as well begins again, from nothing', async () => {
    await start();
    await expectWhole(1);
    const [first] = await poster.sendMany(2);
    let opened = 0;
    let forgotten = false;
    ledger.opened = () => {
      opened += 1;
    };
    ledger.after = async (batch, generation) => {
      if (generation !== 2 || forgotten || !batch.some(({ id }) => id === first!.id)) return;
      forgotten = true;
      // Scanned already; only the stored events know that it is deleted.
      await poster.delete(first!);
      await poster.send();
      await forget();
    };
    await ask();
    await expectWhole(2);
    expect(opened).toBe(2);
    expect((await readLedger(life.client, name)).some(({ id }) => id === first!.id)).toBe(false);
  });
});

describe('on an empty store', () => {
  it('the first generation of a consumer is complete and open at once, and the next one too', async () => {
    const empty = await openLife(START * 1_000, [{}]);
    const fresh = await makeLedger(empty.client, 'fresh');
    const instance = await startInstance(empty, [fresh]);
    try {
      await instance.consumers.drained();
      expect(await stateOf(empty, 'fresh')).toMatchObject({ generation: 1, rebuild: undefined });
      expect(await openGenerations(empty.client, 'fresh')).toEqual([1]);
      await askRebuild(empty.client, 'fresh', 'asked for', empty.now);
      await hasPassed(empty, 'fresh', [instance]);
      expect((await stateOf(empty, 'fresh')).generation).toBe(2);
      await new Poster(empty).sendMany(2);
      await instance.consumers.drained();
      expect(await readLedger(empty.client, 'fresh')).toEqual(await readWholeView(empty.client));
    } finally {
      await instance.stop();
      await empty.close();
    }
  });
});
