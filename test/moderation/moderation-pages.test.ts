/**
 * What the pages of moderators read, over real HTTP: texts beside cases, numbers of what waits, what deleting
 * a rule releases, and labels in force.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/cli.js';
import { type Api, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, type Draft, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const MODERATION = '/v1/admin/moderation';
const CASES = `${MODERATION}/cases`;
const RULES = `${MODERATION}/rules`;
const LABELS = '/v1/admin/labels';
const root = newAuthor();
let node: TestNode;
let api: Api;
let client: RawClient;

beforeAll(async () => {
  node = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey } });
  api = createApi(node.http);
  client = await RawClient.connect(node.url);
});
afterAll(async () => {
  await client.close();
  await node.close();
});

type Row = Record<string, unknown>;
async function done<T = Row>(method: string, path: string, body?: unknown, as: Author = root): Promise<T> {
  const answer = await api.ask<T>(method, path, { as, ...(body === undefined ? {} : { body }) });
  expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300);
  return answer.body;
}
const publish = async (draft: Draft, author = newAuthor()) => {
  const event = sign(author, draft);
  expect(await client.publish(event)).toEqual([true, '']);
  return event;
};
interface Case extends Row {
  readonly case_id: string;
  readonly status: string;
  readonly post: Row | null;
}
const openCase = (about: Row) => done<Case>('POST', CASES, about);
const listed = async (author: string) =>
  (await done<{ items: Case[] }>('GET', `${CASES}?author=${author}`)).items;
const act = (caseId: string, action: string, more: Row = {}) =>
  done('POST', `${CASES}/${caseId}/actions`, { action, ...more });
async function enable(name: string, rule: Row): Promise<string> {
  const { rule_id: id } = await done<{ rule_id: string }>('POST', RULES, { name, ...rule });
  await done('POST', `${RULES}/try`, { rule_id: id, last: 10 });
  await done('PATCH', `${RULES}/${id}`, { enabled: true });
  return id;
}

describe('a list of cases', () => {
  it('has the beginning of each text, also while the event is removed', async () => {
    const author = newAuthor();
    const long = '港'.repeat(600);
    const [short, cut] = [
      await publish({ content: 'buy now' }, author),
      await publish({ content: long }, author),
    ];
    for (const { id } of [short, cut]) await openCase({ event_id: id });
    await openCase({ pubkey: author.pubkey });
    const [first] = (await listed(author.pubkey)).filter(({ target_event: id }) => id === short.id);
    await act(first!.case_id, 'remove');
    const posts = new Map((await listed(author.pubkey)).map((one) => [one.target_event, one.post]));
    expect(posts.get(short.id)).toEqual({
      kind: 1,
      created_at: short.created_at,
      text: 'buy now',
      is_cut: false,
    });
    expect(posts.get(cut.id)).toMatchObject({ text: '港'.repeat(500), is_cut: true });
    expect(posts.get(null)).toBeNull();
  });

  it('does not show what its author has deleted', async () => {
    const author = newAuthor();
    const [kept, deleted] = [
      await publish({ content: 'stays' }, author),
      await publish({ content: 'regretted' }, author),
    ];
    for (const { id } of [kept, deleted]) await openCase({ event_id: id });
    const found = (await listed(author.pubkey)).find(({ target_event: id }) => id === deleted.id);
    await act(found!.case_id, 'remove');
    await publish({ kind: 5, content: '', tags: [['e', deleted.id]] }, author);
    const posts = new Map((await listed(author.pubkey)).map((one) => [one.target_event, one.post]));
    expect(posts.get(kept.id)).toMatchObject({ text: 'stays' });
    expect(posts.get(deleted.id)).toBeNull();
  });
});

describe('the numbers of what waits', () => {
  const waiting = () =>
    done<Record<'open' | 'held' | 'appealed' | 'batches', { count: number; more: boolean }>>(
      'GET',
      `${MODERATION}/waiting`,
    );

  it('count open and held cases and appeals', async () => {
    const before = await waiting();
    const rule = await enable('hold tulips', { action: 'hold', conditions: { words: ['tulips'] } });
    const author = newAuthor();
    await publish({ content: 'tulips for sale' }, author);
    await eventually('the case is there', async () => (await listed(author.pubkey))[0]);
    await done('POST', '/v1/moderation/appeals', await appealOf(author), author);
    const about = await publish({ content: 'something else' });
    await openCase({ event_id: about.id });
    const after = await waiting();
    expect(after.held.count).toBe(before.held.count + 1);
    expect(after.appealed.count).toBe(before.appealed.count + 1);
    expect(after.open.count).toBe(before.open.count + 1);
    expect(after.batches).toEqual({ count: 0, more: false });
    await done('DELETE', `${RULES}/${rule}`);
    expect((await waiting()).held.count).toBe(before.held.count);
  });

  const appealOf = async ({ pubkey }: Author) => ({
    event_id: (await listed(pubkey))[0]!.target_event,
    text: 'They were flowers.',
  });

  it('stop at 100', async () => {
    for (let made = 0; made <= 100; made += 1) await openCase({ pubkey: newAuthor().pubkey });
    expect((await waiting()).open).toEqual({ count: 100, more: true });
  });
});

describe('what deleting a rule releases', () => {
  it('is counted before: held and hidden events, and labels', async () => {
    const releases = (id: string) => done('GET', `${RULES}/${id}/releases`);
    const holding = await enable('hold roulette', { action: 'hold', conditions: { words: ['roulette'] } });
    const labelling = await enable('label poker', {
      action: 'label',
      label: { label: 'spam' },
      conditions: { words: ['poker'] },
    });
    const author = newAuthor();
    for (const content of ['roulette 1', 'roulette 2', 'roulette 3']) await publish({ content }, author);
    await publish({ content: 'poker night' });
    const [decided] = await eventually('three cases', async () => {
      const found = await listed(author.pubkey);
      return found.length === 3 ? found : undefined;
    });
    await act(decided!.case_id, 'restore');
    const none = { count: 0, more: false };
    expect(await releases(holding)).toEqual({ held: { count: 2, more: false }, hidden: none, labels: none });
    await eventually('the label is counted', async () =>
      JSON.stringify(await releases(labelling)) ===
      JSON.stringify({ held: none, hidden: none, labels: { count: 1, more: false } })
        ? true
        : undefined,
    );
    await done('DELETE', `${RULES}/${holding}`);
    await eventually('they are served', async () =>
      (await client.query({ authors: [author.pubkey] })).events.length === 3 ? true : undefined,
    );
    await api.refused(404, 'NOT_FOUND', 'GET', `${RULES}/${holding}/releases`, { as: root });
    await done('DELETE', `${RULES}/${labelling}`);
  });
});

interface Label extends Row {
  readonly label_id: string;
  readonly label: string;
}

describe('the labels in force', () => {
  const inForce = async (query: string) =>
    (await done<{ items: Label[]; next_cursor: string | null }>('GET', `${LABELS}?${query}`)).items;

  it('are found by label, event and person, in pages, the last to lapse first', async () => {
    const author = newAuthor();
    const events = [await publish({ content: 'one' }, author), await publish({ content: 'two' }, author)];
    for (const [at, { id }] of events.entries()) {
      const { case_id: caseId } = await openCase({ event_id: id });
      await act(caseId, 'label', { label: { label: 'nsfw', days: 10 + at, confidence: 0.9 } });
    }
    const person = await openCase({ pubkey: author.pubkey });
    await act(person.case_id, 'label', { label: { label: 'harassment', days: 5 } });
    const mine = `target_pubkey=${author.pubkey}`;
    const found = await inForce(mine);
    expect(found.map(({ label, target_event: id }) => [label, id])).toEqual([
      ['nsfw', events[1]!.id],
      ['nsfw', events[0]!.id],
      ['harassment', null],
    ]);
    expect(found[0]).toMatchObject({ confidence: 0.9, target_pubkey: author.pubkey, rule_id: null });
    expect(await inForce(`${mine}&label=harassment`)).toHaveLength(1);
    expect(await inForce(`target_event=${events[0]!.id}`)).toHaveLength(1);
    const first = await done<{ items: Label[]; next_cursor: string }>('GET', `${LABELS}?${mine}&limit=2`);
    const rest = await inForce(`${mine}&limit=2&cursor=${first.next_cursor}`);
    // By their ids: meanwhile the labels are published, which fills in their events.
    const ids = (labels: readonly Label[]) => labels.map(({ label_id: id }) => id);
    expect(ids([...first.items, ...rest])).toEqual(ids(found));
  });

  it('can be withdrawn, and that can be undone', async () => {
    const rule = await enable('label bingo', {
      action: 'label',
      label: { label: 'spam', policy: 'no bingo' },
      conditions: { words: ['bingo'] },
    });
    const { id, pubkey } = await publish({ content: 'bingo' });
    const mine = `target_event=${id}`;
    const [put] = await eventually('the label', async () => {
      const found = await inForce(mine);
      return found.length === 1 ? found : undefined;
    });
    expect(put).toMatchObject({ rule_id: rule, case_id: null });
    const path = `${LABELS}/${put!.label_id}/withdraw`;
    const { batch_id: batch } = await done('POST', path, { note: 'a real game' });
    expect(await inForce(mine)).toEqual([]);
    await api.refused(404, 'NOT_FOUND', 'POST', path, { as: root, body: {} });
    expect(await listed(pubkey)).toMatchObject([{ status: 'dismissed', reason: 'label: spam' }]);
    await done('POST', `${MODERATION}/batches/${batch}/undo`);
    const again = await eventually('the label again', async () => (await inForce(mine))[0]);
    expect(again).toMatchObject({ label: 'spam', policy: 'no bingo' });
    await done('DELETE', `${RULES}/${rule}`);
  });
});
