/**
 * Consumers over real HTTP: their state, and changes that only operators of the node may make.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { openDatabase } from '../../src/postgres/database.js';
import { eventually } from '../support/cli.js';
import { type Api, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { type Draft, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { type Ledger, makeLedger, readLedger, readWholeView } from '../support/stores/ledger.js';

const CONSUMERS = '/v1/admin/consumers';
const LEDGER = `${CONSUMERS}/ledger`;
const root = newAuthor();
const artist = newAuthor();
const author = newAuthor();

interface State {
  readonly name: string;
  readonly generation: number;
  readonly last_seq: number;
  readonly head_seq: number;
  readonly lag_rows: number;
  readonly lag_seconds: number;
  readonly dead_letters: number;
  readonly applied: number;
  readonly held: boolean;
  readonly behind: boolean;
  readonly paused_at: number | null;
  readonly error: string | null;
  readonly failing_since: number | null;
  readonly rebuild: Record<string, unknown> | null;
}
interface Listed {
  readonly items: Record<string, unknown>[];
  readonly next_cursor: string | null;
}

let test: TestDatabase;
let relay: TestNode;
let api: Api;
let client: RawClient;
let artClient: RawClient;
let ledger: Ledger;

beforeAll(async () => {
  test = await createTestDatabase();
  const database = openDatabase(test.connection);
  ledger = await makeLedger(database.pool);
  await database.close();
  relay = await startTestNode({
    env: { MINATO_ADMIN_PUBKEYS: root.pubkey },
    on: test,
    consumers: [ledger],
  });
  api = createApi(relay.http);
  const art = await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await eventually('the community is there', () => relay.node.communities.get(art));
  await api.ask('PUT', `/c/art/v1/admin/operators/${artist.pubkey}`, { as: root });
  await eventually('its operator is known', () =>
    relay.node.communities.get(art)!.operators.has(artist.pubkey) ? true : undefined,
  );
  client = await RawClient.connect(relay.url);
  artClient = await RawClient.connect(`${relay.url}/c/art`);
});
afterAll(async () => {
  await client.close();
  await artClient.close();
  await relay.close();
  await test.drop();
});
beforeEach(() => {
  ledger.before = () => undefined;
});

async function post(draft: Draft = {}, through = client) {
  const event = sign(author, draft);
  expect(await through.publish(event)).toEqual([true, expect.any(String)]);
  return event;
}
const drained = () => relay.node.consumers!.drained();
async function state(as = root, prefix = ''): Promise<State> {
  const { status, body } = await api.ask<{ items: State[] }>('GET', prefix + CONSUMERS, { as });
  expect(status).toBe(200);
  return body.items.find(({ name }) => name === 'ledger')!;
}
async function done<T = State>(path: string, body: unknown = {}, status = 200): Promise<T> {
  const answer = await api.ask<T>('POST', path, { as: root, body });
  expect(answer).toMatchObject({ status });
  return answer.body;
}
async function audit(limit: number) {
  const { body } = await api.ask<Listed>('GET', `/v1/admin/audit-log?limit=${limit}`, { as: root });
  return body.items.map(({ actor, action, target, details }) => ({
    actor,
    action: String(action),
    target,
    details,
  }));
}
const noted = (action: string, details: unknown = {}) => ({
  actor: root.pubkey,
  action,
  target: 'ledger',
  details,
});

/** Fails at events with this content, until the test stops that. */
function failAt(content: string): void {
  ledger.before = (batch) => {
    if (batch.some(({ payload }) => payload?.includes(content))) throw new Error(`cannot take "${content}"`);
  };
}
const letters = async (as = root, prefix = '', query = '') =>
  (await api.ask<Listed>('GET', `${prefix}${LEDGER}/dead-letters${query}`, { as })).body;

describe('a consumer', () => {
  it('is shown with its offset and lag, to operators of every community', async () => {
    await post();
    await drained();
    const shown = await state();
    expect(shown).toEqual({
      name: 'ledger',
      generation: 1,
      last_seq: shown.head_seq,
      head_seq: expect.any(Number),
      lag_rows: 0,
      lag_seconds: 0,
      behind: false,
      rows_per_second: expect.any(Number),
      applied: expect.any(Number),
      dead_letters: 0,
      held: true,
      paused_at: null,
      updated_at: expect.any(Number),
      failing_since: null,
      error: null,
      rebuild: null,
    });
    expect(await state(artist, '/c/art')).toMatchObject({ name: 'ledger', held: true });
  });

  it('stops while it is paused, and continues at its offset', async () => {
    await drained();
    const paused = await done(`${LEDGER}/pause`);
    expect(paused.paused_at).toEqual(expect.any(Number));
    expect((await done(`${LEDGER}/pause`)).paused_at).toBe(paused.paused_at);
    await post({ content: 'meanwhile' });
    const waiting = await state();
    expect(waiting.lag_rows).toBeGreaterThan(0);
    expect(waiting.last_seq).toBe(paused.last_seq);
    expect((await done(`${LEDGER}/resume`)).paused_at).toBeNull();
    await done(`${LEDGER}/resume`);
    await drained();
    expect(await readLedger(relay.database.pool)).toEqual(await readWholeView(relay.database.pool));
    // Each once: a step without effect has no audit row.
    const steps = (await audit(10)).filter(({ action }) => /^consumer\./.test(action));
    expect(steps).toEqual([noted('consumer.resume'), noted('consumer.pause')]);
  });

  it('a replay applies rows again from an offset on, at most from the oldest row of the outbox', async () => {
    const event = await post({ content: 'again' });
    await drained();
    const { last_seq } = await state();
    ledger.given.length = 0;
    await done(`${LEDGER}/replay`, { from: last_seq });
    await eventually('it was given again', () => (ledger.given.includes(last_seq) ? true : undefined));
    await drained();
    expect(ledger.given).toEqual([last_seq]);
    expect(JSON.stringify(await readLedger(relay.database.pool))).toContain(event.id);
    expect(await audit(1)).toEqual([noted('consumer.replay', { from: last_seq, was_at: last_seq })]);
    const { body } = await api.refused(409, 'REPLAY_OUT_OF_REACH', 'POST', `${LEDGER}/replay`, {
      as: root,
      body: { from: last_seq + 2 },
    });
    expect(body.details).toEqual({ from_min: 1, from_max: last_seq + 1 });
    for (const from of [0, -1, 1.5, '1'])
      await api.refused(400, 'INVALID_REQUEST', 'POST', `${LEDGER}/replay`, { as: root, body: { from } });
  });

  it('is rebuilt, and a second request meanwhile changes nothing', async () => {
    await drained();
    const { generation } = await state();
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    ledger.before = async (_, of) => {
      if (of > generation) await held;
    };
    const asked = await done(`${LEDGER}/rebuild`, { reason: 'a test' });
    expect(asked.rebuild).toMatchObject({
      generation: generation + 1,
      reason: 'a test',
      phase: 'waiting',
      percent: 0,
    });
    const scanning = await eventually('it is scanned', async () => {
      const { rebuild } = await state();
      return rebuild?.phase === 'scanning' ? rebuild : undefined;
    });
    expect(scanning).toMatchObject({
      percent: 0,
      scanned: 0,
      pinned_seq: expect.any(Number),
      last_seq: null,
    });
    expect(scanning.expected).toBeGreaterThan(0);
    const again = await done(`${LEDGER}/rebuild`, { reason: 'another' });
    expect(again.rebuild).toMatchObject({ reason: 'a test' });
    release();
    await eventually('it is whole', async () =>
      (await state()).generation === generation + 1 ? true : undefined,
    );
    expect(await readLedger(relay.database.pool)).toEqual(await readWholeView(relay.database.pool));
    expect(await audit(1)).toEqual([noted('consumer.rebuild', { reason: 'a test' })]);
  });
});

describe('dead letters', () => {
  it('are listed for one community only, in pages, and retried one by one or all', async () => {
    failAt('poison');
    const mine = [];
    for (let at = 0; at < 3; at += 1) mine.push(await post({ content: `poison ${at}` }));
    const theirs = await post({ kind: 0, content: '{"about":"poison"}' }, artClient);
    await eventually(
      'all are parked',
      async () => ((await state()).dead_letters === 4 ? true : undefined),
      30_000,
    );
    const first = await letters(root, '', '?limit=2');
    expect(first.items.map((item) => item.event_id)).toEqual(mine.slice(0, 2).map(({ id }) => id));
    expect(first.items[0]).toEqual({
      seq: expect.any(Number),
      op: 'upsert',
      reason: null,
      event_id: mine[0]!.id,
      author: author.pubkey,
      kind: 1,
      topics: [],
      effective_key: null,
      created_at: mine[0]!.created_at,
      ingested_at: expect.any(Number),
      attempts: expect.any(Number),
      error: 'cannot take "poison"',
      failed_at: expect.any(Number),
      retry_asked: false,
    });
    const rest = await letters(root, '', `?limit=2&cursor=${first.next_cursor}`);
    expect(rest).toMatchObject({ items: [{ event_id: mine[2]!.id }], next_cursor: null });
    expect((await letters(artist, '/c/art')).items.map((item) => item.event_id)).toEqual([theirs.id]);
    await api.refused(400, 'INVALID_REQUEST', 'GET', `${LEDGER}/dead-letters?cursor=x`, { as: root });

    ledger.before = () => undefined;
    const { seq } = first.items[0]!;
    expect(await done(`${LEDGER}/dead-letters/retry`, { seq }, 202)).toEqual({ asked: 1 });
    await eventually('it is taken', async () => ((await state()).dead_letters === 3 ? true : undefined));
    expect(await audit(1)).toEqual([noted('consumer.retry', { seq, letters: 1 })]);
    await api.refused(404, 'NOT_FOUND', 'POST', `${LEDGER}/dead-letters/retry`, { as: root, body: { seq } });
    expect(await done(`${LEDGER}/dead-letters/retry`, {}, 202)).toEqual({ asked: 3 });
    await eventually('all are taken', async () => ((await state()).dead_letters === 0 ? true : undefined));
    expect(await done(`${LEDGER}/dead-letters/retry`, {}, 202)).toEqual({ asked: 0 });
    expect(await audit(1)).toEqual([noted('consumer.retry', { seq: null, letters: 3 })]);
    expect(await readLedger(relay.database.pool)).toEqual(await readWholeView(relay.database.pool));
  });

  it('the error of a consumer may quote any event: it is shown only to operators of the node', async () => {
    await drained();
    const { pool } = relay.database;
    await done(`${LEDGER}/pause`);
    const failing = (error: string | null) =>
      pool.query('UPDATE consumer_offsets SET error = $1, failing_since = $2', [error, error && 1]);
    await failing('of an event');
    expect(await state()).toMatchObject({ error: 'of an event', failing_since: 1 });
    expect(await state(artist, '/c/art')).toMatchObject({ error: null, failing_since: 1 });
    await failing(null);
    await done(`${LEDGER}/resume`);
  });
});

describe('changes', () => {
  const CHANGES: [string, unknown][] = [
    ['pause', {}],
    ['resume', {}],
    ['rebuild', {}],
    ['replay', { from: 1 }],
    ['dead-letters/retry', {}],
  ];

  it.each(CHANGES)(
    'to %s are allowed only to operators of the node at the default community',
    async (step, body) => {
      const before = await state();
      for (const as of [artist, root]) {
        const refused = await api.refused(403, 'OPERATORS_ONLY', 'POST', `/c/art${LEDGER}/${step}`, {
          as,
          body,
        });
        expect(refused.body.details).toEqual({ explanation: expect.stringContaining('whole node') });
      }
      await api.refused(403, 'OPERATORS_ONLY', 'POST', `${LEDGER}/${step}`, { as: artist, body });
      const { applied: _, ...after } = await state();
      expect(before).toMatchObject({
        paused_at: after.paused_at,
        rebuild: after.rebuild,
        last_seq: after.last_seq,
      });
    },
  );

  it.each(CHANGES)('to %s of an unknown consumer are not found', async (step, body) => {
    await api.refused(404, 'NOT_FOUND', 'POST', `${CONSUMERS}/nobody/${step}`, { as: root, body });
    await api.refused(404, 'NOT_FOUND', 'GET', `${CONSUMERS}/nobody/dead-letters`, { as: root });
  });
});
