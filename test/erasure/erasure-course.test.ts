/** An erasure whose course is changed, or in whose way something stands, while it is under way. */
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { cancelErasure, type Erasure, readErasure } from '../../src/erasure/erasures.sql.js';
import { erase } from '../../src/erasure/jobs.js';
import { completeErasure, fenceCommunity, fenceMember, saveErasure } from '../../src/erasure/steps.sql.js';
import { nextServedOf } from '../../src/events/postgres/selections.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { markWrites } from '../../src/events/rules/writes.js';
import { BOUNDS } from '../../src/jobs/job.js';
import { createLog } from '../../src/node/log.js';
import type { Change } from '../../src/outbox/changes.sql.js';
import { trustConsumer } from '../../src/trust/consumer.js';
import { askFor, ERASED, runErasures, stateOf } from '../support/domains/erasure.js';
import { type Life, openLife, unsigned } from '../support/stores/life.js';

const START = 1_790_000_000_000;
let life: Life;
let community: number;
let keys = 0;

beforeAll(async () => {
  life = await openLife(START, [{}, {}]);
  [community] = life.communities as [number];
});
afterAll(() => life?.close());

const newKey = () => (++keys).toString(16).padStart(64, 'a');
const seconds = () => Math.floor(life.now / 1_000);
const submit = (pubkey: string, draft: { kind?: number; created_at?: number; tags?: string[][] } = {}) =>
  life.submit(0, community, unsigned({ kind: 1, created_at: seconds() - 10, ...draft, pubkey }));
const vanish = (pubkey: string, until: number) =>
  life.submit(
    0,
    community,
    unsigned({ kind: 62, created_at: until, tags: [['relay', 'ALL_RELAYS']], pubkey }),
    [community],
  );
const ask = (pubkey: string) => askFor(life.database, { community, pubkey }, life.now);
const run = () => life.run(erase);
const openOf = async (pubkey: string): Promise<Erasure> => {
  const { rows } = await life.client.query<{ id: string }>(
    `SELECT erasure_id AS id FROM erasures WHERE pubkey = $1 AND stage NOT IN ('completed', 'cancelled')`,
    [Buffer.from(pubkey, 'hex')],
  );
  return (await readErasure(life.database.pool, rows[0]!.id))!;
};

/** Until it has read, no erasure ends. */
async function slowly(meanwhile: () => Promise<void>): Promise<void> {
  await life.client.query(
    `INSERT INTO consumer_offsets (consumer, last_seq, updated_at) VALUES ('slow', 0, 0)`,
  );
  await meanwhile().finally(() => life.client.query(`DELETE FROM consumer_offsets WHERE consumer = 'slow'`));
}

it('a run that read an erasure before it was changed saves nothing over the change', async () => {
  const pubkey = newKey();
  await submit(pubkey);
  await vanish(pubkey, seconds());
  await slowly(async () => {
    await run();
    const stale = await openOf(pubkey);
    expect(stale).toMatchObject({ cause: 'vanish', stage: 'deleting' });
    await ask(pubkey);
    const { pool } = life.database;
    expect(await saveErasure(pool, stale, { stage: 'verifying' }, life.now)).toBe(false);
    const proof = { id: 'f'.repeat(64), previous: undefined, event: '{}' };
    expect(await completeErasure(pool, stale, proof, life.now)).toBe(false);
    expect(await openOf(pubkey)).toMatchObject({ cause: 'operator', stage: 'requested', until: null });
  });
  await run();
  expect(await submit(pubkey)).toMatch(ERASED);
  expect(await submit(pubkey, { kind: 62 })).toMatch(ERASED);
});

describe('who was kept out stays out', () => {
  it('when a disabled member asks to vanish', async () => {
    const pubkey = newKey();
    await submit(pubkey);
    await life.client.query(
      'INSERT INTO members (community, pubkey, created_at, updated_at) VALUES ($1, $2, 1, 1)',
      [community, Buffer.from(pubkey, 'hex')],
    );
    await life.client.query(`UPDATE members SET status = 'disabled' WHERE pubkey = $1`, [
      Buffer.from(pubkey, 'hex'),
    ]);
    await vanish(pubkey, seconds() - 5);
    await run();
    expect(await submit(pubkey, { created_at: seconds() })).toMatch(ERASED);
  });

  it('when it begins again after the ban itself is deleted', async () => {
    const pubkey = newKey();
    await submit(pubkey);
    await life.client.query(
      'INSERT INTO blocked_authors (community, pubkey, created_at) VALUES ($1, $2, 1)',
      [community, Buffer.from(pubkey, 'hex')],
    );
    await vanish(pubkey, seconds() - 5);
    await slowly(async () => {
      await run();
    });
    await vanish(pubkey, seconds() - 4);
    await run();
    expect(await submit(pubkey, { created_at: seconds() })).toMatch(ERASED);
  });
});

const upTo = (at: number) =>
  `blocked: erased; what was signed up to ${new Date(at * 1_000).toISOString().slice(0, 19)}Z is refused`;

it('an erased member may post events signed from the next second on; the reply names the time', async () => {
  const pubkey = newKey();
  await submit(pubkey);
  await ask(pubkey);
  await run();
  expect(await submit(pubkey, { created_at: seconds() })).toBe(upTo(seconds()));
  expect(await submit(pubkey, { created_at: seconds() + 1 })).toBe('stored');
});

it('ephemeral events that are still on their way are erased too, and those of others stay', async () => {
  const [pubkey, other] = [newKey(), newKey()];
  for (const key of [pubkey, other]) expect(await submit(key, { kind: 20_001 })).toBe('broadcast');
  await ask(pubkey);
  await run();
  const { rows } = await life.client.query<{ payload: string }>('SELECT payload FROM live_bus');
  const authors = rows.map(({ payload }) => (JSON.parse(payload) as { pubkey: string }).pubkey);
  expect(authors).toContain(other);
  expect(authors).not.toContain(pubkey);
});

it('while a member is being erased the reply says that nothing of theirs is accepted', async () => {
  const pubkey = newKey();
  await submit(pubkey);
  await slowly(async () => {
    await ask(pubkey);
    await run();
    expect(await submit(pubkey, { created_at: seconds() + 5 })).toBe(
      'blocked: erased; nothing of this key is taken in now',
    );
  });
  await run();
});

describe('what was signed ahead of the clock and was here does not come back', () => {
  it('while it is served', async () => {
    const pubkey = newKey();
    const ahead = { created_at: seconds() + 100_000 };
    expect(await submit(pubkey, ahead)).toBe('stored');
    await ask(pubkey);
    await run();
    expect(await submit(pubkey, ahead)).toBe(upTo(ahead.created_at));
  });

  it('after it was deleted and purged', async () => {
    const pubkey = newKey();
    const ahead = unsigned({ kind: 1, created_at: seconds() + 600, pubkey });
    expect(await life.submit(0, community, ahead)).toBe('stored');
    expect(await submit(pubkey, { kind: 5, created_at: seconds(), tags: [['e', ahead.id]] })).toBe('stored');
    await life.client.query('DELETE FROM events WHERE community = $1 AND id = $2', [
      community,
      Buffer.from(ahead.id, 'hex'),
    ]);
    await ask(pubkey);
    await run();
    expect(await life.submit(0, community, ahead)).toBe(upTo(ahead.created_at));
  });

  it('when they asked to delete it before it came', async () => {
    const pubkey = newKey();
    const ahead = unsigned({ kind: 1, created_at: seconds() + 600, pubkey });
    expect(await submit(pubkey, { kind: 5, created_at: seconds(), tags: [['e', ahead.id]] })).toBe('stored');
    await ask(pubkey);
    await run();
    expect(await life.submit(0, community, ahead)).toMatch(ERASED);
  });
});

it('a new community under an erased name accepts new events, and none of the old ones', async () => {
  const { pool } = life.database;
  const made = async () => {
    const id = await addCommunity(pool, 'art', undefined, life.now);
    await vi.waitUntil(() => life.writers[0]!.communities.get(id) !== undefined);
    return id;
  };
  const old = await made();
  const event = unsigned({ kind: 1, created_at: seconds(), pubkey: newKey() });
  expect(await life.submit(0, old, event)).toBe('stored');
  const erasure = await askFor(life.database, { community: old, slug: 'art' }, life.now);
  await run();
  const { until } = await stateOf(life.database, erasure);
  const again = await made();
  expect(await life.submit(0, again, event)).toBe(upTo(until!));
  expect(await life.submit(0, again, { ...event, created_at: until! })).toBe(upTo(until!));
  expect(await submit(event.pubkey, { created_at: until! }), 'elsewhere').toBe('stored');
  life.now = (until! + 1) * 1_000;
  const fresh = unsigned({ kind: 1, created_at: until! + 1, pubkey: event.pubkey });
  expect(await life.submit(0, again, fresh)).toBe('stored');
});

it('an erasure that cannot continue does not hold up the others', async () => {
  const [stuck, other] = [newKey(), newKey()];
  await submit(stuck);
  await submit(other);
  const [first, second] = [await ask(stuck), await ask(other)];
  const { store, communities, erasing } = life.writers[0]!;
  let marks = 0;
  const mark: typeof store.mark = (work) =>
    ++marks === 1 ? Promise.reject(new Error('the lane takes no more jobs now')) : store.mark(work);
  const { signal } = new AbortController();
  const { database } = life;
  const context = { database, store, communities, now: () => life.now, signal, bounds: BOUNDS };
  await runErasures({ ...context, erasing: { ...erasing, store: { ...store, mark } } });
  const states = [await stateOf(database, first), await stateOf(database, second)];
  expect(states.map(({ stage }) => stage).sort()).toEqual(['completed', 'requested']);
  const failed = states.find(({ stage }) => stage === 'requested')!;
  expect(failed.failures).toEqual({ erasure: 'the lane takes no more jobs now' });
  await run();
  for (const erasure of [first, second])
    expect(await stateOf(database, erasure)).toMatchObject({ stage: 'completed', failures: {} });
});

it('an erasure that was cancelled at the last moment is not fenced', async () => {
  const pubkey = newKey();
  await submit(pubkey);
  const member = await ask(pubkey);
  const whole = await askFor(life.database, { community: life.communities[1]!, slug: 'two' }, life.now);
  for (const erasure of [member, whole])
    await cancelErasure(
      life.database.pool,
      { community: erasure.community, erasureId: erasure.erasureId },
      life.now,
    );
  const subject = Buffer.alloc(32, 7);
  await life.writers[0]!.store.mark(async (session, now) => {
    await fenceCommunity(session, whole, { subject, aheadSeconds: 0 }, now);
    return fenceMember(session, { ...member, pubkey }, subject, now);
  });
  expect(await submit(pubkey, { created_at: seconds() })).toBe('stored');
  const { rows } = await life.client.query('SELECT 1 FROM communities WHERE closed_at IS NOT NULL');
  expect(rows).toEqual([]);
});

it('a mark that hides nobody takes no number', () => {
  expect(markWrites([], 5).lastSeq).toBe(5);
});

it('a request to vanish takes an account with an export that was asked for later', async () => {
  const pubkey = newKey();
  const key = Buffer.from(pubkey, 'hex');
  await submit(pubkey);
  await life.client.query(
    'INSERT INTO members (community, pubkey, created_at, updated_at) VALUES ($1, $2, 1, 1)',
    [community, key],
  );
  await life.client.query(
    `WITH asked AS (INSERT INTO personal_data_requests (request_id, community, pubkey, kind, status,
      created_at)
       VALUES (gen_random_uuid(), $1, $2, 'export', 'ready', $3) RETURNING request_id)
     INSERT INTO personal_data_files SELECT request_id, 0, 'x' FROM asked`,
    [community, key, life.now + 60_000],
  );
  await vanish(pubkey, seconds());
  await run();
  const { rows } = await life.client.query('SELECT 1 FROM members WHERE pubkey = $1', [key]);
  expect(rows).toEqual([]);
});

it('a consumer that reads nothing for a day has to rebuild', async () => {
  const pubkey = newKey();
  await submit(pubkey);
  const erasure = await ask(pubkey);
  await slowly(async () => {
    await run();
    expect(await stateOf(life.database, erasure)).toMatchObject({ stage: 'deleting' });
    life.now += DAY_MS + 60_000;
    await run();
    expect(await stateOf(life.database, erasure)).toMatchObject({ stage: 'completed' });
    const { rows } = await life.client.query(`SELECT reason FROM consumer_rebuilds WHERE consumer = 'slow'`);
    expect(rows).toEqual([{ reason: expect.stringContaining('scrubbed') }]);
    await life.client.query(`DELETE FROM consumer_rebuilds WHERE consumer = 'slow'`);
  });
});

it('waits in the same run for a consumer that reads on, however slowly', async () => {
  const pubkey = newKey();
  await submit(pubkey);
  const erasure = await ask(pubkey);
  await slowly(async () => {
    const running = run();
    // Together longer than it waits for one that stands still.
    for (let reached = 1; reached <= 4; reached += 1) {
      await delay(700);
      await life.client.query(`UPDATE consumer_offsets SET last_seq = $1 WHERE consumer = 'slow'`, [reached]);
    }
    expect(await stateOf(life.database, erasure)).toMatchObject({ stage: 'deleting', failedAt: null });
    await life.client.query(
      `UPDATE consumer_offsets SET last_seq = (SELECT last_seq FROM lane_state) WHERE consumer = 'slow'`,
    );
    await running;
    expect(await stateOf(life.database, erasure)).toMatchObject({ stage: 'completed', tries: 0 });
  });
});

it('what it has read and something else hides meanwhile is not announced again, nor twice', async () => {
  const author = { community, pubkey: newKey(), until: seconds(), sparesRequest: false };
  for (const content of ['one', 'two', 'three'])
    await life.submit(
      0,
      community,
      unsigned({ kind: 1, created_at: seconds(), content, pubkey: author.pubkey }),
    );
  const { store } = life.writers[0]!;
  const events = await nextServedOf(life.client, author, [], 10);
  expect(events).toHaveLength(3);
  const rest = await nextServedOf(life.client, author, events.slice(0, 1), 10);
  expect(rest.map(({ row }) => row.seq)).toEqual(events.slice(1).map(({ row }) => row.seq));
  const refs = [{ community, id: events[1]!.event.id }];
  expect(await store.hide({ hidden: 'removed', purge: false, which: { by: 'ids', refs } })).toBe(1);
  const take = () =>
    store.hide({ hidden: 'erased', purge: true, forget: true, which: { by: 'read', events } });
  expect([await take(), await take()]).toEqual([2, 0]);
  const { rows } = await life.client.query<{ reason: string }>(
    `SELECT reason FROM events_outbox WHERE author = $1 AND op = 'delete' ORDER BY seq`,
    [Buffer.from(author.pubkey, 'hex')],
  );
  expect(rows.map(({ reason }) => reason)).toEqual(['moderation', 'erasure', 'erasure']);
});

it('what others said about an erased member is not recorded again when trust is rebuilt', async () => {
  const [pubkey, other] = [newKey(), newKey()];
  await submit(pubkey);
  const naming = unsigned({ kind: 1, created_at: seconds() - 20, tags: [['p', pubkey]], pubkey: other });
  expect(await life.submit(0, community, naming)).toBe('stored');
  await ask(pubkey);
  await run();
  const { communities, erasing, store } = life.writers[0]!;
  const { database } = life;
  const now = () => life.now;
  const { keys: nodeKeys, subjectKey } = erasing;
  const change: Change = {
    ...{ seq: 1, community, op: 'upsert' as const, reason: undefined, id: naming.id, author: other, kind: 1 },
    ...{ createdAt: naming.created_at, ingestedAt: life.now, topics: [], effectiveKey: undefined, bound: [] },
    payload: JSON.stringify(naming),
  };
  const log = createLog('silent');
  const contacts = async (withKey: boolean) => {
    const key = withKey ? { subjectKey } : {};
    const consumer = trustConsumer({ communities, database, store, keys: nodeKeys, log, now, ...key });
    await life.client.query('BEGIN');
    await consumer.apply([change], life.client, 1);
    const { rows } = await life.client.query(
      'SELECT 1 FROM trust_contacts c JOIN trust_people p ON p.id = c.named WHERE p.pubkey = $1',
      [Buffer.from(pubkey, 'hex')],
    );
    await life.client.query('ROLLBACK');
    return rows.length;
  };
  expect([await contacts(true), await contacts(false)]).toEqual([0, 1]);
});
