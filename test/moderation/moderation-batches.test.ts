/**
 * Batches of moderators over real HTTP: one action on many cases, or on the events that a search finds, and
 * undoing a whole batch.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import { eventually } from '../support/cli.js';
import { type Api, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, type Draft, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { unsigned } from '../support/stores/life.js';

const CASES = '/v1/admin/moderation/cases';
const BATCHES = '/v1/admin/moderation/batches';
const root = newAuthor();
/** How far the clock of the node is moved forward, in milliseconds. */
let ahead = 0;
let node: TestNode;
let api: Api;
let client: RawClient;

beforeAll(async () => {
  node = await startTestNode({
    env: { MINATO_ADMIN_PUBKEYS: root.pubkey },
    now: () => Date.now() + ahead,
  });
  api = createApi(node.http);
  client = await RawClient.connect(node.url);
  await eventually('the index is there', async () =>
    (await api.ask('GET', '/v1/search?q=anything')).status === 200 ? true : undefined,
  );
});
afterAll(async () => {
  await client.close();
  await node.close();
});
afterEach(() => {
  ahead += 10;
});

type Row = Record<string, unknown>;
async function done<T = Row>(method: string, path: string, body?: unknown, as: Author = root): Promise<T> {
  const answer = await api.ask<T>(method, path, { as, ...(body === undefined ? {} : { body }) });
  expect({ status: answer.status, body: answer.body }).toEqual({
    status: expect.toSatisfy((status: number) => status < 300),
    body: expect.anything(),
  });
  return answer.body;
}

let posted = 0;
const post = async (draft: Draft = {}, author: Author = newAuthor()): Promise<NostrEvent> => {
  posted += 1;
  const event = sign(author, { content: `note ${posted}`, ...draft });
  expect(await client.publish(event)).toEqual([true, '']);
  return event;
};
const served = async ({ id }: { id: string }) => (await client.query({ ids: [id] })).events.length === 1;
const areServed = (events: readonly NostrEvent[]) => Promise.all(events.map(served));

interface Batch extends Row {
  readonly batch_id: string;
  readonly status: string;
  readonly outcomes: Record<string, number>;
}
const over = (id: string, status: string) =>
  eventually(`the batch is ${status}`, async () => {
    const found = await done<Batch>('GET', `${BATCHES}/${id}`);
    const isWaiting = Object.keys(found.outcomes).some((what) => what.endsWith(': waiting'));
    return found.status === status && !isWaiting ? found : undefined;
  });
const undo = async (id: string) => {
  await done<Batch>('POST', `${BATCHES}/${id}/undo`);
  return over(id, 'undone');
};

// ── Cases ──────────────────────────────────────────────────────────────────────────────────────────────────

interface Case extends Row {
  readonly case_id: string;
  readonly status: string;
  readonly actions: Row[];
  readonly labels: Row[];
}
const openCase = (event: NostrEvent) => done<Case>('POST', CASES, { event_id: event.id });
const statusOf = async ({ case_id: id }: Case) => (await done<Case>('GET', `${CASES}/${id}`)).status;
const statusesOf = (cases: readonly Case[]) => Promise.all(cases.map(statusOf));
const act = (one: Case, action: string, more: Row = {}) =>
  done<Row>('POST', `${CASES}/${one.case_id}/actions`, { action, ...more });

interface Acted {
  readonly batch_id: string;
  readonly items: { readonly refused: string | null }[];
}
const actOnAll = (cases: readonly Case[], action: string, more: Row = {}) =>
  done<Acted>('POST', `${CASES}/actions`, { case_ids: cases.map(({ case_id: id }) => id), action, ...more });
const refusals = ({ items }: Acted) => items.map(({ refused }) => refused);

describe('an action on many cases', () => {
  it('removes their events; undoing it restores each event and each case status', async () => {
    const events = [await post(), await post(), await post()] as const;
    const cases = [await openCase(events[0]), await openCase(events[1]), await openCase(events[2])] as const;
    // One was removed before, one was dismissed.
    await act(cases[1], 'remove');
    await act(cases[2], 'dismiss');
    const acted = await actOnAll(cases, 'remove', { note: 'a wave' });
    expect(refusals(acted)).toEqual([null, null, null]);
    expect(await areServed(events)).toEqual([false, false, false]);
    expect(await statusesOf(cases)).toEqual(['resolved', 'resolved', 'resolved']);
    expect(await over(acted.batch_id, 'done')).toMatchObject({
      action: 'remove',
      looked_at: 3,
      matched: 3,
      note: 'a wave',
      actor: root.pubkey,
    });
    expect((await undo(acted.batch_id)).outcomes).toEqual({ 'remove: removed': 3, 'restore: restored': 2 });
    expect(await areServed(events), 'what was removed before stays so').toEqual([true, false, true]);
    expect(await statusesOf(cases)).toEqual(['open', 'resolved', 'dismissed']);
    await api.refused(409, 'STATUS_CONFLICT', 'POST', `${BATCHES}/${acted.batch_id}/undo`, { as: root });
  });

  it('restores events; undoing it removes them again', async () => {
    const events = [await post(), await post()] as const;
    const cases = [await openCase(events[0]), await openCase(events[1])] as const;
    await act(cases[0], 'remove');
    const acted = await actOnAll(cases, 'restore');
    expect(await areServed(events)).toEqual([true, true]);
    await undo(acted.batch_id);
    expect(await areServed(events), 'what was served before stays so').toEqual([false, true]);
    expect(await statusesOf(cases)).toEqual(['resolved', 'open']);
  });

  it('dismisses and reopens; undoing it keeps later decisions about a case', async () => {
    const events = [await post(), await post(), await post()] as const;
    const cases = [await openCase(events[0]), await openCase(events[1]), await openCase(events[2])] as const;
    await act(cases[2], 'remove');
    const dismissed = await actOnAll(cases, 'dismiss');
    expect(refusals(dismissed)).toEqual([null, null, 'STATUS_CONFLICT']);
    const reopened = await actOnAll(cases, 'reopen');
    expect(await statusesOf(cases)).toEqual(['open', 'open', 'open']);
    await undo(reopened.batch_id);
    expect(await statusesOf(cases)).toEqual(['dismissed', 'dismissed', 'resolved']);
    await act(cases[0], 'reopen');
    await act(cases[0], 'dismiss');
    // Another case about the same event is open now.
    await openCase(events[1]);
    await undo(dismissed.batch_id);
    expect(await statusesOf(cases)).toEqual(['dismissed', 'dismissed', 'resolved']);
  });

  it('labels and unlabels events and people; undoing it gives back the earlier labels', async () => {
    const event = await post();
    const person = await done<Case>('POST', CASES, { pubkey: newAuthor().pubkey });
    const cases = [await openCase(event), person];
    const label = { label: { label: 'spam', confidence: 0.7, days: 30 } };
    const held = async () => {
      const found = await Promise.all(cases.map(({ case_id: id }) => done<Case>('GET', `${CASES}/${id}`)));
      return found.map(({ labels }) => labels.filter(({ withdrawn_at: at }) => at === null).length);
    };
    const labelled = await actOnAll(cases, 'label', label);
    expect(await held()).toEqual([1, 1]);
    expect(refusals(await actOnAll(cases, 'label', label))).toEqual(['STATUS_CONFLICT', 'STATUS_CONFLICT']);
    await undo(labelled.batch_id);
    expect(await held()).toEqual([0, 0]);
    await actOnAll(cases, 'label', label);
    const unlabelled = await actOnAll(cases, 'unlabel', label);
    expect(await held()).toEqual([0, 0]);
    await undo(unlabelled.batch_id);
    expect(await held()).toEqual([1, 1]);
  });

  it('bans; undoing it unbans only those whom it banned, and the reverse for unban', async () => {
    const people = [newAuthor(), newAuthor()] as const;
    const open = (author: Author) => done<Case>('POST', CASES, { pubkey: author.pubkey });
    const cases = [await open(people[0]), await open(people[1])] as const;
    await act(cases[1], 'ban');
    const isBanned = async () => {
      const { items } = await done<{ items: Row[] }>('GET', '/v1/admin/blocks/authors?limit=200');
      return people.map(({ pubkey }) => items.some((block) => Object.values(block).includes(pubkey)));
    };
    const banned = await actOnAll(cases, 'ban', { note: 'a ring' });
    expect(refusals(banned)).toEqual([null, 'STATUS_CONFLICT']);
    expect(await isBanned()).toEqual([true, true]);
    await undo(banned.batch_id);
    expect(await isBanned()).toEqual([false, true]);
    await eventually('the ban has ended on the relay', async () =>
      (await client.publish(sign(people[0], { content: 'back' })))[0] ? true : undefined,
    );
    const unbanned = await actOnAll(cases, 'unban');
    expect(refusals(unbanned)).toEqual(['NOT_FOUND', null]);
    await undo(unbanned.batch_id);
    expect(await isBanned()).toEqual([false, true]);
  });

  it('makes no batch when all of it is refused', async () => {
    const event = await post();
    const one = await openCase(event);
    expect(await actOnAll([one], 'reopen')).toMatchObject({
      batch_id: null,
      items: [{ refused: 'STATUS_CONFLICT' }],
    });
  });

  it('skips a case that has changed since the selection, and stops once it is undone', async () => {
    const { actInBatch, openCaseBatch } = await import('../../src/moderation/case-batches.sql.js');
    const cases = [await openCase(await post()), await openCase(await post())] as const;
    const { pool } = node.database;
    const community = node.node.communities.find(undefined, undefined)!.id;
    const events = node.node.store.stored;
    const same = {
      community,
      action: 'dismiss' as const,
      note: '',
      label: undefined,
      privateKinds: [],
      events,
    };
    const ids = cases.map(({ case_id: id }) => id);
    const batch = await openCaseBatch(pool, { ...same, caseIds: ids }, Date.now());
    const one = (caseId: string) => actInBatch(pool, batch, { ...same, caseId }, { fixed: [] }, Date.now());
    await act(cases[0], 'dismiss');
    await act(cases[0], 'reopen');
    await act(cases[0], 'remove');
    expect(await one(ids[0]!)).toMatchObject({ denied: 'STATUS_CONFLICT' });
    await undo(batch.batchId);
    expect(await one(ids[1]!)).toMatchObject({ denied: 'STATUS_CONFLICT' });
    expect(await statusesOf(cases)).toEqual(['resolved', 'open']);
  });
});

// ── Selection by search ────────────────────────────────────────────────────────────────────────────────────

interface Preview extends Row {
  readonly as_of: number;
  readonly matched: number;
}
const preview = (body: Row) => done<Preview>('POST', `${BATCHES}/preview`, body);
const start = async (body: Row) => over((await done<Batch>('POST', BATCHES, body)).batch_id, 'done');

describe('a batch by a search', () => {
  it('is previewed, removed and undone; events that arrived after the preview are left out', async () => {
    const word = `quokka${posted}`;
    const found = [
      await post({ content: `two ${word}s sleep` }),
      await post({ content: `the ${word}, again` }),
    ];
    const others = [await post({ content: `a ${word} in a novel` }), await post()];
    const selection = { conditions: { search: `${word} -novel` }, action: 'remove' };
    const seen = await preview(selection);
    expect(seen).toMatchObject({
      looked_at: 2,
      matched: 2,
      stopped_early: false,
      index: { behind: 0, rebuilding: false },
      kinds: [{ kind: 1, events: 2 }],
    });
    ahead += 10;
    const later = await post({ content: `one more ${word}` });
    const batch = await start({ ...selection, as_of: seen.as_of, note: 'a wave' });
    expect(batch).toMatchObject({
      matched: 2,
      as_of: seen.as_of,
      index: { behind: 0, rebuilding: false },
      conditions: selection.conditions,
      outcomes: { 'remove: removed': 2 },
    });
    expect(await areServed([...found, ...others, later])).toEqual([false, false, true, true, true]);
    await undo(batch.batch_id);
    expect(await areServed(found)).toEqual([true, true]);
    const { rows } = await node.database.pool.query(
      `SELECT 1 FROM moderation_batches WHERE conditions ?| ARRAY['ids', 'cases'] AND status = 'undone'`,
    );
    expect(rows, 'what was undone keeps no list').toEqual([]);
  });

  it('can have other conditions too, and holds events with a case each, or labels them', async () => {
    const word = `numbat${posted}`;
    const author = newAuthor();
    const [own, other] = [await post({ content: word }, author), await post({ content: word })] as const;
    const conditions = { search: word, authors: [author.pubkey] };
    expect(await preview({ conditions, action: 'hold' })).toMatchObject({ matched: 1 });
    const held = await start({ conditions, action: 'hold', as_of: Date.now() + ahead });
    expect(held.outcomes).toEqual({ 'remove: removed': 1 });
    expect(await areServed([own, other])).toEqual([false, true]);
    const { items } = await done<{ items: Row[] }>('GET', `${CASES}?status=held`);
    expect(items.map(({ target_event: id }) => id)).toContain(own.id);
    const label = { label: 'spam' };
    const labelled = await start({
      conditions: { search: word },
      action: 'label',
      label,
      as_of: Date.now() + ahead,
    });
    expect(labelled.outcomes, 'what is held is not found').toEqual({ 'label: done': 1 });
    await undo(labelled.batch_id);
    await undo(held.batch_id);
    expect(await areServed([own, other])).toEqual([true, true]);
  });

  it('selects at its start, in several portions, and skips events that were deleted since', async () => {
    const { startBatch, stepBatch, findBatch } = await import('../../src/moderation/batches.sql.js');
    const author = newAuthor();
    const events = [await post({}, author), await post({}, author), await post({}, author)];
    const { pool } = node.database;
    const community = node.node.communities.find(undefined, undefined)!;
    const unknown = Array.from({ length: 450 }, (_, at) => at.toString(16).padStart(64, '0'));
    const found = {
      ids: [events[0]!.id, ...unknown, events[1]!.id, events[2]!.id],
      isMore: true,
      behind: 7,
      isRebuilding: false,
    };
    expect(await client.publish(sign(author, { kind: 5, tags: [['e', events[2]!.id]] }))).toEqual([true, '']);
    const now = Date.now() + ahead;
    const spec = { action: 'remove' as const, conditions: { search: 'x' }, byRule: false, note: '', found };
    const started = await startBatch(pool, { community: community.id }, spec, now);
    if ('denied' in started) throw new Error(started.denied);
    while (await stepBatch(pool, node.node.store.stored, () => community.settings, now));
    await over(started.batchId, 'done');
    expect(await findBatch(pool, community.id, started.batchId)).toMatchObject({
      lookedAt: 453,
      matched: 2,
      stoppedEarly: true,
      conditions: { search: 'x', index: { behind: 7, rebuilding: false } },
    });
    expect(await areServed(events)).toEqual([false, false, false]);
  });

  it('needs as_of to start, and words to search for', async () => {
    const selection = { conditions: { search: 'anything' }, action: 'remove' };
    await api.refused(400, 'INVALID_REQUEST', 'POST', BATCHES, { as: root, body: selection });
    const nothing = { conditions: { search: '   ' }, action: 'remove', as_of: Date.now() };
    await api.refused(400, 'INVALID_REQUEST', 'POST', BATCHES, { as: root, body: nothing });
    const rule = { name: 'by search', action: 'hide', conditions: { search: 'anything' } };
    await api.refused(400, 'INVALID_REQUEST', 'POST', '/v1/admin/moderation/rules', { as: root, body: rule });
  });

  it('reports how far the index is behind', async () => {
    const word = `bilby${posted}`;
    await post({ content: word });
    await node.node.consumers!.drained();
    await done('POST', '/v1/admin/consumers/search/pause');
    const community = node.node.communities.find(undefined, undefined)!.id;
    // A search reads at most a thousand changes ahead of the index.
    const draft = { kind: 1, pubkey: root.pubkey, created_at: Math.floor(Date.now() / 1_000) };
    const many = Array.from({ length: 1_050 }, (_, at) => unsigned({ ...draft, content: `many ${at}` }));
    await Promise.all(
      many.map((event) => node.node.store.submit({ community, event, payload: serializeEvent(event) })),
    );
    const selection = { conditions: { search: word }, action: 'remove' };
    const seen = await preview(selection);
    expect(seen).toMatchObject({ matched: 1, index: { behind: expect.any(Number) } });
    const { behind } = seen.index as { behind: number };
    expect(behind).toBeGreaterThanOrEqual(50);
    const batch = await start({ ...selection, as_of: seen.as_of });
    expect(batch).toMatchObject({ matched: 1, index: { behind, rebuilding: false } });
    await done('POST', '/v1/admin/consumers/search/resume');
    await node.node.consumers!.drained();
    expect(await preview(selection)).toMatchObject({ matched: 0, index: { behind: 0 } });
  });
});
