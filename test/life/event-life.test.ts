/**
 * The life of an event, over real HTTP and sockets: what really happened is in its timeline, and what it says
 * about sending the event again is what the relay answers.
 */
import { noteEncode } from 'nostr-tools/nip19';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { eventually, runCli } from '../support/cli.js';
import { type Api, authorization, createApi, credential } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const CASES = '/v1/admin/moderation/cases';
const root = newAuthor();
const UNSENT = 'e'.repeat(64);
let aheadMs = 0;
let relay: TestNode;
let api: Api;
let client: RawClient;

beforeAll(async () => {
  const now = () => Date.now() + aheadMs;
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey }, now, jobs: [] });
  api = createApi(relay.http);
  client = await RawClient.connect(relay.url);
  await addCommunity(relay.database.pool, 'art', undefined, Date.now());
  await relay.node.communities.refresh();
});
afterAll(async () => {
  await client.close();
  await relay.close();
});

interface Entry {
  readonly at: number | null;
  readonly what: string;
  readonly event_id: string | null;
  readonly pubkey: string | null;
  readonly case_id: string | null;
  readonly detail: string | null;
}
interface Life {
  readonly author: string | null;
  readonly status: string;
  readonly hidden: string | null;
  readonly event: { readonly kind: number } | null;
  readonly indexed: boolean;
  readonly timeline: Entry[];
  readonly sent_again: { readonly comes_back: boolean | null; readonly reply: string | null; also: string[] };
}

const pathOf = (id: string) => `/v1/admin/events/${id}/life`;
async function lifeOf({ id }: { id: string }): Promise<Life> {
  const path = pathOf(id);
  const signed = { created_at: nowSeconds() + aheadMs / 1_000 };
  const authorized = authorization(credential(root, { method: 'GET', url: relay.http + path }, signed));
  const { status, body } = await api.ask<Life>('GET', path, { headers: { authorization: authorized } });
  expect(status).toBe(200);
  return body;
}
const stepsOf = ({ timeline }: Life) => timeline.map(({ what }) => what);

async function publish(author: Author, draft: Draft = {}): Promise<NostrEvent> {
  const event = sign(author, { content: `harbour ${Math.random()}`, ...draft });
  expect(await client.publish(event)).toEqual([true, '']);
  return event;
}
const deletion = (author: Author, tags: string[][]) => publish(author, { kind: 5, tags, content: '' });

/** Sends it again: the relay answers as the life says, and the event is not stored. */
async function expectAnswer(event: NostrEvent): Promise<void> {
  const { sent_again: again } = await lifeOf(event);
  const [, reply] = await client.publish(event);
  expect(again).toMatchObject({ comes_back: false, reply });
}

it('of a served event has its arrival and its index', async () => {
  const author = newAuthor();
  const event = await publish(author);
  const life = await lifeOf(event);
  expect(life).toMatchObject({ author: author.pubkey, status: 'served', hidden: null, event: { kind: 1 } });
  expect(stepsOf(life)).toEqual(['arrived']);
  expect(JSON.stringify(life)).not.toContain('harbour');
  await eventually('it is indexed', async () => ((await lifeOf(event)).indexed ? true : undefined));
  await expectAnswer(event);
});

it('says how it came, as long as the outbox knows', async () => {
  const event = await publish(newAuthor());
  const wayOf = async () => (await lifeOf(event)).timeline[0]!.detail;
  const own = 'seq = (SELECT seq FROM event_dedupe WHERE event_id = $1)';
  const change = (text: string) => relay.database.pool.query(text, [Buffer.from(event.id, 'hex')]);
  expect(await wayOf()).toBe('posted here or imported');
  await change(`UPDATE events_outbox SET came_by = 'sync' WHERE ${own}`);
  expect(await wayOf()).toBe('from another relay, by sync');
  await change(`UPDATE events_outbox SET came_by = repeat('ab', 32) WHERE ${own}`);
  expect(await wayOf()).toBe('from another node, by gossip');
  await change(`DELETE FROM events_outbox WHERE ${own}`);
  expect(await wayOf()).toBeNull();
});

it('of a deleted event names the request, and a stranger who asked is not in it', async () => {
  const author = newAuthor();
  const event = await publish(author);
  await deletion(newAuthor(), [['e', event.id]]);
  expect(stepsOf(await lifeOf(event))).toEqual(['arrived']);
  const request = await deletion(author, [['e', event.id]]);
  const life = await lifeOf(event);
  expect(life).toMatchObject({ status: 'hidden', hidden: 'deleted' });
  expect(stepsOf(life).sort()).toEqual(['arrived', 'deleted', 'deletion-requested']);
  for (const what of ['deleted', 'deletion-requested'])
    expect(life.timeline.find((one) => one.what === what)).toMatchObject({ event_id: request.id });
  await expectAnswer(event);
});

it('of a version names the newest one, and the request that deleted its address', async () => {
  const author = newAuthor();
  const [early, late] = [nowSeconds() - 20, nowSeconds() - 10];
  const old = await publish(author, { kind: 30_023, tags: [['d', 'a:b']], created_at: early });
  const current = await publish(author, { kind: 30_023, tags: [['d', 'a:b']], created_at: late });
  const life = await lifeOf(old);
  expect(life).toMatchObject({ status: 'hidden', hidden: 'superseded' });
  expect(life.timeline.at(-1)).toMatchObject({ what: 'superseded', event_id: current.id });
  await expectAnswer(old);
  const request = await deletion(author, [['a', `30023:${author.pubkey}:a:b`]]);
  for (const version of [old, current]) {
    const { timeline } = await lifeOf(version);
    const asked = timeline.find(({ what }) => what === 'deletion-requested');
    expect(asked).toMatchObject({ event_id: request.id, detail: 'by its address' });
    await expectAnswer(version);
  }
});

it('of an event that was deleted before it arrived shows who asked', async () => {
  const author = newAuthor();
  const event = sign(author, { content: 'never here' });
  const request = await deletion(author, [['e', event.id]]);
  const life = await lifeOf(event);
  expect(life).toMatchObject({
    author: null,
    status: 'unknown',
    event: null,
    sent_again: { comes_back: null },
  });
  expect(life.timeline).toMatchObject([
    { what: 'deletion-requested', event_id: request.id, pubkey: author.pubkey },
  ]);
  expect(life.sent_again.also).toEqual([`if ${author.pubkey} wrote it: deleted by its author`]);
  expect(await client.publish(event)).toEqual([false, 'blocked: deleted by its author']);
});

it('of an expired event says so from that second on', async () => {
  const event = await publish(newAuthor(), { tags: [['expiration', String(nowSeconds() + 3_000)]] });
  expect(await lifeOf(event)).toMatchObject({ status: 'served' });
  aheadMs = 3_001_000;
  expect(await lifeOf(event)).toMatchObject({ status: 'hidden', hidden: 'expired' });
  await expectAnswer(event);
  aheadMs = 0;
});

it('of a removed event has its case, its actions and its labels; a restored one is served', async () => {
  const event = await publish(newAuthor());
  const opened = await api.ask<{ case_id: string }>('POST', CASES, {
    as: root,
    body: { event_id: event.id },
  });
  const { case_id: caseId } = opened.body;
  const act = async (body: object) => {
    const acted = await api.ask('POST', `${CASES}/${caseId}/actions`, { as: root, body });
    expect(acted.status).toBe(201);
  };
  await act({ action: 'label', label: { label: 'spam' } });
  await act({ action: 'remove' });
  const life = await lifeOf(event);
  expect(life).toMatchObject({ status: 'hidden', hidden: 'removed' });
  expect(stepsOf(life)[0]).toBe('arrived');
  for (const what of ['case-opened', 'case-closed', 'action', 'labelled'])
    expect(life.timeline.find((one) => one.what === what)).toMatchObject({ case_id: caseId });
  expect(life.timeline).toContainEqual(
    expect.objectContaining({ what: 'action', detail: 'remove: removed', pubkey: root.pubkey }),
  );
  await expectAnswer(event);
  await act({ action: 'restore' });
  expect(await lifeOf(event)).toMatchObject({ status: 'served', hidden: null });
});

it('of a vanished author names the request to vanish', async () => {
  const author = newAuthor();
  const event = await publish(author);
  const request = await publish(author, { kind: 62, tags: [['relay', 'ALL_RELAYS']], content: '' });
  const life = await lifeOf(event);
  expect(life).toMatchObject({ status: 'hidden', hidden: 'vanished' });
  expect(life.timeline.find(({ what }) => what === 'vanished')).toMatchObject({ event_id: request.id });
  await expectAnswer(event);
});

it('of a purged event is what its id still tells', async () => {
  const home = relay.node.communities.find(undefined, undefined)!.id;
  await writeSetting(relay.database.pool, home, 'deletion.mode', 'physical', Date.now());
  await relay.node.communities.refresh();
  const author = newAuthor();
  const event = await publish(author);
  await deletion(author, [['e', event.id]]);
  const life = await lifeOf(event);
  expect(life).toMatchObject({ author: author.pubkey, status: 'purged', hidden: 'deleted', event: null });
  expect(stepsOf(life)).toContain('purged');
  await expectAnswer(event);
});

it('names a blocked author', async () => {
  const author = newAuthor();
  const event = await publish(author);
  await api.ask('PUT', `/v1/admin/blocks/authors/${author.pubkey}`, { as: root, body: {} });
  await eventually('the block is known', async () =>
    (await lifeOf(event)).sent_again.also.includes('its author is blocked') ? true : undefined,
  );
});

it('is known in its own community only, and to nobody below a moderator', async () => {
  const event = await publish(newAuthor());
  await api.refused(404, 'NOT_FOUND', 'GET', `/c/art${pathOf(event.id)}`, { as: root });
  await api.refused(404, 'NOT_FOUND', 'GET', pathOf(UNSENT), { as: root });
  await api.refused(400, 'INVALID_REQUEST', 'GET', pathOf('abc'), { as: root });
  const { body } = await api.refused(403, 'OPERATORS_ONLY', 'GET', pathOf(event.id), { as: newAuthor() });
  expect(body.details).toEqual({ role: 'moderator' });
});

it('is printed by minato events life, for an id in hex or as a note', async () => {
  const author = newAuthor();
  const event = await publish(author);
  const request = await deletion(author, [['e', event.id]]);
  const run = (...args: string[]) => runCli(['events', 'life', ...args], { DATABASE_URL: relay.test.url });
  const { code, stdout, stderr } = await run(noteEncode(event.id));
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout.split('\n').slice(0, 2)).toEqual([
    `${event.id}  purged (deleted)`,
    `author: ${author.pubkey}`,
  ]);
  expect(stdout).toMatch(new RegExp(`\\n\\S+Z {2}deletion-requested {2}by its id {2}event ${request.id} `));
  expect(stdout).toMatch(/\nsent again: is not stored; blocked: deleted by its author\n$/);
  expect(JSON.parse((await run(event.id, '--json')).stdout)).toEqual(await lifeOf(event));
  expect(await run(UNSENT)).toMatchObject({ code: 1, stderr: expect.stringContaining('nothing is known') });
  expect(await run('x')).toMatchObject({ code: 1, stderr: expect.stringContaining('a note or a nevent') });
});
