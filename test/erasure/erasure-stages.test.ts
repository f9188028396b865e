/**
 * The stages of an erasure: grace and restore, hold, the fence on every path, a store that is down, and a
 * request to vanish.
 */
import { createClient } from 'redis';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { changeConfig } from '../../src/communities/config-change.sql.js';
import { readCertificate } from '../../src/erasure/certificates/certificates.sql.js';
import { askErasure, cancelErasure, shownStage, stepErasure } from '../../src/erasure/erasures.sql.js';
import { erase } from '../../src/erasure/jobs.js';
import { reauditErasures } from '../../src/erasure/jobs-reaudit.js';
import { openAlarms } from '../../src/erasure/people.sql.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { runJob } from '../../src/jobs/run.js';
import { ensureMember } from '../../src/members/members.sql.js';
import { addOperator } from '../../src/members/operators.sql.js';
import { type Api, createApi } from '../support/clients/api.js';
import { authenticate } from '../support/clients/auth.js';
import { RawClient } from '../support/clients/client.js';
import { askFor, countsOf, ERASED, jobContext, runErasures, stateOf } from '../support/domains/erasure.js';
import { type Author, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { TestRedis } from '../support/servers/redis.js';

let redis: TestRedis;
let relay: TestNode;
let client: RawClient;
let api: Api;
let aheadMs = 0;
const now = () => Date.now() + aheadMs;
const boss = newAuthor();

beforeAll(async () => {
  redis = await TestRedis.start();
  const env = { MINATO_ADMIN_PUBKEYS: boss.pubkey, REDIS_URL: redis.url };
  // Without the node's own jobs: each step is the test's.
  relay = await startTestNode({ env, now, roles: ['relay', 'api'] });
  client = await RawClient.connect(relay.url);
  api = createApi(relay.http);
});
afterAll(async () => {
  await client?.close();
  await relay?.close();
  await redis?.stop();
});

const run = () => runErasures(jobContext(relay, { now }));
const countsFor = ({ pubkey }: Author) =>
  countsOf(relay.database, relay.node.erasing, { type: 'member', community: 1, pubkey });
const total = async (person: Author) =>
  Object.values(await countsFor(person)).reduce((sum, count) => sum + count, 0);
const ask = (person: Author, graceDays = 0) =>
  askFor(relay.database, { community: 1, pubkey: person.pubkey, graceDays }, now());
const found = async (person: Author) => (await client.query({ authors: [person.pubkey] })).events.length;

async function poster(): Promise<Author> {
  const person = newAuthor();
  for (const content of ['one', 'two'])
    expect(await client.publish(sign(person, { content }))).toEqual([true, '']);
  return person;
}

describe('in its grace period', () => {
  it('an erasure changes nothing and can be cancelled', async () => {
    const person = await poster();
    const erasure = await ask(person, 7);
    await run();
    expect(await stateOf(relay.database, erasure)).toMatchObject({ stage: 'grace', fencedAt: null });
    expect(await found(person)).toBe(2);
    const ref = { community: 1, erasureId: erasure.erasureId };
    const cancelled = await cancelErasure(relay.database.pool, ref, now());
    expect(cancelled).toMatchObject({ stage: 'cancelled', pubkey: null });
    aheadMs += 8 * DAY_MS;
    await run();
    aheadMs -= 8 * DAY_MS;
    expect(await found(person)).toBe(2);
    expect(isDenial(await cancelErasure(relay.database.pool, ref, now()))).toBe(true);
  });

  it('a second request returns the same one; after it the erasure is carried out', async () => {
    const person = await poster();
    const erasure = await ask(person, 1);
    expect((await ask(person)).erasureId).toBe(erasure.erasureId);
    aheadMs += 2 * DAY_MS;
    await run();
    aheadMs -= 2 * DAY_MS;
    expect(await stateOf(relay.database, erasure)).toMatchObject({ stage: 'completed' });
    expect(await total(person)).toBe(0);
  });
});

describe('a legal hold', () => {
  it('stops it before anything is touched, says why, and is in the audit log', async () => {
    const person = await poster();
    const erasure = await ask(person);
    const ref = { community: 1, erasureId: erasure.erasureId, actor: boss.pubkey };
    const held = await stepErasure(relay.database.pool, 'hold', { ...ref, reason: 'a court asked' }, now());
    expect(held).toMatchObject({ holdReason: 'a court asked' });
    await run();
    const state = await stateOf(relay.database, erasure);
    expect([state.stage, shownStage(state)]).toEqual(['requested', 'held']);
    expect(await found(person)).toBe(2);
    expect(isDenial(await cancelErasure(relay.database.pool, ref, now()))).toBe(true);
    await stepErasure(relay.database.pool, 'release', ref, now());
    await run();
    expect(await stateOf(relay.database, erasure)).toMatchObject({ stage: 'completed', heldAt: null });
    const { rows } = await relay.database.pool.query(
      'SELECT action, details FROM audit_log WHERE target = $1 ORDER BY position',
      [erasure.erasureId],
    );
    expect(rows.map(({ action }) => action)).toEqual([
      'erasure.request',
      'erasure.hold',
      'erasure.release',
      'erasure.complete',
    ]);
    expect(rows[1].details).toEqual({ reason: 'a court asked' });
    expect(JSON.stringify(rows)).not.toContain(person.pubkey);
  });
});

describe('one store that is down', () => {
  it('is named, the others are done, and the next try finishes it', async () => {
    const person = await poster();
    const erasure = await ask(person);
    await redis.goDown();
    await run();
    const failed = await stateOf(relay.database, erasure);
    expect(shownStage(failed)).toBe('failed');
    expect(Object.keys(failed.failures)).toEqual(['redis:sessions', 'redis:rate_limits']);
    expect(failed.done).toContain('postgres:events');
    expect(failed.counted['redis:sessions']).toBeUndefined();
    expect(await found(person)).toBe(0);
    expect(await readCertificate(relay.database.pool, erasure.erasureId)).toBeUndefined();

    // The fence holds while it waits.
    expect((await client.publish(sign(person, { content: 'more' })))[0]).toBe(false);
    await redis.comeBack();
    await run();
    expect(await stateOf(relay.database, erasure)).toMatchObject({ stage: 'completed', failures: {} });
    expect((await stateOf(relay.database, erasure)).verified['redis:sessions']).toBe(0);
    expect(await total(person)).toBe(0);

    // Something of theirs that turns up there again is found by the daily look, as in any other store.
    const keys = createClient({ url: redis.url });
    await keys.connect();
    await keys.set(`session:1:${person.pubkey}:left`, '{}');
    const { pool } = relay.database;
    await runErasures(jobContext(relay, { now }), reauditErasures);
    expect(await openAlarms(pool)).toMatchObject([{ store: 'redis:sessions', found: 1 }]);
    await keys.del(`session:1:${person.pubkey}:left`);
    keys.destroy();
    await runErasures(jobContext(relay, { now }), reauditErasures);
    expect(await openAlarms(pool)).toEqual([]);
  });
});

describe('the fence', () => {
  it('holds on every path, and falls with the end', async () => {
    const person = await poster();
    const reader = await RawClient.connect(relay.url);
    await authenticate(reader, person, relay.url);
    const erasure = await ask(person);
    // A consumer that does not read: the erasure comes as far as the outbox, and the fence stands.
    await relay.database.pool.query(
      `INSERT INTO consumer_offsets (consumer, last_seq, updated_at) VALUES ('slow', 0, 0)`,
    );
    await run();
    expect(await stateOf(relay.database, erasure)).toMatchObject({
      stage: 'deleting',
      failures: { 'postgres:events_outbox': expect.stringContaining('waits for slow') },
    });
    await vi.waitUntil(() => relay.node.communities.get(1)!.refused.has(person.pubkey));
    const wrap = sign(newAuthor(), {
      kind: 1_059,
      created_at: nowSeconds() - 60,
      tags: [['p', person.pubkey]],
    });
    const vanish = sign(person, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    for (const event of [sign(person), wrap, vanish])
      expect((await client.publish(event))[0], `kind ${event.kind}`).toBe(false);
    const words = 'restricted: this key is being erased here; nothing of it is taken in until that is done';
    expect(await client.publish(sign(person, { content: 'again' }))).toEqual([false, words]);
    const late = await RawClient.connect(relay.url);
    expect(await authenticate(late, person, relay.url)).toEqual([false, words]);
    await late.close();
    const asked = await api.ask('POST', '/v1/personal-data-export-requests', { as: person });
    expect([asked.status, asked.body]).toMatchObject([409, { code: 'BEING_ERASED' }]);
    const { pool } = relay.database;
    const scope = { community: 1, now: now() };
    const writes = [
      () => changeConfig(pool, scope, async (change) => ensureMember(change, person.pubkey)),
      () =>
        addOperator(pool, { community: 1, pubkey: person.pubkey, actor: boss.pubkey }, { fixed: [] }, now()),
    ];
    for (const write of writes) await expect(write()).rejects.toMatchObject({ code: 'MN001' });
    const added = await api.ask('PUT', `/v1/admin/operators/${person.pubkey}`, { as: boss });
    expect([added.status, added.body]).toMatchObject([409, { code: 'BEING_ERASED' }]);

    await pool.query(`DELETE FROM consumer_offsets WHERE consumer = 'slow'`);
    await run();
    expect(await stateOf(relay.database, erasure)).toMatchObject({ stage: 'completed' });
    expect(await client.publish(wrap)).toEqual([false, expect.stringMatching(ERASED)]);
    await vi.waitUntil(() => !relay.node.communities.get(1)!.refused.has(person.pubkey));
    aheadMs += 3_600_000;
    const later = sign(person, { created_at: nowSeconds() + 3_600, content: 'a new beginning' });
    expect(await client.publish(later)).toEqual([true, '']);
    aheadMs -= 3_600_000;
    await reader.close();
  });
});

describe('a request to vanish', () => {
  it('is an erasure without grace: a certificate, and newer events are welcome', async () => {
    const person = await poster();
    const until = nowSeconds() + 1;
    const request = sign(person, { kind: 62, created_at: until, tags: [['relay', 'ALL_RELAYS']] });
    const newer = sign(person, { created_at: until + 1, content: 'still here' });
    expect(await client.publish(newer)).toEqual([true, '']);
    expect(await client.publish(request)).toEqual([true, '']);
    await run();
    const { rows } = await relay.database.pool.query<{ id: string }>(
      `SELECT erasure_id AS id FROM erasures WHERE cause = 'vanish' AND stage = 'completed'`,
    );
    expect(rows).toHaveLength(1);
    expect(await readCertificate(relay.database.pool, rows[0]!.id)).toBeDefined();
    expect(await found(person)).toBe(1);
    expect(await client.publish(request)).toEqual([true, expect.stringMatching(/^duplicate/)]);
  });

  it('of a key that has left nothing here is settled by a look', async () => {
    const strangers = Array.from({ length: 20 }, () => newAuthor());
    for (const stranger of strangers)
      expect(await client.publish(sign(stranger, { kind: 62, tags: [['relay', 'ALL_RELAYS']] }))).toEqual([
        true,
        '',
      ]);
    const erasures = async () =>
      (await relay.database.pool.query(`SELECT 1 FROM erasures WHERE cause = 'vanish'`)).rowCount;
    const before = await erasures();
    await run();
    expect(await erasures()).toBe(before);
    const { rows } = await relay.database.pool.query<{ count: number }>(
      'SELECT count(*) AS count FROM vanish_marks WHERE erased_at IS NOT NULL AND pubkey = ANY ($1)',
      [strangers.map(({ pubkey }) => Buffer.from(pubkey, 'hex'))],
    );
    expect(rows[0]!.count).toBe(strangers.length);
  });

  it('ends the grace of an erasure that waits', async () => {
    const person = await poster();
    const erasure = await ask(person, 30);
    const request = sign(person, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    expect(await client.publish(request)).toEqual([true, '']);
    await run();
    expect(await stateOf(relay.database, erasure)).toMatchObject({ stage: 'completed' });
    expect(await total(person)).toBe(0);
  });

  it('becomes a whole erasure when the operator asks for one meanwhile', async () => {
    const person = await poster();
    const request = sign(person, {
      kind: 62,
      created_at: nowSeconds() - 10,
      tags: [['relay', 'ALL_RELAYS']],
    });
    expect(await client.publish(request)).toEqual([true, '']);
    const { pool } = relay.database;
    await pool.query(`INSERT INTO consumer_offsets (consumer, last_seq, updated_at) VALUES ('slow', 0, 0)`);
    await run();
    await pool.query(`DELETE FROM consumer_offsets WHERE consumer = 'slow'`);
    const widened = await changeConfig(pool, { community: 1, now: now() }, (change) =>
      askErasure(change, {
        community: 1,
        slug: 'default',
        pubkey: person.pubkey,
        cause: 'operator',
        graceDays: 0,
      }),
    );
    await run();
    if (isDenial(widened)) throw new Error(widened.denied);
    expect(await stateOf(relay.database, widened)).toMatchObject({ stage: 'completed', cause: 'operator' });
    expect(await total(person)).toBe(0);
  });
});

describe('the ids of events are counted under their own store', () => {
  /** Runs one batch after another until events were deleted. */
  async function untilDeleting(person: Author): Promise<{ erasureId: string }> {
    const context = jobContext(relay, { now, bounds: { rows: 500, batches: 1 } });
    for (let runs = 0; runs < 100; runs += 1) {
      await runJob(erase, context);
      const { rows } = await relay.database.pool.query<{ erasureId: string; events: number | null }>(
        `SELECT erasure_id AS "erasureId", (deleted->>'postgres:events')::int AS events FROM erasures
         WHERE pubkey = $1`,
        [Buffer.from(person.pubkey, 'hex')],
      );
      if ((rows[0]?.events ?? 0) > 0) return rows[0]!;
    }
    throw new Error('no event was deleted');
  }

  it('they are deleted after the events of a member who is erased completely', async () => {
    const person = await poster();
    await ask(person);
    const erasure = await untilDeleting(person);
    const { stage, done } = await stateOf(relay.database, erasure);
    expect([stage, done.includes('postgres:event_dedupe')]).toEqual(['deleting', false]);
    expect(await countsFor(person)).toMatchObject({ 'postgres:events': 0, 'postgres:event_dedupe': 2 });
    await run();
    const { counted, deleted, otherwise } = await stateOf(relay.database, erasure);
    expect([counted, deleted].map((counts) => counts['postgres:event_dedupe'])).toEqual([2, 2]);
    expect(otherwise['postgres:event_dedupe'] ?? 0).toBe(0);
    expect(await countsFor(person)).toMatchObject({ 'postgres:events': 0, 'postgres:event_dedupe': 0 });
  });

  it('they are deleted with the events of a member who vanishes, and newer ones stay', async () => {
    const person = await poster();
    const vanish = sign(person, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    expect(await client.publish(vanish)).toEqual([true, '']);
    const newer = sign(person, { created_at: vanish.created_at + 1 });
    expect(await client.publish(newer)).toEqual([true, '']);
    const erasure = await untilDeleting(person);
    const ids = async () => (await countsFor(person))['postgres:event_dedupe'];
    // The request itself and the newer event.
    expect(await ids()).toBe(2);
    await run();
    expect(await stateOf(relay.database, erasure)).toMatchObject({ stage: 'completed' });
    expect(await ids()).toBe(2);
    expect(await client.publish(newer)).toEqual([true, expect.stringMatching(/^duplicate:/)]);
  });
});
