/**
 * The outbox over real HTTP: every change of one community, in order and at least once, for its operators.
 */
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { changeNodeSetting, clearNodeSetting } from '../../src/communities/node-settings.sql.js';
import { eventually } from '../support/cli.js';
import { type Api, authorization, createApi, credential } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { type Line, LineReader } from '../support/clients/stream.js';
import { type Author, type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { serveApi } from '../support/servers/api-port.js';

const OUTBOX = '/v1/admin/outbox';
const VIEW = `${OUTBOX}/view`;
const SSE = { accept: 'text/event-stream' };
const root = newAuthor();

let relay: TestNode;
let api: Api;
let client: RawClient;
let artClient: RawClient;
let home: number;
/** How far the clock of the node is ahead of ours. */
let aheadMs = 0;

beforeAll(async () => {
  relay = await startTestNode({
    env: { MINATO_ADMIN_PUBKEYS: root.pubkey },
    // No worker: no job announces what time hides.
    roles: ['relay', 'api'],
    now: () => Date.now() + aheadMs,
  });
  api = createApi(relay.http);
  home = relay.node.communities.find(undefined, undefined)!.id;
  await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await eventually('the community is there', () => relay.node.communities.find(undefined, 'art'));
  const open = { value: 'open', version: 0 };
  await api.ask('PUT', '/c/art/v1/admin/settings/topic.mode', { as: root, body: open });
  await eventually('topics are open there', () =>
    relay.node.communities.find(undefined, 'art')!.settings['topic.mode'] === 'open' ? true : undefined,
  );
  client = await RawClient.connect(relay.url);
  artClient = await RawClient.connect(`${relay.url}/c/art`);
});
afterAll(async () => {
  await client.close();
  await artClient.close();
  await relay.close();
});

const opened: LineReader[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((reader) => reader.close()));
});

async function open(
  path: string,
  asking: Parameters<typeof LineReader.open>[2] = { as: root },
  base = relay.http,
) {
  const reader = await LineReader.open(base, path, { as: root, ...asking });
  expect({ status: reader.response.status, text: reader.text }).toMatchObject({ status: 200 });
  opened.push(reader);
  return reader;
}
const read = async (path: string, asking?: Parameters<typeof open>[1]) => (await open(path, asking)).all();

async function post(draft: Draft = {}, by: Author = newAuthor(), through = client) {
  const event = sign(by, draft);
  expect(await through.publish(event)).toEqual([true, expect.any(String)]);
  return event;
}
async function head(): Promise<number> {
  const { rows } = await relay.database.pool.query('SELECT last_seq FROM lane_state');
  return rows[0].last_seq;
}
const isRow = ({ op }: Line) => op === 'upsert' || op === 'delete';
const short = ({ op, event_id, reason }: Line) => [op, event_id, reason];

describe('an answer that ends', () => {
  it('has every change after an offset, in order, with the events still served, and a position', async () => {
    const after = await head();
    const author = newAuthor();
    const kept = await post({ content: 'kept', tags: [['t', 'kukuri:global']] }, author);
    const lost = await post({ content: 'lost' }, author);
    const request = await post({ kind: 5, tags: [['e', lost.id]] }, author);
    const lines = await read(`${OUTBOX}?after=${after}`);
    const [first] = lines;
    expect(first).toEqual({
      seq: expect.any(Number),
      op: 'upsert',
      reason: null,
      event_id: kept.id,
      author: author.pubkey,
      kind: 1,
      topics: ['kukuri:global'],
      effective_key: null,
      created_at: kept.created_at,
      ingested_at: expect.any(Number),
      event: kept,
    });
    const rows = lines.filter(isRow);
    expect(rows.map(short)).toEqual(
      expect.arrayContaining([
        ['upsert', lost.id, null],
        ['delete', lost.id, 'nip09'],
        ['upsert', request.id, null],
      ]),
    );
    expect(rows.filter(({ event_id }) => event_id === lost.id).map(({ event }) => event)).toEqual([
      null,
      null,
    ]);
    const numbers = rows.map(({ seq }) => seq);
    expect(numbers).toEqual([...numbers].sort((one, two) => one - two));
    expect(lines.at(-1)).toEqual({ op: 'position', seq: await head(), head: await head() });
    const bare = await read(`${OUTBOX}?after=${after}&events=false`);
    expect(bare.filter(isRow).map(({ event, ...row }) => ({ row, has: event !== undefined }))).toEqual(
      rows.map(({ event: _, ...row }) => ({ row, has: false })),
    );
  });

  it('has deletes for a replacement and a request to vanish', async () => {
    const after = await head();
    const author = newAuthor();
    const at = nowSeconds() - 10;
    const older = await post({ kind: 0, created_at: at, content: '{}' }, author);
    const newer = await post({ kind: 0, created_at: at + 1, content: '{"name":"x"}' }, author);
    await post({ kind: 62, tags: [['relay', relay.url]] }, author);
    const lines = await read(`${OUTBOX}?after=${after}`);
    expect(lines.filter(isRow).map(short)).toEqual([
      ['upsert', older.id, null],
      ['delete', older.id, 'superseded'],
      ['upsert', newer.id, null],
    ]);
    expect(lines[0]!.effective_key).toBe(`0:${author.pubkey}:`);
    // Hidden at once, before a job erases and announces it.
    expect(lines.filter(isRow).map(({ event }) => event)).toEqual([null, null, null]);
  });

  it('is bounded, and its position is where the next one begins', async () => {
    const after = await head();
    const posted: string[] = [];
    for (let at = 0; at < 5; at += 1) posted.push((await post()).id);
    const seen: (string | undefined)[] = [];
    let position: Line = { op: 'position', seq: after, head: 0 };
    for (let parts = 0; parts === 0 || position.seq < Number(position.head); parts += 1) {
      const lines = await read(`${OUTBOX}?after=${position.seq}&limit=2`);
      expect(lines.length).toBeLessThanOrEqual(3);
      seen.push(...lines.filter(isRow).map(({ event_id }) => event_id));
      position = lines.at(-1)!;
    }
    expect(seen).toEqual(posted);
  });

  it('has rows of its community only; the position also covers those of others (I13)', async () => {
    const after = await head();
    const here = await post();
    const there = await post({}, newAuthor(), artClient);
    const lines = await read(`${OUTBOX}?after=${after}`);
    expect(lines.filter(isRow).map(({ event_id }) => event_id)).toEqual([here.id]);
    expect(lines.at(-1)).toMatchObject({ op: 'position', seq: await head() });
    const others = await read(`/c/art${OUTBOX}?after=${after}`);
    expect(others.filter(isRow).map(({ event_id }) => event_id)).toEqual([there.id]);
    const view = await read(`/c/art${VIEW}`);
    expect(view.filter(isRow).map(({ event_id }) => event_id)).toEqual([there.id]);
  });

  it('refuses an offset that is not a number, and a limit with follow', async () => {
    for (const query of [
      'after=-1',
      'after=x',
      'limit=0',
      'limit=10001',
      'follow=maybe',
      'follow=true&limit=5',
    ])
      await api.refused(400, 'INVALID_REQUEST', 'GET', `${OUTBOX}?${query}`, { as: root });
    for (const query of ['after=x', 'up_to=-1', 'limit=0', 'limit=10001'])
      await api.refused(400, 'INVALID_REQUEST', 'GET', `${VIEW}?${query}`, { as: root });
    await api.refused(400, 'INVALID_REQUEST', 'GET', OUTBOX, {
      as: root,
      headers: { ...SSE, 'last-event-id': 'x' },
    });
  });
});

describe('an answer that follows', () => {
  it('sends the existing changes, a position, and then new changes', async () => {
    const after = await head();
    const before = await post({ content: 'before' });
    const stream = await open(`${OUTBOX}?after=${after}&follow=true`);
    expect(stream.response.headers.get('content-type')).toBe('application/x-ndjson; charset=utf-8');
    const caughtUp = await stream.waitFor('a position', ({ op }) => op === 'position');
    expect(caughtUp).toEqual({ op: 'position', seq: await head(), head: await head() });
    const later = await post({ content: 'later' });
    const row = await stream.waitFor('what comes', ({ event_id }) => event_id === later.id);
    await stream.waitFor('its position', ({ op, seq }) => op === 'position' && seq >= row.seq);
    expect(stream.lines.filter(isRow).map(({ event_id }) => event_id)).toEqual([before.id, later.id]);
  });

  it('loses and doubles nothing while much is written', async () => {
    const after = await head();
    const stream = await open(`${OUTBOX}?after=${after}&follow=true&events=false`);
    const posted = await Promise.all(
      Array.from({ length: 240 }, (_, at) =>
        post({ content: `${at}` }, root, at % 3 === 0 ? artClient : client),
      ),
    );
    const mine = new Set(posted.filter((_, at) => at % 3 !== 0).map(({ id }) => id));
    await eventually('all rows', () => (stream.lines.filter(isRow).length >= mine.size ? true : undefined));
    const rows = stream.lines.filter(isRow);
    expect(rows.length).toBe(mine.size);
    expect(new Set(rows.map(({ event_id }) => event_id))).toEqual(mine);
    const numbers = rows.map(({ seq }) => seq);
    expect(numbers).toEqual([...numbers].sort((one, two) => one - two));
  });

  it('can be server-sent events, and resumes after Last-Event-ID', async () => {
    const after = await head();
    const one = await post({ content: 'two\nlines \u2028' });
    const two = await post();
    const stream = await open(`${OUTBOX}?after=${after}`, { headers: SSE });
    expect(stream.response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    const first = await stream.waitFor('the first', ({ event_id }) => event_id === one.id);
    expect(first.event).toEqual(one);
    await stream.waitFor('a position', ({ op }) => op === 'position');
    expect(stream.text).toMatch(
      new RegExp(
        `^id: ${first.seq}\\nevent: upsert\\ndata: \\{"seq":${first.seq},[^\\n]*\\}\\n\\n` +
          'id: \\d+\\nevent: upsert\\n',
      ),
    );
    expect(stream.text).toMatch(
      /id: (\d+)\nevent: position\ndata: \{"op":"position","seq":\1,"head":\d+\}\n\n$/,
    );
    // The same URL as before, as such clients do.
    const again = await open(`${OUTBOX}?after=${after}`, {
      headers: { ...SSE, 'last-event-id': `${first.seq}` },
    });
    await again.waitFor('the second', ({ event_id }) => event_id === two.id);
    expect(again.lines.filter(isRow).map(({ event_id }) => event_id)).toEqual([two.id]);
    const ends = await read(`${OUTBOX}?after=${after}&follow=false`, { headers: SSE });
    expect(ends.at(-1)).toMatchObject({ op: 'position' });
  });
});

describe('what time has hidden', () => {
  it('is neither in the rows nor in the view, although no job has announced it yet (I7)', async () => {
    const after = await head();
    const brief = await post({ tags: [['expiration', `${nowSeconds() + 30}`]] });
    expect((await read(`${OUTBOX}?after=${after}`))[0]).toMatchObject({ event_id: brief.id, event: brief });
    expect((await read(`${VIEW}?after=${after}`))[0]).toMatchObject({ event_id: brief.id, event: brief });
    aheadMs = 31_000;
    try {
      expect((await read(`${OUTBOX}?after=${after}`))[0]).toMatchObject({ event_id: brief.id, event: null });
      expect((await read(`${VIEW}?after=${after}`)).filter(isRow)).toEqual([]);
    } finally {
      aheadMs = 0;
    }
  });

  it('is what the retention of its topics says, by the day', async () => {
    const after = await head();
    const old = await post();
    const profile = await post({ kind: 0, content: '{}' });
    const days = relay.node.communities.get(home)!.settings['retention.regularDays'];
    const age = (ms: number) =>
      relay.database.pool.query('UPDATE events_outbox SET ingested_at = ingested_at - $2 WHERE seq > $1', [
        after,
        ms,
      ]);
    await age((days + 1) * 86_400_000);
    const rows = (await read(`${OUTBOX}?after=${after}`)).filter(isRow);
    await age(-(days + 1) * 86_400_000);
    expect(rows.map(({ event_id, event }) => [event_id, event?.id])).toEqual([
      [old.id, undefined],
      [profile.id, profile.id],
    ]);
  });
});

describe('an offset outside of the outbox', () => {
  async function withFloor(floor: number, work: () => Promise<void>): Promise<void> {
    await relay.database.pool.query('UPDATE lane_state SET outbox_floor = $1', [floor]);
    await work().finally(() => relay.database.pool.query('UPDATE lane_state SET outbox_floor = 1'));
  }

  it('is refused with the floor and the head; the offset right before the floor is accepted', async () => {
    await post();
    const last = await head();
    await withFloor(last, async () => {
      const { body } = await api.refused(410, 'OUTBOX_BEHIND', 'GET', `${OUTBOX}?after=${last - 2}`, {
        as: root,
      });
      expect(body.details).toEqual({ floor: last, head: last });
      await api.refused(410, 'OUTBOX_BEHIND', 'GET', `${OUTBOX}?after=${last - 2}&follow=true`, { as: root });
      await api.refused(410, 'OUTBOX_BEHIND', 'GET', `${VIEW}?up_to=${last - 2}`, { as: root });
      expect((await read(`${OUTBOX}?after=${last - 1}`)).filter(isRow)).toHaveLength(1);
    });
  });

  it('is also one above the head: the node has lost what its reader knows', async () => {
    const beyond = (await head()) + 1;
    await api.refused(410, 'OUTBOX_BEHIND', 'GET', `${OUTBOX}?after=${beyond}`, { as: root });
    await api.refused(410, 'OUTBOX_BEHIND', 'GET', `${VIEW}?up_to=${beyond}`, { as: root });
  });

  it('ends an open stream with a row that says so', async () => {
    const stream = await open(`${OUTBOX}?after=${await head()}&follow=true`);
    await stream.waitFor('a position', ({ op }) => op === 'position');
    const floor = (await head()) + 5;
    await withFloor(floor, async () => {
      const behind = await stream.waitFor('the row', ({ op }) => op === 'behind');
      expect(behind).toEqual({ op: 'behind', floor, head: expect.any(Number) });
      expect(await stream.end()).toBe('whole');
    });
  });
});

describe('who may read', () => {
  async function newOperator(): Promise<Author> {
    const operator = newAuthor();
    await api.ask('PUT', `/v1/admin/operators/${operator.pubkey}`, { as: root });
    await eventually('the operator is known', () =>
      relay.node.communities.get(home)!.operators.has(operator.pubkey) ? true : undefined,
    );
    return operator;
  }
  async function following(asking: Parameters<typeof open>[1]): Promise<LineReader> {
    const stream = await open(`${OUTBOX}?after=${await head()}&follow=true`, asking);
    await stream.waitFor('a position', ({ op }) => op === 'position');
    return stream;
  }

  it('the stream of a removed or disabled operator ends', async () => {
    const [removed, disabled] = [await newOperator(), await newOperator()];
    const streams = [await following({ as: removed }), await following({ as: disabled })];
    await api.ask('DELETE', `/v1/admin/operators/${removed.pubkey}`, { as: root });
    await api.ask('PATCH', `/v1/admin/members/${disabled.pubkey}`, {
      as: root,
      body: { status: 'disabled' },
    });
    expect(await streams[0]!.waitFor('why', ({ op }) => op === 'closed')).toEqual({
      op: 'closed',
      code: 'OPERATORS_ONLY',
    });
    expect(await streams[1]!.waitFor('why', ({ op }) => op === 'closed')).toEqual({
      op: 'closed',
      code: 'ACCOUNT_DISABLED',
    });
    expect(await Promise.all(streams.map((stream) => stream.end()))).toEqual(['whole', 'whole']);
  });

  it('a token that is revoked reads no further', async () => {
    const operator = await newOperator();
    const { body: asked } = await api.ask<Record<string, string>>('POST', '/v1/auth/challenge');
    const tags = [
      ['relay', asked.relay!],
      ['challenge', asked.challenge!],
    ];
    const event = sign(operator, { kind: 22_242, tags });
    const { body } = await api.ask<{ token: string }>('POST', '/v1/auth/verify', { body: { event } });
    const headers = { authorization: `Bearer ${body.token}` };
    const stream = await following({ headers });
    await api.ask('POST', '/v1/auth/revoke', { headers, body: {} });
    expect(await stream.waitFor('why', ({ op }) => op === 'closed')).toMatchObject({ code: 'INVALID_TOKEN' });
  });

  it('opens four streams at once, its community eight', async () => {
    const path = `${OUTBOX}?after=${await head()}&follow=true`;
    const readers: LineReader[] = [];
    for (let at = 0; at < 4; at += 1) readers.push(await open(path));
    const { headers, body } = await api.refused(429, 'RATE_LIMITED', 'GET', path, { as: root });
    const explanation = '4 streams of this key are open';
    expect([headers.get('retry-after'), body.details]).toEqual([
      '10',
      { retry_after_seconds: 10, explanation },
    ]);
    const operator = await newOperator();
    for (let at = 0; at < 4; at += 1) await open(path, { as: operator });
    const last = await newOperator();
    const full = await api.refused(429, 'RATE_LIMITED', 'GET', path, { as: last });
    expect(full.body.details).toMatchObject({ explanation: '8 streams of this community are open' });
    await readers[0]!.close();
    const admitted = async () => {
      const reader = await LineReader.open(relay.http, path, { as: last });
      if (reader.response.status !== 200) return undefined;
      opened.push(reader);
      return true;
    };
    await eventually('there is room again', admitted);
  });

  it('does not use up streams of another community; some are reserved for the default one', async () => {
    const { pool } = relay.database;
    const change = { key: 'node.outboxStreamsMax', value: 4 } as const;
    await changeNodeSetting(pool, change, Date.now());
    await eventually('it holds', () =>
      relay.node.communities.node()['node.outboxStreamsMax'] === 4 ? true : undefined,
    );
    const path = `${OUTBOX}?after=${await head()}&follow=true`;
    for (let at = 0; at < 3; at += 1) await open(`/c/art${path}`);
    const { body } = await api.refused(429, 'RATE_LIMITED', 'GET', `/c/art${path}`, { as: root });
    expect(body.details).toMatchObject({ explanation: 'this node has its maximum number of open streams' });
    await open(path);
    const operator = await newOperator();
    await api.refused(429, 'RATE_LIMITED', 'GET', path, { as: operator });
    await clearNodeSetting(pool, { key: 'node.outboxStreamsMax' }, Date.now());
  });
});

describe('the view', () => {
  it('comes in parts up to the pin of the first, independent of new writes', async () => {
    const after = await head();
    const posted = [];
    for (let at = 0; at < 5; at += 1) posted.push(await post({ content: `${at}` }));
    const pin = await head();
    const first = await read(`${VIEW}?after=${after}&limit=2`);
    expect(first.filter(isRow).map(({ event }) => event)).toEqual(posted.slice(0, 2));
    expect(first.at(-1)).toEqual({
      op: 'position',
      seq: first[1]!.seq,
      head: pin,
      pinned: pin,
      more: true,
    });
    await post({ content: 'later' });
    const second = await read(`${VIEW}?after=${first.at(-1)!.seq}&up_to=${pin}`);
    expect(second.filter(isRow).map(({ event }) => event)).toEqual(posted.slice(2));
    expect(second.at(-1)).toMatchObject({ op: 'position', seq: pin, pinned: pin, more: false });
  });

  it('followed by the outbox gives the same as the outbox from its beginning (I9)', async () => {
    const authors = [newAuthor(), newAuthor(), newAuthor()];
    const at = nowSeconds() - 1_000;
    const live = async (round: number) => {
      const events = [];
      for (const author of authors) {
        events.push(await post({ content: `${round}` }, author));
        await post({ kind: 30_000, created_at: at + round, tags: [['d', 'list']] }, author);
        await post({ kind: 10_002, created_at: at + round }, author);
      }
      await post({ kind: 5, tags: [['e', events[0]!.id]] }, authors[0]!);
      return events;
    };
    for (let round = 0; round < 3; round += 1) await live(round);
    const held = new Map<string, unknown>();
    let position: Line = { op: 'position', seq: 0 };
    for (let parts = 0; parts === 0 || position.more; parts += 1) {
      const pinned = position.pinned === undefined ? '' : `&up_to=${position.pinned}`;
      const lines = await read(`${VIEW}?after=${position.seq}&limit=7${pinned}`);
      apply(held, lines);
      position = lines.at(-1)!;
      // Events are written between the parts.
      if (parts < 3) await live(10 + parts);
    }
    apply(held, await read(`${OUTBOX}?after=${position.pinned}&limit=10000`));
    const followed = new Map<string, unknown>();
    const everything = await read(`${OUTBOX}?limit=10000`);
    apply(followed, everything);
    apply(followed, everything);
    expect([...held.keys()].sort()).toEqual([...followed.keys()].sort());
    const fresh = new Map<string, unknown>();
    apply(fresh, await read(`${VIEW}?limit=10000`));
    expect([...fresh].sort()).toEqual([...held].sort());
  });

  /** The minimum that a service has to do. */
  function apply(held: Map<string, unknown>, lines: readonly Line[]): void {
    for (const { op, event_id, event } of lines) {
      if (op === 'upsert' && event !== null) held.set(event_id!, event);
      else if (op === 'upsert' || op === 'delete') held.delete(event_id!);
    }
  }
});

describe('a port of its own', () => {
  const serve = (times: { signOfLifeMs?: number; stalledMsMax?: number }) =>
    serveApi(relay, { adminPubkeys: [root.pubkey], ...times });

  it('a stream without changes sends keep-alive positions, and ends with the node', async () => {
    const [http, base] = await serve({ signOfLifeMs: 1 });
    const stream = await open(`${OUTBOX}?after=${await head()}&follow=true`, { as: root }, base);
    await eventually('three positions', () => (stream.lines.length >= 3 ? true : undefined));
    expect(new Set(stream.lines.map(({ op }) => op))).toEqual(new Set(['position']));
    http.stopAccepting();
    expect(await stream.end()).toBe('whole');
    const late = await open(`${OUTBOX}?after=${await head()}&follow=true`, { as: root }, base);
    expect(await late.end()).toBe('whole');
    await http.close();
  });

  /** More than the buffers on the way to a reader hold: two portions, and a half. */
  const LARGE_ROWS = 250;
  let large: number;
  async function postLarge(): Promise<void> {
    large = await head();
    const content = 'x'.repeat(80_000);
    for (let at = 0; at < LARGE_ROWS; at += 25)
      await Promise.all(
        Array.from({ length: 25 }, (_, one) => post({ content: `${at + one} ${content}` }, root)),
      );
  }
  /** Takes the head of an answer, and nothing more. */
  async function ask(base: string, as: Author): Promise<IncomingMessage> {
    const url = `${base}${OUTBOX}?after=${large}&limit=${LARGE_ROWS}`;
    const headers = { authorization: authorization(credential(as, { method: 'GET', url })) };
    const [response] = (await once(get(url, { headers }), 'response')) as [IncomingMessage];
    expect(response.statusCode).toBe(200);
    return response.on('error', () => undefined);
  }
  async function rest(response: IncomingMessage): Promise<string> {
    let text = '';
    response.setEncoding('utf8').on('data', (part) => {
      text += part;
    });
    await eventually('the rest has come', () => (response.closed ? true : undefined));
    return text;
  }

  it('a client that does not read gets no more than the buffers hold, and is closed', async () => {
    await postLarge();
    const [http, base] = await serve({ stalledMsMax: 1_000 });
    const response = await ask(base, root);
    const connections = () =>
      new Promise<number>((resolve) => http.app.server.getConnections((_, count) => resolve(count)));
    await eventually('the node gives it up', async () => ((await connections()) === 0 ? true : undefined));
    expect((await rest(response)).length).toBeLessThan(15_000_000);
    await http.close();
  });

  it('a slow client that loses its right gets no more rows', async () => {
    const operator = newAuthor();
    const path = `/v1/admin/operators/${operator.pubkey}`;
    const isKnown = (is: boolean) =>
      eventually('the operators are known', () =>
        relay.node.communities.get(home)!.operators.has(operator.pubkey) === is ? true : undefined,
      );
    await api.ask('PUT', path, { as: root });
    await isKnown(true);
    const response = await ask(relay.http, operator);
    await api.ask('DELETE', path, { as: root });
    await isKnown(false);
    const lines = (await rest(response)).trim().split('\n');
    expect(lines.at(-1)).toBe('{"op":"closed","code":"OPERATORS_ONLY"}');
    expect(lines.length).toBeLessThan(LARGE_ROWS);
  });
});
