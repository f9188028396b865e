/**
 * I16 over sockets and HTTP, on two instances: in a burst of posts of which rules hold and hide some, nobody
 * receives one of these by any read path; when restored, each is delivered once.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import { eventually } from '../support/cli.js';
import { type Api, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { LineReader } from '../support/clients/stream.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { hash, unsigned } from '../support/stores/life.js';

const RULES = '/v1/admin/moderation/rules';
const CASES = '/v1/admin/moderation/cases';
const BURST = 1_000;
const root = newAuthor();
let first: TestNode;
let second: TestNode;
let api: Api;
let clients: RawClient[];
let lines: LineReader;

beforeAll(async () => {
  const env = { MINATO_ADMIN_PUBKEYS: root.pubkey };
  first = await startTestNode({ env });
  second = await startTestNode({ env, on: first.test, roles: ['relay', 'api'] });
  api = createApi(first.http);
  clients = [await RawClient.connect(first.url), await RawClient.connect(second.url)];
  lines = await LineReader.open(first.http, '/v1/admin/outbox?after=0', {
    as: root,
    headers: { accept: 'text/event-stream' },
  });
});
afterAll(async () => {
  await lines.close();
  for (const client of clients) await client.close();
  await second.close();
  await first.close();
});

type Row = Record<string, unknown>;
const ask = async <T = Row>(method: string, path: string, body?: unknown): Promise<T> =>
  (await api.ask<T>(method, path, { as: root, ...(body === undefined ? {} : { body }) })).body;

async function enable(rule: Row): Promise<void> {
  const { rule_id: id } = await ask('POST', RULES, rule);
  await ask('POST', `${RULES}/try`, { rule_id: id, last: 10 });
  expect(await ask('PATCH', `${RULES}/${String(id)}`, { enabled: true })).toMatchObject({ enabled: true });
}

/** The events that each open subscription has received. */
const delivered = (client: RawClient) =>
  client.frames
    .filter((frame) => frame[0] === 'EVENT' && frame[1] === 'live')
    .map((frame) => (frame[2] as NostrEvent).id);

const wordOf = (at: number) => (at % 5 === 2 ? 'casino' : at % 7 === 3 ? 'viagra' : 'harmless');
const isKept = ({ content }: NostrEvent) => /casino|viagra/.test(content);

describe('a burst of posts in which rules hold some', () => {
  it('shows none of them to anybody, and every other post once', async () => {
    for (const client of clients) {
      client.send(['REQ', 'live', { kinds: [1], limit: 0 }]);
      await client.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === 'live');
    }
    await enable({ name: 'casino', action: 'hold', conditions: { words: ['casino'] } });
    await enable({ name: 'viagra', action: 'hide', conditions: { patterns: ['(?i)viagra'] } });
    const community = first.node.communities.find(undefined, undefined)!.id;
    const author = newAuthor();
    const signed = Array.from({ length: 30 }, (_, at) =>
      sign(author, { content: `${wordOf(at)} signed ${at}` }),
    );
    const unproved = Array.from({ length: BURST * 2 }, (_, at) =>
      unsigned({
        kind: 1,
        pubkey: hash(`${at % 20}`),
        created_at: nowSeconds(),
        content: `${wordOf(at)} ${at}`,
      }),
    );
    signed.forEach((event, at) => {
      clients[at % 2]!.send(['EVENT', event]);
    });
    const outcomes = await Promise.all(
      unproved.map((event, at) =>
        [first, second][at % 2]!.node.store.submit({ community, event, payload: serializeEvent(event) }),
      ),
    );
    expect(new Set(outcomes)).toEqual(new Set(['stored']));
    for (const client of clients) {
      const answers = await eventually('every post over the socket is answered', () => {
        const found = client.frames.filter(([what]) => what === 'OK');
        return found.length === signed.length / 2 ? found : undefined;
      });
      expect(new Set(answers.map(([, , ok, why]) => `${String(ok)} ${String(why)}`))).toEqual(
        new Set(['true ']),
      );
    }
    const events = [...unproved, ...signed];
    const shown = events.filter((event) => !isKept(event)).map(({ id }) => id);
    const kept = events.filter(isKept).map(({ id }) => id);
    expect(kept.length).toBeGreaterThan(BURST / 2);
    for (const client of clients) {
      await eventually('all that is shown is delivered', () =>
        delivered(client).length >= shown.length ? true : undefined,
      );
      expect(delivered(client).sort()).toEqual([...shown].sort());
    }
    await first.node.consumers!.drained();
    const last = sign(newAuthor(), { content: 'the last one' });
    await clients[0]!.publish(last);
    await eventually('the stream has come to the end', () =>
      lines.lines.some(({ event_id: id }) => id === last.id) ? true : undefined,
    );
    const streamed = new Set(lines.lines.map(({ event_id: id }) => id));
    expect(shown.every((id) => streamed.has(id))).toBe(true);
    expect(kept.filter((id) => streamed.has(id))).toEqual([]);
    for (const [at, client] of clients.entries()) {
      for (let from = 0; from < kept.length; from += 200)
        expect((await client.query({ ids: kept.slice(from, from + 200) })).events).toEqual([]);
      const stored = (await client.query({ kinds: [1], limit: 5_000 })).events.map(({ id }) => id);
      expect(stored.filter((id) => kept.includes(id))).toEqual([]);
      client.send(['COUNT', `count ${at}`, { authors: [author.pubkey] }]);
      const counted = await client.waitFor((frame) => frame[0] === 'COUNT' && frame[1] === `count ${at}`);
      expect(counted[2]).toMatchObject({ count: signed.filter((event) => !isKept(event)).length });
      for (const search of ['casino', 'viagra'])
        expect((await client.query({ search, kinds: [1] })).events).toEqual([]);
    }
    expect(await ask('GET', '/v1/search?q=casino')).toMatchObject({ items: [] });
  });

  it('has a case for each held post, and a restored post is delivered once on each instance', async () => {
    const { items } = await ask<{ items: (Row & { target_event: string })[] }>(
      'GET',
      `${CASES}?status=held&limit=1`,
    );
    const { case_id: id, target_event: event } = items[0]!;
    expect(await ask('POST', `${CASES}/${String(id)}/actions`, { action: 'restore' })).toMatchObject({
      outcome: 'restored',
    });
    for (const client of clients) {
      await client.waitFor((frame) => frame[0] === 'EVENT' && (frame[2] as NostrEvent).id === event);
      const end = sign(newAuthor(), { content: 'harmless end' });
      await client.publish(end);
      await client.waitFor((frame) => frame[0] === 'EVENT' && (frame[2] as NostrEvent).id === end.id);
      expect(delivered(client).filter((each) => each === event)).toHaveLength(1);
      expect((await client.query({ ids: [event] })).events).toHaveLength(1);
    }
  });

  it('leaves the caches intact: a held post takes no position of the outbox', async () => {
    const before = await first.database.pool.query('SELECT last_seq FROM lane_state');
    expect(await clients[0]!.publish(sign(newAuthor(), { content: 'casino again' }))).toEqual([true, '']);
    const after = await first.database.pool.query('SELECT last_seq FROM lane_state');
    expect(after.rows).toEqual(before.rows);
  });
});
