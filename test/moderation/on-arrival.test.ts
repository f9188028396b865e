/**
 * I16: what a rule holds or hides on arrival is never served, not for a moment. With the lanes of two
 * instances on one database: what is stored, rates and rule changes that race with a post, in both orders,
 * restoring, releasing, versions of one key.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { readTotals } from '../../src/communities/communities.sql.js';
import { startLane } from '../../src/events/postgres/lane/lane.js';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import { NodeKeys } from '../../src/keys/keys.js';
import { OnArrival } from '../../src/moderation/arrival/on-arrival.js';
import { RATES_SQL } from '../../src/moderation/arrival/on-arrival.sql.js';
import { findBatch, stepBatch, undoBatch } from '../../src/moderation/batches.sql.js';
import { readCaseEvent } from '../../src/moderation/case-event.js';
import { moderationConsumer } from '../../src/moderation/consumer.js';
import { carryOut } from '../../src/moderation/pending-actions.js';
import { TEXT_LENGTH_MAX } from '../../src/moderation/rules-texts.js';
import { deleteRule, listRules } from '../../src/moderation/stored-rules.sql.js';
import { createLog } from '../../src/node/log.js';
import { createMetrics } from '../../src/node/metrics.js';
import { readChanges } from '../../src/outbox/changes.sql.js';
import { openDatabase } from '../../src/postgres/database.js';
import { type Plan, rateScans, switchRule, writeRule } from '../support/domains/moderation.js';
import { FaultProxy, isCommit } from '../support/servers/fault-proxy.js';
import { hash, type Life, openLife, unsigned } from '../support/stores/life.js';
import { inLockOrder } from '../support/stores/store.js';

const START = Date.UTC(2033, 5, 1);
const seconds = (more = 0) => Math.floor(life.now / 1_000) + more;
let life: Life;
let community: number;
let made = 0;

beforeAll(async () => {
  life = await openLife(START, [{}], 2);
  community = life.communities[0]!;
});
afterAll(() => life.close());
afterEach(async () => {
  const { apiPool: pool } = life.database;
  for (const { ruleId } of await listRules(pool, community))
    await deleteRule(pool, { community, ruleId }, life.now, { keep: true });
});

const at = () => ({ pool: life.database.apiPool, community, now: life.now });
async function write(rule: object): Promise<string> {
  made += 1;
  return (await writeRule(at(), { name: `rule ${made}`, action: 'hold', ...rule })).ruleId;
}
const switchTo = (ruleId: string, enabled: boolean) => switchRule(at(), ruleId, enabled);
async function enable(rule: object): Promise<string> {
  const ruleId = await write(rule);
  await switchTo(ruleId, true);
  return ruleId;
}

/**
 * Both instances have loaded the change, so a post is not judged again because of it and keeps its place in
 * the queue for the lock.
 */
const heard = () => Promise.all(life.writers.map(({ communities }) => communities.refresh()));

let written = 0;
const draft = (content: string, more: Partial<NostrEvent> = {}): NostrEvent => {
  written += 1;
  const tags = [['t', 'harbour'], ...(more.tags ?? [])];
  const given = { kind: 1, pubkey: hash(`author ${written}`), created_at: seconds(), ...more };
  return unsigned({ ...given, tags, content: `${content} ${written}` });
};
const say = (event: NostrEvent, instance = 0) => life.submit(instance, community, event);
const post = async (content: string, more: Partial<NostrEvent> = {}, instance = 0): Promise<NostrEvent> => {
  const event = draft(content, more);
  expect(await say(event, instance)).toBe('stored');
  return event;
};
const query = async <T extends object>(text: string, ...values: unknown[]): Promise<T[]> =>
  (await life.client.query<T>(text, values)).rows;
const idOf = ({ id }: NostrEvent) => Buffer.from(id, 'hex');
const served = async (event: NostrEvent) =>
  (await query('SELECT 1 FROM events WHERE id = $1 AND hidden IS NULL', idOf(event))).length === 1;
const view = async (events: readonly NostrEvent[]) => {
  const seen: boolean[] = [];
  for (const event of events) seen.push(await served(event));
  return seen;
};
const announced = async (event: NostrEvent) =>
  (
    await query<{ op: string; reason: string | null }>(
      'SELECT op, reason FROM events_outbox WHERE event_id = $1 ORDER BY seq',
      idOf(event),
    )
  ).map(({ op, reason }) => reason ?? op);
const casesOf = (event: NostrEvent) =>
  query<{ case_id: string; status: string; reason: string; topics: string[]; rule_id: string }>(
    'SELECT case_id, status, reason, topics, rule_id FROM moderation_cases WHERE target_event = $1',
    idOf(event),
  );
const actionsOf = (event: NostrEvent) =>
  query<{ action: string; outcome: string; rule_id: string | null }>(
    'SELECT action, outcome, rule_id FROM moderation_actions WHERE target_event = $1 ORDER BY position',
    idOf(event),
  );
const restore = (...events: NostrEvent[]) =>
  life.writers[1]!.store.restore(events.map(({ id }) => ({ community, id })));
const settle = async () => {
  while (await carryOut({ store: life.writers[1]!.store, pool: life.database.apiPool, now: () => life.now }));
};

describe('what a rule holds or hides', () => {
  it('is hidden from its commit on, with its action and its case, and no total counts it', async () => {
    const hold = await enable({ conditions: { words: ['casino'] } });
    const hide = await enable({ action: 'hide', conditions: { words: ['viagra'] } });
    const counts = async () => ({
      totals: await readTotals(life.client, community),
      tags: await query('SELECT tag FROM event_tags WHERE community = $1', community),
      topics: await query('SELECT events FROM topic_totals WHERE community = $1', community),
      lastSeq: await query('SELECT last_seq FROM lane_state'),
    });
    const before = await counts();
    const [held, hidden] = [await post('casino'), await post('viagra')];
    expect(await counts()).toEqual(before);
    expect(await view([held, hidden])).toEqual([false, false]);
    expect([await announced(held), await announced(hidden)]).toEqual([[], []]);
    expect(await casesOf(held)).toMatchObject([
      { status: 'held', reason: expect.stringMatching(/^rule: /), topics: ['harbour'], rule_id: hold },
    ]);
    expect(await casesOf(hidden)).toMatchObject([{ status: 'resolved', rule_id: hide }]);
    expect(await actionsOf(held)).toEqual([{ action: 'remove', outcome: 'removed', rule_id: hold }]);
    expect(
      await readCaseEvent(life.client, life.writers[0]!.store.stored, { community, id: held.id }),
    ).toEqual(held);
  });

  it('is refused when sent again, on the other instance or in the same batch, and stored once', async () => {
    await enable({ conditions: { words: ['casino'] } });
    const event = draft('casino');
    const said = await Promise.all([say(event), say(event)]);
    expect(said).toEqual(['stored', 'blocked: removed by a moderator']);
    expect(await say(event, 1)).toBe('blocked: removed by a moderator');
    expect(await casesOf(event)).toHaveLength(1);
  });

  it('is announced once when it is restored, and not judged again', async () => {
    await enable({ conditions: { words: ['casino'] } });
    const event = await post('casino');
    expect(await restore(event)).toEqual(['stored']);
    expect([await served(event), await announced(event)]).toEqual([true, ['upsert']]);
    expect(await restore(event)).toEqual(['unknown']);
    expect(await announced(event)).toEqual(['upsert']);
  });

  it('is not judged again after a moderator restored it, even if its dedupe row was purged', async () => {
    await enable({ conditions: { words: ['casino'] } });
    const event = await post('casino');
    const caseId = (await casesOf(event))[0]!.case_id;
    await query(
      `INSERT INTO moderation_actions (action_id, community, case_id, action, at, target_event, target_pubkey)
       SELECT gen_random_uuid(), $1, $2, 'restore', $3, $4, $5`,
      ...[community, caseId, life.now, idOf(event), Buffer.from(event.pubkey, 'hex')],
    );
    await settle();
    expect(await served(event)).toBe(true);
    await query('DELETE FROM events WHERE id = $1', idOf(event));
    await query('DELETE FROM event_dedupe WHERE event_id = $1', idOf(event));
    expect(await say(event)).toBe('stored');
    expect(await served(event)).toBe(true);
  });

  it('stays hidden, also from moderators, when its author deleted it, before or after', async () => {
    await enable({ conditions: { words: ['casino'] } });
    const event = await post('casino');
    const request = draft('', { kind: 5, pubkey: event.pubkey, tags: [['e', event.id]] });
    expect(await say(request)).toBe('stored');
    expect(
      await readCaseEvent(life.client, life.writers[0]!.store.stored, { community, id: event.id }),
    ).toBeUndefined();
    expect(await restore(event)).toEqual(['deleted']);
    const late = draft('casino');
    await say(draft('', { kind: 5, pubkey: late.pubkey, tags: [['e', late.id]] }));
    expect(await say(late)).toBe('blocked: deleted by its author');
    expect(await casesOf(late)).toEqual([]);
  });

  it('is refused, not broadcast, when it is ephemeral', async () => {
    await enable({ conditions: { words: ['casino'] } });
    expect(await say(draft('casino', { kind: 20_001 }))).toBe('blocked: refused by a rule of this community');
    expect(await say(draft('fine', { kind: 20_001 }))).toBe('broadcast');
    const bus = await query<{ payload: string }>('SELECT payload FROM live_bus');
    expect(bus.filter(({ payload }) => payload.includes('casino'))).toEqual([]);
  });

  it('includes events that need more work than the limit', async () => {
    await enable({ action: 'hide', conditions: { words: ['casino'] } });
    const event = await post('a '.repeat(TEXT_LENGTH_MAX / 2));
    expect(await served(event)).toBe(false);
    expect(await casesOf(event)).toMatchObject([
      { status: 'held', reason: expect.stringContaining('too long to be judged') },
    ]);
    expect(await served(await post('short'))).toBe(true);
  });

  it('does not count as a report or as a version', async () => {
    await enable({ conditions: { kinds: [1_984] } });
    const target = await post('fine');
    const report = await post('', { kind: 1_984, tags: [['e', target.id, 'spam']] });
    const reports = () => query('SELECT 1 FROM reports WHERE event_id = $1', idOf(report));
    expect(await reports()).toEqual([]);
    expect(await restore(report)).toEqual(['stored']);
    expect(await reports()).toHaveLength(1);
  });

  it('gets OK when the reply to its COMMIT was lost, and is stored once', async () => {
    await enable({ conditions: { words: ['casino'] } });
    const proxy = await FaultProxy.start(life.test.connection);
    const database = openDatabase(proxy.connection);
    const { communities, tagHash } = life.writers[0]!;
    const lane = startLane({
      database,
      tagHash,
      metrics: createMetrics(),
      log: createLog('fatal'),
      now: () => life.now,
      settingsOf: (id) => communities.get(id)!.settings,
      onArrival: new OnArrival(communities),
    });
    try {
      const removed = await post('casino');
      void proxy.when(isCommit, { kind: 'lose-answer' }, 2);
      const events = [draft('casino'), draft('fine'), removed];
      const outcomes = await Promise.all(
        events.map((event) => lane.submit({ community, event, payload: serializeEvent(event) })),
      );
      expect(outcomes).toMatchObject(['stored', 'stored', { why: 'removed by a moderator' }]);
      expect(await view(events)).toEqual([false, true, false]);
      expect(await casesOf(events[0]!)).toHaveLength(1);
    } finally {
      await lane.close();
      await database.close();
      await proxy.stop();
    }
  });
});

describe('versions of one key', () => {
  const key = (pubkey: string) => ({ kind: 30_023, pubkey, tags: [['d', 'page']] });

  it('stay while a newer one is held, which replaces them when restored, in any order', async () => {
    await enable({ conditions: { words: ['casino'] } });
    for (const order of [
      [0, 1],
      [1, 0],
    ]) {
      const pubkey = hash(`writer ${order}`);
      const versions = [
        draft('fine', { ...key(pubkey), created_at: seconds(-2) }),
        draft('casino', { ...key(pubkey), created_at: seconds(-1) }),
      ];
      for (const at of order) expect(await say(versions[at]!, at)).toBe('stored');
      expect(await view(versions)).toEqual([true, false]);
      expect(await announced(versions[0]!)).toEqual(['upsert']);
      expect(await restore(versions[1]!)).toEqual(['stored']);
      expect(await view(versions)).toEqual([false, true]);
      expect(await announced(versions[0]!)).toEqual(['upsert', 'superseded']);
    }
  });

  it('that are newer keep the held one from being restored', async () => {
    await enable({ conditions: { words: ['casino'] } });
    const pubkey = hash('writer');
    const held = await post('casino', { ...key(pubkey), created_at: seconds(-2) });
    const newer = await post('fine', { ...key(pubkey), created_at: seconds(-1) });
    expect(await restore(held)).toEqual(['older']);
    expect(await view([held, newer])).toEqual([false, true]);
  });
});

describe('a rule', () => {
  it('applies on every instance from its acknowledgement until that of its end', async () => {
    const ruleId = await write({ conditions: { words: ['casino'] } });
    for (let round = 0; round < 4; round += 1) {
      await switchTo(ruleId, true);
      const held = await Promise.all([post('casino', {}, 0), post('casino', {}, 1)]);
      expect(await view(held)).toEqual([false, false]);
      await switchTo(ruleId, false);
      const free = await Promise.all([post('casino', {}, 1), post('casino', {}, 0)]);
      expect(await view(free)).toEqual([true, true]);
    }
  });

  it('enabled while a post waits decides about it only if the rule was committed first', async () => {
    const ruleId = await write({ conditions: { words: ['casino'] } });
    const [early, late] = [draft('casino'), draft('casino')];
    await inLockOrder<unknown>(life.database, [
      () => say(early),
      () => switchTo(ruleId, true),
      () => say(late, 1),
    ]);
    expect(await view([early, late])).toEqual([true, false]);
    // The consumer does not remove what was stored before.
    const { communities, store } = life.writers[1]!;
    const { apiPool: pool } = life.database;
    const keys = new NodeKeys({ folder: life.test.folder, pool, now: () => life.now });
    const log = createLog('error');
    const consumer = moderationConsumer({ communities, pool, store, keys, log, now: () => life.now });
    const { changes } = await readChanges(life.client, { after: 0, limit: 10_000 });
    await consumer.apply(changes, life.client, 1);
    while (await consumer.followUp!());
    expect(await served(early)).toBe(true);
  });

  it('disabled or deleted while a post waits does not hold it, and releases earlier ones', async () => {
    const disabled = await enable({ conditions: { words: ['casino'] } });
    await heard();
    const [held, free] = [draft('casino'), draft('casino')];
    await inLockOrder<unknown>(life.database, [
      () => say(held),
      () => switchTo(disabled, false),
      () => say(free, 1),
    ]);
    expect(await view([held, free])).toEqual([false, true]);
    await deleteRule(life.database.apiPool, { community, ruleId: disabled }, life.now);
    const deleted = await enable({ conditions: { words: ['casino'] } });
    await heard();
    const [early, late] = [draft('casino'), draft('casino')];
    const remove = () => deleteRule(life.database.apiPool, { community, ruleId: deleted }, life.now);
    await inLockOrder<unknown>(life.database, [() => say(early), remove, () => say(late, 1)]);
    expect(await announced(early)).toEqual([]);
    await settle();
    expect(await view([held, early, late])).toEqual([true, true, true]);
    expect([await announced(held), await announced(early)]).toEqual([['upsert'], ['upsert']]);
  });

  it('when deleted releases what it held; undoing that holds it again', async () => {
    const { apiPool: pool } = life.database;
    const ruleId = await enable({ conditions: { words: ['casino'] } });
    const event = await post('casino');
    const gone = await deleteRule(pool, { community, ruleId }, life.now);
    if (isDenial(gone) || gone.released === undefined) throw new Error('nothing was released');
    const batch = { community, batchId: gone.released };
    await settle();
    expect([await served(event), await announced(event)]).toEqual([true, ['upsert']]);
    expect(await casesOf(event)).toMatchObject([{ status: 'resolved' }]);
    expect(isDenial(await undoBatch(pool, batch, 30, life.now))).toBe(false);
    const { store, communities } = life.writers[0]!;
    while (await stepBatch(pool, store.stored, (id) => communities.get(id)?.settings, life.now));
    await settle();
    expect(await findBatch(pool, community, batch.batchId)).toMatchObject({ status: 'undone' });
    expect(await served(event)).toBe(false);
    expect(await casesOf(event)).toMatchObject([{ status: 'held' }]);
  });

  it('that refuses does so on an instance that has not loaded it yet, too', async () => {
    await enable({ action: 'refuse', conditions: { words: ['casino'] } });
    for (const instance of [0, 1])
      expect(await say(draft('casino'), instance)).toBe('blocked: refused by a rule of this community');
  });

  it('of a higher priority with a rate lets the next one decide until it is exceeded', async () => {
    const pubkey = hash('fast');
    const limited = { kinds: [7_100], rate: { count: 1, seconds: 60 } };
    await enable({ priority: 2, conditions: limited });
    await enable({ priority: 1, action: 'refuse', conditions: { words: ['casino'] } });
    const refused = 'blocked: refused by a rule of this community';
    expect(await say(draft('casino', { kind: 7_100, pubkey }))).toBe(refused);
    expect(await served(await post('fine', { kind: 7_100, pubkey }))).toBe(true);
    const held = await post('casino', { kind: 7_100, pubkey });
    expect(await casesOf(held)).toMatchObject([{ status: 'held' }]);
  });
});

describe('a rate', () => {
  const limited = { kinds: [7_000], rate: { count: 2, seconds: 60 } };

  it('is exact over two instances, in both orders', async () => {
    await enable({ conditions: limited });
    for (const order of [
      [0, 1, 0, 1],
      [1, 1, 0, 0],
    ]) {
      const pubkey = hash(`author ${order}`);
      const events = order.map(() => draft('one', { kind: 7_000, pubkey }));
      const pairs = [0, 2].map((at) =>
        events.slice(at, at + 2).map((event, of) => [event, order[at + of]!] as const),
      );
      for (const pair of pairs) {
        const [[one, here], [two, there]] = pair as [(typeof pair)[0], (typeof pair)[0]];
        if (here === there) for (const [event, instance] of pair) await say(event, instance);
        else await inLockOrder(life.database, [() => say(one, here), () => say(two, there)]);
      }
      expect(await view(events)).toEqual([true, true, false, false]);
    }
  });

  it('is exact within one batch, by author; refused and duplicate events do not count', async () => {
    await enable({ conditions: limited });
    const [one, other] = [hash('one'), hash('other')];
    const events = [one, one, other, one, other, one].map((pubkey) => draft('x', { kind: 7_000, pubkey }));
    const repeated = [events[0]!, events[0]!, ...events];
    await Promise.all(repeated.map((event) => say(event)));
    expect(await view(events)).toEqual([true, true, true, false, true, false]);
    life.now += 61_000;
    expect(await served(await post('later', { kind: 7_000, pubkey: one }))).toBe(true);
  });

  it('reads no more events than it allows, however many there are', async () => {
    const ruleId = await enable({ conditions: limited });
    const author = Buffer.from(hash('flood'), 'hex');
    await query(
      `INSERT INTO moderation_rates (community, rule_id, at, seq, pubkey, event_id)
       SELECT $1, $2, n, n, $3, sha256(n::text::bytea) FROM generate_series(1, 3000) n`,
      ...[community, ruleId, author],
    );
    await query('ANALYZE moderation_rates');
    const rows = await query<{ 'QUERY PLAN': [{ Plan: Plan }] }>(
      `EXPLAIN (ANALYZE, FORMAT JSON) ${RATES_SQL}`,
      ...[[ruleId], [author], [5], [0]],
    );
    expect(rateScans(rows[0]!['QUERY PLAN'][0].Plan)).toEqual([5]);
  });
});
