/**
 * I17: an erasure is certified after every registered follower has acknowledged its deletes, or the
 * certificate names the one that has not.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { readCertificate } from '../../src/erasure/certificates/certificates.sql.js';
import { type Certificate, certificateProblems } from '../../src/erasure/certificates/rules.js';
import type { Erasure } from '../../src/erasure/erasures.sql.js';
import { refreshErasures } from '../../src/erasure/jobs-gauge.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { addOperator } from '../../src/members/operators.sql.js';
import { noteStream } from '../../src/outbox/followers.sql.js';
import { FOLLOWERS_MAX, STREAM_WAIT_MS } from '../../src/outbox/rules-follower.js';
import { eventually } from '../support/cli.js';
import { type Api, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { LineReader } from '../support/clients/stream.js';
import { askFor, jobContext, runErasures, stateOf } from '../support/domains/erasure.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { FaultProxy } from '../support/servers/fault-proxy.js';

const FOLLOWERS = '/v1/admin/followers';
const OUTBOX = '/v1/admin/outbox';
const UUID = '00000000-0000-4000-8000-000000000001';
const boss = newAuthor();
const artist = newAuthor();
let relay: TestNode;
/** Another instance on the same database, whose reads can be held back. */
let other: TestNode;
let proxy: FaultProxy;
let client: RawClient;
let api: Api;
let art: number;
let aheadMs = 0;
const now = () => Date.now() + aheadMs;
const opened: LineReader[] = [];

beforeAll(async () => {
  const env = { MINATO_ADMIN_PUBKEYS: boss.pubkey };
  // Without the node's own jobs: each step is the test's.
  relay = await startTestNode({ env, now, roles: ['relay', 'api'] });
  proxy = await FaultProxy.start(relay.test.connection);
  const on = { ...relay.test, connection: proxy.connection };
  other = await startTestNode({ env, now, roles: ['api'], on });
  api = createApi(relay.http);
  client = await RawClient.connect(relay.url);
  const { pool } = relay.database;
  art = await addCommunity(pool, 'art', undefined, Date.now());
  await writeSetting(pool, art, 'topic.mode', 'open', Date.now());
  await addOperator(pool, { community: art, pubkey: artist.pubkey }, { fixed: [] }, Date.now());
  await vi.waitUntil(() => relay.node.communities.get(art)?.operators.has(artist.pubkey));
});
beforeEach(async () => {
  await relay.database.pool.query('DELETE FROM outbox_followers');
});
afterEach(async () => {
  aheadMs = 0;
  await Promise.all(opened.splice(0).map((reader) => reader.close()));
});
afterAll(async () => {
  await client?.close();
  await other?.close();
  await proxy?.stop();
  await relay?.close();
});

interface Shown {
  name: string;
  acknowledged_seq: number;
  head_seq: number;
  time_limit_seconds: number;
  must_rebuild: boolean;
  registered_by: string | null;
}

const run = () => runErasures(jobContext(relay, { now }));
const erase = ({ pubkey }: Author) => askFor(relay.database, { community: 1, pubkey }, now());
const state = (erasure: Erasure) => stateOf(relay.database, erasure);
async function head(): Promise<number> {
  const { rows } = await relay.database.pool.query('SELECT last_seq FROM lane_state');
  return rows[0].last_seq;
}
async function poster(url?: string): Promise<Author> {
  const person = newAuthor();
  const through = url === undefined ? client : await RawClient.connect(url);
  for (const content of ['one', 'two'])
    expect(await through.publish(sign(person, { content }))).toEqual([true, '']);
  if (through !== client) await through.close();
  return person;
}
async function register(name: string, body: object = {}, as = boss, prefix = ''): Promise<Shown> {
  const answer = await api.ask<Shown>('PUT', `${prefix}${FOLLOWERS}/${name}`, { as, body });
  expect(answer.status).toBe(200);
  return answer.body;
}
async function acknowledge(name: string, seq: number, rebuilt = false): Promise<Shown> {
  const path = `${FOLLOWERS}/${name}/acknowledge`;
  const answer = await api.ask<Shown>('POST', path, { as: boss, body: { seq, rebuilt } });
  expect([answer.status, answer.body]).toEqual([200, expect.objectContaining({ acknowledged_seq: seq })]);
  return answer.body;
}
const isBehind = (path: string, body?: object) =>
  api.refused(410, 'OUTBOX_BEHIND', body === undefined ? 'GET' : 'POST', path, {
    as: boss,
    ...(body && { body }),
  });
/** A follower that has read everything up to now. */
async function atHead(name: string): Promise<number> {
  await register(name);
  const seq = await head();
  await acknowledge(name, seq);
  return seq;
}
async function open(path: string, base = relay.http, as = boss): Promise<LineReader> {
  const reader = await LineReader.open(base, path, { as });
  expect(reader.response.status).toBe(200);
  opened.push(reader);
  return reader;
}
async function certificateOf({ erasureId }: Erasure): Promise<Certificate & { version: 2 }> {
  const { event } = (await readCertificate(relay.database.pool, erasureId))!;
  const { problems, certificate } = certificateProblems(JSON.parse(event) as NostrEvent);
  expect(problems).toEqual([]);
  if (certificate?.version !== 2) throw new Error('a certificate of today has the second form');
  return certificate;
}
const isDeleteOf = (reason: string) => (line: { op: string; reason?: string | null }) =>
  line.op === 'delete' && line.reason === reason;

describe('a registration', () => {
  it('is by name: a repeated one changes at most the time limit; each change has an audit row', async () => {
    const first = await register('index', { time_limit_seconds: 60 });
    expect(first).toMatchObject({
      name: 'index',
      acknowledged_seq: 0,
      time_limit_seconds: 60,
      must_rebuild: false,
      registered_by: boss.pubkey,
    });
    await acknowledge('index', await head());
    const again = await register('index', { seq: 1 });
    expect(again).toMatchObject({ acknowledged_seq: await head(), time_limit_seconds: 60 });
    expect(await register('index', { time_limit_seconds: 90 })).toMatchObject({ time_limit_seconds: 90 });
    expect(await register('second')).toMatchObject({ time_limit_seconds: 86_400 });
    const { body } = await api.ask<{ items: Shown[] }>('GET', FOLLOWERS, { as: boss });
    expect(body.items.map(({ name }) => name)).toEqual(['index', 'second']);
    expect((await api.ask('DELETE', `${FOLLOWERS}/index`, { as: boss })).status).toBe(200);
    const log = await api.ask<{ items: { action: string; target: string }[] }>(
      'GET',
      '/v1/admin/audit-log?limit=4',
      { as: boss },
    );
    expect(log.body.items.map(({ action, target }) => `${action} ${target}`)).toEqual([
      'follower.remove index',
      'follower.register second',
      'follower.change index',
      'follower.register index',
    ]);
  });

  it('has limits: its name, its time limit, its offset, and how many there are', async () => {
    const refused = (name: string, body: object = {}) =>
      api.refused(400, 'INVALID_REQUEST', 'PUT', `${FOLLOWERS}/${name}`, { as: boss, body });
    for (const name of ['Upper', '-a', 'a%20b', 'a'.repeat(64)]) await refused(name);
    for (const time_limit_seconds of [9, 604_801, 1.5]) await refused('index', { time_limit_seconds });
    const asked = { as: boss, body: { seq: (await head()) + 1 } };
    await api.refused(409, 'OFFSET_OUT_OF_RANGE', 'PUT', `${FOLLOWERS}/index`, asked);
    for (let number = 0; number < FOLLOWERS_MAX; number += 1) await register(`f${number}`);
    await api.refused(409, 'FOLLOWER_LIMIT_REACHED', 'PUT', `${FOLLOWERS}/more`, { as: boss, body: {} });
    await register('f0');
  });

  it('is of its community only (I13)', async () => {
    await register('index', {}, artist, '/c/art');
    const path = `${FOLLOWERS}/index`;
    const body = { seq: 0 };
    await api.refused(404, 'NOT_FOUND', 'POST', `${path}/acknowledge`, { as: boss, body });
    await api.refused(404, 'NOT_FOUND', 'DELETE', path, { as: boss });
    await api.refused(404, 'NOT_FOUND', 'GET', `${OUTBOX}?follower=index`, { as: boss });
    await api.refused(404, 'NOT_FOUND', 'GET', `${OUTBOX}/view?follower=index`, { as: boss });
    await api.refused(403, 'OPERATORS_ONLY', 'GET', FOLLOWERS, { as: artist });
  });
});

describe('an acknowledged offset', () => {
  it('only grows, and not beyond the head; a rebuild may set it back', async () => {
    await poster();
    await register('index');
    const at = await head();
    await acknowledge('index', at - 1);
    await acknowledge('index', at - 1);
    await acknowledge('index', at);
    const path = `${FOLLOWERS}/index/acknowledge`;
    for (const seq of [at - 1, at + 1]) {
      const { body } = await api.refused(409, 'OFFSET_OUT_OF_RANGE', 'POST', path, {
        as: boss,
        body: { seq },
      });
      expect(body.details).toEqual({ acknowledged: at, head: at });
    }
    await api.refused(409, 'OFFSET_OUT_OF_RANGE', 'POST', path, {
      as: boss,
      body: { seq: at + 1, rebuilt: true },
    });
    await acknowledge('index', at - 1, true);
    const read = await open(`${OUTBOX}?follower=index`);
    expect((await read.all()).map(({ seq }) => seq)).toEqual([at, at]);
  });

  it('behind the floor of the outbox is answered with OUTBOX_BEHIND, until it was rebuilt', async () => {
    await poster();
    const at = await head();
    await register('index', { seq: at - 1 });
    const { pool } = relay.database;
    await pool.query('UPDATE lane_state SET outbox_floor = last_seq + 1');
    try {
      await isBehind(`${FOLLOWERS}/index/acknowledge`, { seq: at });
      await isBehind(`${FOLLOWERS}/index/acknowledge`, { seq: at - 1, rebuilt: true });
      await isBehind(`${OUTBOX}?follower=index`);
      expect(await acknowledge('index', at, true)).toMatchObject({ must_rebuild: false });
    } finally {
      await pool.query('UPDATE lane_state SET outbox_floor = 1');
    }
  });
});

describe('an erasure', () => {
  it('scrubs the outbox only after every follower has acknowledged, and names those awaited', async () => {
    const [fast, slow] = [await atHead('fast'), await atHead('slow')];
    expect(slow).toBe(fast);
    const person = await poster();
    const erasure = await erase(person);
    await run();
    const needed = await head();
    await acknowledge('fast', needed);
    await run();
    const waiting = await state(erasure);
    expect(waiting).toMatchObject({ stage: 'deleting', failures: {}, outboxSeq: needed });
    // Everything else is done: only the outbox waits.
    expect(waiting.done).toEqual(expect.arrayContaining(['postgres:events', 'postgres:event_dedupe']));
    const path = `/v1/admin/erasures/${erasure.erasureId}`;
    const { body } = await api.ask<{ waits_for: unknown[] }>('GET', path, { as: boss });
    expect(body.waits_for).toEqual([
      {
        follower: 'slow',
        acknowledged_seq: slow,
        needed_seq: needed,
        time_limit_seconds: 86_400,
        until: waiting.announcedAt! + 86_400_000,
      },
    ]);
    await refreshErasures({ pool: relay.database.pool, metrics: relay.node.metrics });
    const metrics = await relay.node.metrics.registry.metrics();
    expect(metrics).toContain('minato_followers{state="awaited"} 1');
    const lines = await (await open(`${OUTBOX}?follower=slow`)).all();
    expect(lines.filter(isDeleteOf('erasure')).map(({ author }) => author)).toEqual([
      person.pubkey,
      person.pubkey,
    ]);
    await acknowledge('slow', lines.at(-1)!.seq);
    await run();
    expect(await state(erasure)).toMatchObject({ stage: 'completed', waits: [], unacknowledged: [] });
    expect((await certificateOf(erasure)).unacknowledged).toEqual([]);
    const after = await (await open(`${OUTBOX}?after=${slow}`)).all();
    // The last offset of the two posts, and the last of their deletes.
    expect(after.map(({ op, seq }) => [op, seq])).toEqual([
      ['scrubbed', slow + 2],
      ['scrubbed', needed],
      ['position', needed],
    ]);
  });

  it('waits for a request to vanish as well, and not for a follower that was removed', async () => {
    const from = await atHead('index');
    const person = await poster();
    const request = sign(person, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    expect(await client.publish(request)).toEqual([true, '']);
    await run();
    const lines = await (await open(`${OUTBOX}?after=${from}`)).all();
    expect(lines.filter(isDeleteOf('vanish'))).toHaveLength(2);
    await api.ask('DELETE', `${FOLLOWERS}/index`, { as: boss });
    await run();
    const { rows } = await relay.database.pool.query<{ stage: string }>(
      `SELECT stage FROM erasures WHERE cause = 'vanish'`,
    );
    expect(rows).toEqual([{ stage: 'completed' }]);
  });

  it('continues after the time limit: the certificate names the follower, which must rebuild', async () => {
    const at = await atHead('index');
    await register('index', { time_limit_seconds: 60 });
    const stream = await open(`${OUTBOX}?follower=index&follow=true`);
    await stream.waitFor('it follows', ({ op }) => op === 'position');
    const person = await poster();
    const erasure = await erase(person);
    await run();
    expect((await state(erasure)).waits).toMatchObject([{ name: 'index', acknowledgedSeq: at }]);
    const needed = await head();
    aheadMs += 61_000;
    await run();
    aheadMs = 0;
    const { unacknowledged } = await certificateOf(erasure);
    expect(unacknowledged).toEqual([{ name: 'index', acknowledged: at, needed, limit_seconds: 60 }]);
    // It gets no more rows, neither on the stream that is open nor on a new one, and may not say that it has
    // them.
    await stream.waitFor('behind', ({ op }) => op === 'behind');
    expect(stream.lines.some(({ op }) => op === 'scrubbed')).toBe(false);
    await isBehind(`${OUTBOX}?follower=index&after=${needed}`);
    await isBehind(`${FOLLOWERS}/index/acknowledge`, { seq: needed });
    await isBehind(`${FOLLOWERS}/index/acknowledge`, { seq: at, rebuilt: true });
    // The next one does not wait for it; its certificate names it as well.
    const second = await erase(await poster());
    await run();
    expect((await certificateOf(second)).unacknowledged).toMatchObject([{ name: 'index' }]);
    const view = await (await open(`${OUTBOX}/view?follower=index`)).all();
    const pinned = Number(view.at(-1)!.pinned);
    expect(JSON.stringify(view)).not.toContain(person.pubkey);
    // While it rebuilds it is waited for again.
    const third = await erase(await poster());
    await run();
    expect(await state(third)).toMatchObject({ stage: 'deleting', waits: [{ name: 'index' }] });
    expect(await acknowledge('index', pinned, true)).toMatchObject({ must_rebuild: false });
    const rest = await (await open(`${OUTBOX}?follower=index`)).all();
    expect(rest.filter(isDeleteOf('erasure'))).toHaveLength(2);
    await acknowledge('index', rest.at(-1)!.seq);
    await run();
    expect((await certificateOf(third)).unacknowledged).toEqual([]);
  });

  it('that waits does not delay those of other communities, however many wait', async () => {
    const { pool } = relay.database;
    const sea = await addCommunity(pool, 'sea', undefined, Date.now());
    await atHead('index');
    const waiting = await erase(await poster());
    await run();
    // As many as one run looks at, and more.
    await pool.query(
      `INSERT INTO erasures SELECT (jsonb_populate_record(e, jsonb_build_object(
         'erasure_id', gen_random_uuid(), 'pubkey', '\\x' || encode(sha256(number::text::bytea), 'hex'),
         'updated_at', 1))).*
       FROM erasures e, generate_series(1, 120) AS number WHERE e.erasure_id = $1`,
      [waiting.erasureId],
    );
    const { pubkey } = newAuthor();
    const other = await askFor(relay.database, { community: sea, slug: 'sea', pubkey }, now());
    await run();
    await run();
    expect(await state(other)).toMatchObject({ stage: 'completed' });
    expect(await state(waiting)).toMatchObject({ stage: 'deleting' });
    await pool.query('DELETE FROM erasures WHERE waits <> $1', ['[]']);
  });

  it('after a restore waits for no follower: those that are behind must rebuild', async () => {
    const at = await atHead('index');
    const erasure = await erase(await poster());
    await relay.database.pool.query(`UPDATE erasures SET cause = 'replay' WHERE erasure_id = $1`, [
      erasure.erasureId,
    ]);
    await run();
    const { unacknowledged } = await certificateOf(erasure);
    expect(unacknowledged).toMatchObject([{ name: 'index', acknowledged: at }]);
    await isBehind(`${OUTBOX}?follower=index`);
  });

  it('a view that was pinned before rows were scrubbed is no rebuild', async () => {
    await atHead('index');
    await register('index', { time_limit_seconds: 10 });
    const pinned = Number((await (await open(`${OUTBOX}/view?follower=index`)).all()).at(-1)!.pinned);
    const erasure = await erase(await poster());
    await run();
    aheadMs += 11_000;
    await run();
    aheadMs = 0;
    expect(await state(erasure)).toMatchObject({ stage: 'completed' });
    await isBehind(`${OUTBOX}/view?follower=index&after=1&up_to=${pinned}`);
    await isBehind(`${FOLLOWERS}/index/acknowledge`, { seq: pinned, rebuilt: true });
  });

  it('of a whole community lets its followers read and acknowledge with their old key', async () => {
    await register('index', {}, artist, '/c/art');
    await poster(`${relay.url}/c/art`);
    const stream = await open(`/c/art${OUTBOX}?follower=index&follow=true`, relay.http, artist);
    await stream.waitFor('it follows', ({ op }) => op === 'position');
    const erasure = await askFor(relay.database, { community: art, slug: 'art' }, now());
    await run();
    expect(await state(erasure)).toMatchObject({ stage: 'deleting', waits: [{ name: 'index' }] });
    await eventually('both deletes', () =>
      stream.lines.filter(isDeleteOf('erasure')).length === 2 ? true : undefined,
    );
    // Nothing else of it is reachable any more.
    await vi.waitUntil(() => relay.node.communities.getClosing(art) !== undefined);
    await api.refused(404, 'COMMUNITY_NOT_FOUND', 'GET', '/c/art/v1/admin/operators', { as: artist });
    const path = `/c/art${FOLLOWERS}`;
    await api.refused(404, 'COMMUNITY_NOT_FOUND', 'PUT', `${path}/another`, { as: artist, body: {} });
    await register('index', {}, artist, '/c/art');
    const seq = await head();
    const answer = await api.ask('POST', `/c/art${FOLLOWERS}/index/acknowledge`, {
      as: artist,
      body: { seq },
    });
    expect(answer.status).toBe(200);
    await run();
    expect((await certificateOf(erasure)).unacknowledged).toEqual([]);
    const closed = await stream.waitFor('the end', ({ op }) => op === 'closed');
    // Its operators are erased a moment before it is.
    expect(['COMMUNITY_NOT_FOUND', 'OPERATORS_ONLY']).toContain(closed.code);
  });
});

describe('a stream that is not registered', () => {
  it('gets every delete before the rows are scrubbed, also from another instance', async () => {
    const streams = await Promise.all(
      [relay, other].map(async ({ http }) => open(`${OUTBOX}?after=${await head()}&follow=true`, http)),
    );
    for (const stream of streams) await stream.waitFor('it follows', ({ op }) => op === 'position');
    // The other instance does not come to read before the erasures do.
    await proxy.when('changes-of-scrubbed', { kind: 'freeze' });
    const people: Author[] = [];
    for (let number = 0; number < 4; number += 1) people.push(await poster());
    const erasures = await Promise.all(people.slice(0, 3).map(erase));
    const vanish = sign(people[3]!, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    expect(await client.publish(vanish)).toEqual([true, '']);
    const at = now();
    await runErasures(jobContext(relay, { now: () => at }));
    for (const erasure of erasures) expect(await state(erasure)).toMatchObject({ stage: 'deleting' });
    proxy.release();
    for (const erasure of erasures)
      await eventually('it ends', async () => {
        await runErasures(jobContext(relay, { now: () => at }));
        return (await state(erasure)).stage === 'completed' ? true : undefined;
      });
    for (const stream of streams) {
      await eventually('all deletes', () =>
        stream.lines.filter(({ op }) => op === 'delete').length >= 8 ? true : undefined,
      );
      const deletes = stream.lines.filter(({ op }) => op === 'delete');
      expect(new Set(deletes.map(({ author }) => author))).toEqual(
        new Set(people.map(({ pubkey }) => pubkey)),
      );
      expect(stream.lines.some(({ op }) => op === 'scrubbed')).toBe(false);
    }
  });

  it('and that does not read them delays an erasure for a few seconds only', async () => {
    const { pool } = relay.database;
    const stuck = { streamId: UUID, community: 1 };
    await noteStream(pool, stuck, 0, now());
    const erasure = await erase(await poster());
    await run();
    expect(await state(erasure)).toMatchObject({ stage: 'deleting', waits: [], failures: {} });
    aheadMs += STREAM_WAIT_MS;
    await noteStream(pool, stuck, 0, now());
    await run();
    expect(await state(erasure)).toMatchObject({ stage: 'completed' });
    await pool.query('DELETE FROM outbox_streams');
  });

  it('is known only while it is open', async () => {
    const { pool } = relay.database;
    const known = async () => (await pool.query('SELECT 1 FROM outbox_streams')).rowCount;
    const stream = await open(`${OUTBOX}?after=${await head()}&follow=true`);
    await stream.waitFor('it follows', ({ op }) => op === 'position');
    expect(await known()).toBe(1);
    await stream.close();
    await eventually('it is forgotten', async () => ((await known()) === 0 ? true : undefined));
  });
});
