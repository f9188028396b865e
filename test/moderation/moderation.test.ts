/**
 * Moderation over real HTTP and sockets, on two instances: rules, cases, removing, restoring and labels.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { noteEncode, npubEncode } from 'nostr-tools/nip19';
import { verifyEvent } from 'nostr-tools/pure';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { PURGE_REMOVED_SQL } from '../../src/events/postgres/sweeps.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { requestTopic } from '../../src/topics/requests.sql.js';
import { requestRules } from '../../src/topics/rules-requests.js';
import { eventually } from '../support/cli.js';
import { type Api, createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { writeTopic } from '../support/domains/topics.js';
import { type Author, type Draft, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const RULES = '/v1/admin/moderation/rules';
const CASES = '/v1/admin/moderation/cases';
const root = newAuthor();
/** How far the clock of the nodes is moved forward, in milliseconds. */
let ahead = 0;
const now = () => Date.now() + ahead;
let folder: string;
let first: TestNode;
let second: TestNode;
let api: Api;
let client: RawClient;
let far: RawClient;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-moderation-'));
  const env = { MINATO_ADMIN_PUBKEYS: root.pubkey, MINATO_DATA_DIR: folder };
  first = await startTestNode({ env, now });
  second = await startTestNode({ env, now, on: first.test, roles: ['relay', 'api'] });
  api = createApi(first.http);
  client = await RawClient.connect(first.url);
  far = await RawClient.connect(second.url);
});
afterAll(async () => {
  await client.close();
  await far.close();
  await second.close();
  await first.close();
  await rm(folder, { recursive: true });
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

interface Rule extends Row {
  readonly rule_id: string;
  readonly version: number;
  readonly enabled: boolean;
}
let made = 0;
const write = (rule: Row) => {
  made += 1;
  return done<Rule>('POST', RULES, { name: `rule ${made}`, ...rule });
};
const attempt = (ruleId: string, last = 100) => done<Row>('POST', `${RULES}/try`, { rule_id: ruleId, last });
const change = (ruleId: string, body: Row) => done<Rule>('PATCH', `${RULES}/${ruleId}`, body);
/** Tries and enables a rule, and waits until both instances know it. */
async function enable(rule: Row): Promise<Rule> {
  const { rule_id: id } = await write(rule);
  await attempt(id);
  const enabled = await change(id, { enabled: true });
  if (rule.action === 'refuse')
    await eventually('the rule is at both doors', () =>
      [first, second].every(({ node }) =>
        node.communities.all()[0]!.rules.deciding.some((one) => one.rule.ruleId === id),
      )
        ? true
        : undefined,
    );
  return enabled;
}
afterEach(async () => {
  const { items } = await done<{ items: Rule[] }>('GET', RULES);
  for (const { rule_id: id } of items) await done('DELETE', `${RULES}/${id}`);
  await eventually('no rule is loaded', () =>
    [first, second].every(({ node }) => node.communities.all()[0]!.rules.deciding.length === 0)
      ? true
      : undefined,
  );
});

let posted = 0;
const post = async (draft: Draft = {}, author: Author = newAuthor(), by = client): Promise<NostrEvent> => {
  posted += 1;
  const event = sign(author, { content: `note ${posted}`, ...draft });
  expect(await by.publish(event)).toEqual([true, '']);
  return event;
};
const served = async ({ id }: { id: string }, by = client) =>
  (await by.query({ ids: [id] })).events.length === 1;
const until = (what: string, look: () => Promise<boolean>) =>
  eventually(what, async () => ((await look()) ? true : undefined));
const waitUntilHidden = async (event: { id: string }) => {
  await until('it is hidden', async () => !(await served(event)));
  await until('it is hidden on the other instance', async () => !(await served(event, far)));
};

interface Case extends Row {
  readonly case_id: string;
  readonly status: string;
  readonly reports: number;
  readonly actions: Row[];
  readonly labels: Row[];
}
const casesAbout = async (target: string) =>
  (await done<{ items: Case[] }>('GET', `${CASES}?limit=200`)).items.filter(
    ({ target_event: event, target_pubkey: key }) => event === target || (event === null && key === target),
  );
const caseAbout = (target: string) =>
  eventually(`a case about ${target}`, async () => (await casesAbout(target))[0]);
const whole = (id: string) => done<Case>('GET', `${CASES}/${id}`);
const act = (id: string, action: string, more: Row = {}) =>
  done<Row>('POST', `${CASES}/${id}/actions`, { action, ...more });
const labelEvents = async (target: { id: string }, by = client) =>
  (await by.query({ kinds: [1_985, 39_006], '#e': [target.id] })).events as NostrEvent[];
const drained = () => first.node.consumers!.drained();

describe('a rule', () => {
  it('is enabled only after its current version was tried', async () => {
    const rule = await write({ action: 'hide', conditions: { words: ['casino'] } });
    const path = `${RULES}/${rule.rule_id}`;
    const enabling = { as: root, body: { enabled: true } };
    await api.refused(409, 'RULE_NOT_TRIED', 'PATCH', path, enabling);
    await attempt(rule.rule_id);
    expect((await change(rule.rule_id, { enabled: true })).enabled).toBe(true);
    const changed = await change(rule.rule_id, { conditions: { words: ['roulette'] } });
    expect(changed).toMatchObject({ enabled: false, version: 2, tried_version: 1 });
    await api.refused(409, 'RULE_NOT_TRIED', 'PATCH', path, enabling);
    expect(await change(rule.rule_id, { priority: 5 }), 'no other version').toMatchObject({ version: 2 });
  });

  it('when tried returns what it would have matched, by author and kind, and does nothing', async () => {
    const author = newAuthor();
    const word = `zebra${posted}`;
    const met = [await post({ content: `a ${word}` }, author), await post({ content: `${word}!` }, author)];
    await post({ content: `${word}x` }, author);
    const rule = { name: 'tried', action: 'refuse', conditions: { words: [word.toUpperCase()] } };
    const trial = await done<{ samples: Row[] } & Row>('POST', `${RULES}/try`, { rule, last: 10_000 });
    expect(trial).toMatchObject({
      met: 2,
      authors: [{ pubkey: author.pubkey, events: 2 }],
      kinds: [{ kind: 1, events: 2 }],
      tried_version: null,
    });
    expect(trial.samples.map(({ event_id: id }) => id).sort()).toEqual(met.map(({ id }) => id).sort());
    expect(await served(met[0]!)).toBe(true);
  });

  it('is tried by one community only twice at the same time; another community can still try', async () => {
    const { pool } = first.database;
    const other = await addCommunity(pool, 'trials', undefined, Date.now());
    await until('the community is known', async () => first.node.communities.get(other) !== undefined);
    const rule = { name: 'tried', action: 'refuse', conditions: { words: ['zebra'] } };
    const trial = async (path = '') =>
      (await api.ask('POST', `${path}${RULES}/try`, { as: root, body: { rule, last: 10 } })).status;
    const holder = await pool.connect();
    await holder.query('BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE');
    try {
      const trials = [trial(), trial(), trial()];
      expect(await Promise.race(trials)).toBe(429);
      trials.push(trial('/c/trials'));
      await holder.query('COMMIT');
      expect((await Promise.all(trials)).sort()).toEqual([200, 200, 200, 429]);
    } finally {
      holder.release(true);
    }
    expect(await trial()).toBe(200);
  });

  it('with patterns costs the sender of a post the work of matching them', async () => {
    const address = '198.51.100.40';
    const sender = await RawClient.connect(first.url, { 'x-forwarded-for': address });
    const isBusy = () => first.node.work.isBusy({ rateKey: address, networkKey: address });
    const burst = async () => {
      const events = Array.from({ length: 28 }, (_, at) =>
        sign(newAuthor(), { content: `${'abc '.repeat(2_000)}${at}` }),
      );
      const answered = sender.frames.length + events.length;
      for (const event of events) sender.send(['EVENT', event]);
      let wasBusy = false;
      await until('all are answered', async () => {
        wasBusy ||= isBusy();
        return sender.frames.length >= answered;
      });
      return wasBusy;
    };
    expect(await burst()).toBe(false);
    await enable({ action: 'refuse', conditions: { patterns: ['[a-f]{400}x'] } });
    expect(await burst()).toBe(true);
    await sender.close();
  });

  it('with a bad pattern, no condition, or a needless label is refused with a reason', async () => {
    const refuse = async (rule: Row) =>
      JSON.stringify(
        (await api.refused(400, 'INVALID_REQUEST', 'POST', RULES, { as: root, body: { name: 'x', ...rule } }))
          .body.details,
      );
    expect(await refuse({ action: 'hide', conditions: { patterns: ['(?=a)'] } })).toContain('cannot be read');
    expect(await refuse({ action: 'hide', conditions: {} })).toContain('at least one condition');
    expect(await refuse({ action: 'label', conditions: { kinds: [1] } })).toContain('needs a label');
  });

  it('refuses on every instance before storing, but no deletion', async () => {
    const author = newAuthor();
    const before = await post({ content: 'buy gold' }, author);
    await enable({ action: 'refuse', conditions: { patterns: ['(?i)buy\\s+gold'] } });
    for (const by of [client, far])
      expect(await by.publish(sign(author, { content: `Buy  GOLD ${Math.random()}` }))).toEqual([
        false,
        'blocked: refused by a rule of this community',
      ]);
    await post({ kind: 5, content: 'buy gold', tags: [['e', before.id]] }, author);
    await post({ content: 'buy silver' }, author);
  });

  it('is not applied to an event with a bad signature', async () => {
    await enable({ action: 'refuse', conditions: { patterns: ['forged'] } });
    const event = sign(newAuthor(), { content: 'forged' });
    const forged = { ...event, sig: sign(newAuthor()).sig };
    expect(await client.publish(forged)).toEqual([false, 'invalid: signature verification failed']);
    expect(await client.publish(event)).toEqual([false, 'blocked: refused by a rule of this community']);
  });

  it('is not enabled when all enabled patterns together would take too many steps', async () => {
    const patterns = (count: number) => Array.from({ length: count }, (_, at) => `x{480}${at}`);
    const { rule_id: id } = await enable({ action: 'hide', conditions: { patterns: patterns(5) } });
    const next = await write({
      action: 'label',
      label: { label: 'spam' },
      conditions: { patterns: patterns(2) },
    });
    await attempt(next.rule_id);
    const path = `${RULES}/${next.rule_id}`;
    const refused = await api.refused(409, 'RULE_STEPS_EXCEEDED', 'PATCH', path, {
      as: root,
      body: { enabled: true },
    });
    expect(refused.body.details).toMatchObject({ limit: 3_000 });
    await change(id, { enabled: false });
    expect(await change(next.rule_id, { enabled: true })).toMatchObject({ enabled: true });
    expect(await change(next.rule_id, { priority: 1 })).toMatchObject({ enabled: true });
  });

  it('that refuses by a rate counts only accepted events, whoever sends them again', async () => {
    const author = newAuthor();
    await enable({ action: 'refuse', conditions: { kinds: [7_007], rate: { count: 2, seconds: 3_600 } } });
    const old = await post({ kind: 7_007 }, author);
    await post({ kind: 5, tags: [['e', old.id]] }, author);
    for (let times = 0; times < 3; times += 1)
      expect(await client.publish(old)).toEqual([false, 'blocked: deleted by its author']);
    await post({ kind: 7_007 }, author);
    expect(await client.publish(sign(author, { kind: 7_007, content: 'more' }))).toEqual([
      false,
      'blocked: refused by a rule of this community',
    ]);
  });

  it('with a rate refuses only the author who exceeds it, over all instances', async () => {
    const author = newAuthor();
    await enable({ action: 'refuse', conditions: { kinds: [7_001], rate: { count: 2, seconds: 3_600 } } });
    await post({ kind: 7_001 }, author);
    await post({ kind: 7_001 }, author, far);
    const refused = [false, 'blocked: refused by a rule of this community'];
    for (const by of [client, far])
      expect(await by.publish(sign(author, { kind: 7_001, content: `${Math.random()}` }))).toEqual(refused);
    await post({ kind: 7_002 }, author);
    await post({ kind: 7_001 });
  });

  it('holds an event until a moderator restores it, and then leaves it alone', async () => {
    const rule = await enable({ action: 'hold', conditions: { tags: [{ name: 'x', values: ['odd'] }] } });
    const event = await post({ tags: [['x', 'odd']] });
    const other = await post({ tags: [['x', 'even']] });
    await waitUntilHidden(event);
    const { case_id: id } = await caseAbout(event.id);
    expect(await whole(id)).toMatchObject({
      status: 'held',
      rule_id: rule.rule_id,
      event: { id: event.id, content: event.content },
      actions: [{ action: 'remove', outcome: 'removed', rule_id: rule.rule_id, actor: null }],
    });
    await api.refused(409, 'STATUS_CONFLICT', 'POST', `${CASES}/${id}/actions`, {
      as: root,
      body: { action: 'dismiss' },
    });
    expect(await act(id, 'restore', { note: 'it is fine' })).toMatchObject({ outcome: 'restored' });
    await until('it is back', () => served(event));
    await until('it is back on the other instance', () => served(event, far));
    await drained();
    expect(await served(event)).toBe(true);
    expect((await whole(id)).status).toBe('resolved');
    expect(await served(other)).toBe(true);
  });

  it('hides an event, and its case is resolved', async () => {
    await enable({ action: 'hide', conditions: { kinds: [1], words: ['viagra'] } });
    const event = await post({ content: 'V\u200biagra' });
    await waitUntilHidden(event);
    expect(await caseAbout(event.id)).toMatchObject({
      status: 'resolved',
      reason: expect.stringMatching(/^rule: /),
    });
    expect(await client.publish(event)).toEqual([false, 'blocked: removed by a moderator']);
  });

  it('with a rate acts on events beyond it', async () => {
    await enable({ action: 'hide', conditions: { kinds: [7_003], rate: { count: 2, seconds: 600 } } });
    const author = newAuthor();
    const events = [];
    for (let at = 0; at < 4; at += 1) events.push(await post({ kind: 7_003 }, author));
    await waitUntilHidden(events[2]!);
    await waitUntilHidden(events[3]!);
    expect(await Promise.all(events.map((event) => served(event)))).toEqual([true, true, false, false]);
  });

  it('of a higher priority applies first: its label is put, and its decision ends the rest', async () => {
    const conditions = { kinds: [7_004] };
    const nsfw = { label: 'nsfw', confidence: 0.9, days: 7, policy: 'rule 3' };
    await enable({ action: 'label', priority: 3, conditions, label: nsfw });
    await enable({ action: 'hold', priority: 2, conditions });
    await enable({ action: 'refuse', priority: 1, conditions });
    await enable({ action: 'label', priority: 0, conditions, label: { label: 'spam' } });
    const event = await post({ kind: 7_004 });
    await waitUntilHidden(event);
    const { case_id: id } = await caseAbout(event.id);
    const found = await eventually('it is labelled', async () => {
      const now = await whole(id);
      return now.labels.length > 0 ? now : undefined;
    });
    expect(found.status).toBe('held');
    expect(found.labels).toMatchObject([{ label: 'nsfw', confidence: 0.9, policy: 'rule 3' }]);
  });
});

describe('a label', () => {
  it('is published as events that verify, with the topics of its target, until it lapses', async () => {
    await enable({
      action: 'label',
      conditions: { kinds: [7_005] },
      label: { label: 'spam', confidence: 0.8, days: 2 },
    });
    const event = await post({ kind: 7_005, tags: [['t', 'harbour']] });
    const published = await eventually('both events of the label', async () => {
      const found = await labelEvents(event, far);
      return found.length === 2 ? found : undefined;
    });
    expect(published.every((one) => verifyEvent(JSON.parse(JSON.stringify(one))))).toBe(true);
    expect(new Set(published.map(({ pubkey }) => pubkey)).size).toBe(1);
    const label = published.find(({ kind }) => kind === 1_985)!;
    const claim = published.find(({ kind }) => kind === 39_006)!;
    const lapses = String(label.created_at + 2 * 86_400);
    expect(label.tags).toEqual([
      ['L', 'minato.moderation'],
      ['l', 'spam', 'minato.moderation'],
      ['e', event.id],
      ['t', 'harbour'],
      ['expiration', lapses],
    ]);
    expect(claim.tags).toEqual(
      expect.arrayContaining([
        ['d', `${event.id}:spam`],
        ['label', 'spam'],
        ['confidence', '0.8'],
        ['exp', lapses],
        ['t', 'harbour'],
      ]),
    );
    expect(await served(event), 'labelling removes nothing').toBe(true);
    for (const target of [event.id, noteEncode(event.id)])
      expect(await done('GET', `/v1/labels?target=${target}`)).toMatchObject({
        target_event: event.id,
        shown: true,
        labels: [{ label: 'spam', confidence: 0.8, label_event: label.id }],
      });
  });

  it('is put and withdrawn by a moderator, also on a person, and put again', async () => {
    const person = newAuthor();
    const { case_id: id } = await done<Case>('POST', CASES, { pubkey: person.pubkey, note: 'looks odd' });
    const about = () =>
      done<Row & { labels: Row[] }>('GET', `/v1/labels?target=${npubEncode(person.pubkey)}`);
    const eventsAbout = async () =>
      (await client.query({ kinds: [1_985, 39_006], '#p': [person.pubkey] })).events.length;
    const label = { label: 'impersonation' };
    await act(id, 'label', { label });
    await api.refused(409, 'STATUS_CONFLICT', 'POST', `${CASES}/${id}/actions`, {
      as: root,
      body: { action: 'label', label },
    });
    await until('it is published', async () => (await eventsAbout()) === 2);
    expect((await about()).labels).toMatchObject([label]);
    await act(id, 'unlabel', { label });
    await until('it is withdrawn', async () => (await eventsAbout()) === 0);
    expect((await about()).labels).toEqual([]);
    await act(id, 'label', { label });
    await until('it is published again', async () => (await eventsAbout()) === 2);
  });
});

describe('a batch', () => {
  const BATCHES = '/v1/admin/moderation/batches';
  interface Batch extends Row {
    readonly batch_id: string;
    readonly status: string;
    readonly outcomes: Record<string, number>;
  }
  const isWaiting = ({ outcomes }: Batch) => Object.keys(outcomes).some((what) => what.endsWith('waiting'));
  const over = (id: string, status: string) =>
    eventually(`the batch is ${status}`, async () => {
      const found = await done<Batch>('GET', `${BATCHES}/${id}`);
      return found.status === status && !isWaiting(found) ? found : undefined;
    });
  const start = async (body: Row) => over((await done<Batch>('POST', BATCHES, body)).batch_id, 'done');
  const undo = async (id: string) => {
    await done<Batch>('POST', `${BATCHES}/${id}/undo`);
    return over(id, 'undone');
  };
  const areServed = (events: readonly NostrEvent[]) => Promise.all(events.map((event) => served(event)));

  it('applies a rule to stored events after a preview, and is undone as a whole', async () => {
    const word = `okapi${posted}`;
    const author = newAuthor();
    const [one, two, other] = [
      await post({ content: `an ${word}` }, author),
      await post({ content: `two ${word}` }),
      await post(),
    ] as const;
    const rule = await write({ action: 'hold', conditions: { words: [word] } });
    const selection = { rule_id: rule.rule_id };
    expect(await done('POST', `${BATCHES}/preview`, selection)).toMatchObject({
      matched: 2,
      stopped_early: false,
      kinds: [{ kind: 1, events: 2 }],
    });
    expect(await areServed([one, two, other]), 'a preview does nothing').toEqual([true, true, true]);
    const batch = await start(selection);
    expect(batch).toMatchObject({ action: 'hold', matched: 2, outcomes: { 'remove: removed': 2 } });
    expect(await areServed([one, two, other])).toEqual([false, false, true]);
    expect((await casesAbout(one.id))[0]).toMatchObject({ status: 'held' });
    // An event that its author deletes meanwhile is not restored, and is counted.
    expect(await client.publish(sign(author, { kind: 5, tags: [['e', one.id]] }))).toEqual([true, '']);
    const undone = await undo(batch.batch_id);
    expect(undone.outcomes).toEqual({ 'remove: removed': 2, 'restore: deleted': 1, 'restore: restored': 1 });
    expect(await areServed([one, two, other])).toEqual([false, true, true]);
    expect((await casesAbout(two.id))[0]).toMatchObject({ status: 'resolved' });
    await api.refused(409, 'STATUS_CONFLICT', 'POST', `${BATCHES}/${batch.batch_id}/undo`, { as: root });
    expect((await start(selection)).matched, 'what was restored is not judged again').toBe(0);
  });

  it('removes all events of an author except deletions, and resolves cases until undone', async () => {
    const author = newAuthor();
    const events = [await post({}, author), await post({ kind: 0, content: '{}' }, author)];
    const request = await post({ kind: 5, tags: [['e', 'b'.repeat(64)]] }, author);
    const other = await post();
    await done('POST', '/v1/reports', { event_id: events[0]!.id, reason: 'spam' }, newAuthor());
    const person = await done<Case>('POST', CASES, { pubkey: author.pubkey });
    const batch = await start({ case_id: person.case_id, action: 'remove', note: 'a spammer' });
    expect(batch).toMatchObject({ matched: 2, outcomes: { 'remove: removed': 2 } });
    expect(await areServed([...events, request, other])).toEqual([false, false, true, true]);
    expect((await casesAbout(events[0]!.id))[0]).toMatchObject({ status: 'resolved' });
    await undo(batch.batch_id);
    expect(await areServed(events)).toEqual([true, true]);
    expect((await casesAbout(events[0]!.id))[0]).toMatchObject({ status: 'open' });
  });

  it('when undone keeps later decisions, and cannot be undone after undoDays', async () => {
    const author = newAuthor();
    const events = [await post({}, author), await post({}, author)];
    const batch = await start({ conditions: { authors: [author.pubkey] }, action: 'remove' });
    const again = await done<Case>('POST', CASES, { event_id: events[0]!.id });
    await act(again.case_id, 'restore');
    await act(again.case_id, 'remove');
    expect((await undo(batch.batch_id)).outcomes).toMatchObject({ 'restore: restored': 1 });
    expect(await areServed(events)).toEqual([false, true]);
    const late = await start({ conditions: { authors: [author.pubkey] }, action: 'remove' });
    await first.database.pool.query('UPDATE moderation_batches SET created_at = 1 WHERE batch_id = $1', [
      late.batch_id,
    ]);
    await api.refused(409, 'STATUS_CONFLICT', 'POST', `${BATCHES}/${late.batch_id}/undo`, { as: root });
  });

  it('labels matching events; undoing it withdraws the labels', async () => {
    const event = await post();
    const label = { label: 'spam', confidence: 0.7 };
    const batch = await start({ conditions: { authors: [event.pubkey] }, action: 'label', label });
    expect(batch.outcomes).toEqual({ 'label: done': 1 });
    await until('it is published', async () => (await labelEvents(event)).length === 2);
    await undo(batch.batch_id);
    await until('it is withdrawn', async () => (await labelEvents(event)).length === 0);
  });

  it('refuses what it cannot do, with the reason', async () => {
    const event = await post();
    const about = await done<Case>('POST', CASES, { event_id: event.id });
    const rated = await write({ action: 'hide', conditions: { kinds: [1], rate: { count: 1, seconds: 9 } } });
    for (const body of [{ case_id: about.case_id, action: 'remove' }, { rule_id: rated.rule_id }])
      await api.refused(409, 'STATUS_CONFLICT', 'POST', BATCHES, { as: root, body });
    for (const body of [{}, { conditions: { kinds: [1] } }, { conditions: { kinds: [1] }, action: 'label' }])
      await api.refused(400, 'INVALID_REQUEST', 'POST', BATCHES, { as: root, body });
  });

  it('releases what a deleted rule held and nobody decided about, and can be undone', async () => {
    const word = `lemur${posted}`;
    const rule = await enable({ action: 'hold', conditions: { words: [word] } });
    const [mistaken, decided] = [await post({ content: word }), await post({ content: word })] as const;
    await waitUntilHidden(mistaken);
    await waitUntilHidden(decided);
    await act((await caseAbout(decided.id)).case_id, 'remove');
    const { released } = await done<{ released: string }>('DELETE', `${RULES}/${rule.rule_id}`);
    expect((await over(released, 'done')).outcomes).toEqual({ 'restore: restored': 1 });
    expect(await areServed([mistaken, decided])).toEqual([true, false]);
    expect((await casesAbout(mistaken.id))[0]).toMatchObject({ status: 'resolved' });
    await undo(released);
    expect(await areServed([mistaken, decided])).toEqual([false, false]);
    expect((await casesAbout(mistaken.id))[0]).toMatchObject({ status: 'held' });
  });

  it('is not made when a rule is deleted with keep: what it held stays held', async () => {
    const word = `tapir${posted}`;
    const rule = await enable({ action: 'hold', conditions: { words: [word] } });
    const event = await post({ content: word });
    await waitUntilHidden(event);
    expect(await done('DELETE', `${RULES}/${rule.rule_id}?keep=true`)).toMatchObject({ released: null });
    await drained();
    expect([await served(event), (await caseAbout(event.id)).status]).toEqual([false, 'held']);
  });
});

describe('the author', () => {
  const OWN = '/v1/moderation';
  const APPEALS = `${OWN}/appeals`;
  const seenBy = async (author: Author) =>
    (await done<{ items: Row[] }>('GET', OWN, undefined, author)).items;

  it('sees a decision about an event, appeals once, and sees the outcome', async () => {
    const author = newAuthor();
    const event = await post({}, author);
    const opened = await done<Case>('POST', CASES, { event_id: event.id, note: 'a hint from somebody' });
    await act(opened.case_id, 'remove', { note: 'for moderators only' });
    const [removed] = await seenBy(author);
    expect(removed).toEqual({
      action: 'remove',
      event_id: event.id,
      at: expect.any(Number),
      by_a_rule: false,
      held: false,
      appeal: null,
    });
    expect(await seenBy(newAuthor()), 'nobody else sees it').toEqual([]);
    const text = 'it was a joke';
    const appeal = { event_id: event.id, text };
    await api.refused(404, 'NOT_FOUND', 'POST', APPEALS, { as: newAuthor(), body: appeal });
    await api.refused(404, 'NOT_FOUND', 'POST', APPEALS, { as: author, body: { text } });
    await done('POST', APPEALS, appeal, author);
    await api.refused(409, 'STATUS_CONFLICT', 'POST', APPEALS, { as: author, body: appeal });
    const waiting = await done<{ items: Case[] }>('GET', `${CASES}?appealed=true&author=${author.pubkey}`);
    expect(waiting.items).toMatchObject([{ case_id: opened.case_id, status: 'open', appeal: text }]);
    expect((await seenBy(author))[0]).toMatchObject({ appeal: { text, waiting: true } });
    expect(await served(event), 'it stays away until somebody decides').toBe(false);
    await act(opened.case_id, 'restore');
    expect(await seenBy(author)).toMatchObject([
      { action: 'restore', event_id: event.id },
      { action: 'remove', appeal: { text, waiting: false } },
    ]);
    const after = await done<{ items: Case[] }>('GET', `${CASES}?appealed=true&author=${author.pubkey}`);
    expect(after.items).toEqual([]);
    await api.refused(404, 'NOT_FOUND', 'POST', APPEALS, { as: author, body: appeal });
  });

  it('can appeal against a ban and a held event, which stays held', async () => {
    const author = newAuthor();
    const rule = { action: 'hold', conditions: { authors: [author.pubkey], words: ['gibbon'] } };
    await enable(rule);
    const event = await post({ content: 'gibbon' }, author);
    await waitUntilHidden(event);
    const { case_id: held } = await caseAbout(event.id);
    expect((await seenBy(author))[0]).toMatchObject({ action: 'remove', held: true, by_a_rule: true });
    await done('POST', APPEALS, { event_id: event.id, text: 'an ape' }, author);
    expect(await whole(held)).toMatchObject({ status: 'held', appeal: 'an ape' });
    await act(held, 'ban');
    await done('POST', APPEALS, { text: 'let me in' }, author);
    const [about] = await casesAbout(author.pubkey);
    expect(about).toMatchObject({ status: 'open', reason: 'appeal', appeal: 'let me in' });
    await act(held, 'unban');
    await act(held, 'remove');
    await act(about!.case_id, 'dismiss');
    expect((await seenBy(author)).map(({ action }) => action)).toEqual(['remove', 'unban', 'ban', 'remove']);
  });

  it('can appeal only a limited number of times a day', async () => {
    const author = newAuthor();
    const events: NostrEvent[] = [];
    for (let at = 0; at < 11; at += 1) events.push(await post({}, author));
    const opened = await Promise.all(events.map(({ id }) => done<Case>('POST', CASES, { event_id: id })));
    const ids = opened.map(({ case_id: id }) => id);
    await done('POST', `${CASES}/actions`, { case_ids: ids, action: 'remove' });
    for (const { id } of events.slice(1)) await done('POST', APPEALS, { event_id: id, text: 'no' }, author);
    await api.refused(429, 'RATE_LIMITED', 'POST', APPEALS, {
      as: author,
      body: { event_id: events[0]!.id, text: 'no' },
    });
  });
});

describe('a case', () => {
  it('is opened by a report, over HTTP or as kind 1984; reports about one target share it', async () => {
    const event = await post();
    const member = newAuthor();
    await done('POST', '/v1/reports', { event_id: event.id, reason: 'spam' }, member);
    await done('POST', '/v1/reports', { event_id: event.id, reason: 'spam' }, member);
    await post({
      kind: 1_984,
      tags: [
        ['e', event.id, 'illegal'],
        ['p', event.pubkey],
      ],
    });
    await until('both reports are in it', async () => (await casesAbout(event.id))[0]?.reports === 2);
    const found = await whole((await casesAbout(event.id))[0]!.case_id);
    expect(found).toMatchObject({ status: 'open', target_pubkey: event.pubkey, event: { id: event.id } });
    expect(await casesAbout(event.id)).toHaveLength(1);
    await act(found.case_id, 'dismiss', { note: 'no' });
    await drained();
    expect(await casesAbout(event.id), 'it does not return').toHaveLength(1);
    await done('POST', '/v1/reports', { event_id: event.id, reason: 'illegal' }, newAuthor());
    expect((await casesAbout(event.id)).map(({ status }) => status)).toEqual(['open', 'dismissed']);
    await api.refused(409, 'STATUS_CONFLICT', 'POST', `${CASES}/${found.case_id}/actions`, {
      as: root,
      body: { action: 'reopen' },
    });
  });

  it('is found by status, topic, author, reason, rule and age, separately and together', async () => {
    const author = newAuthor();
    const topic = `kukuri:cases${posted}`;
    const reported = await post({ tags: [['t', topic]] }, author);
    await done('POST', '/v1/reports', { event_id: reported.id, reason: 'malware' }, newAuthor());
    const rule = await enable({ action: 'hold', conditions: { authors: [author.pubkey], words: ['hold'] } });
    const held = await post({ content: 'hold', tags: [['t', topic]] }, author);
    await caseAbout(held.id);
    await first.database.pool.query(
      'UPDATE moderation_cases SET opened_at = opened_at - 60000 WHERE target_pubkey = $1',
      [Buffer.from(author.pubkey, 'hex')],
    );
    const start = now() - 60_000;
    const later = await post({}, author);
    await done('POST', '/v1/reports', { event_id: later.id, reason: 'spam' }, newAuthor());
    const found = async (query: string) =>
      (await done<{ items: Case[] }>('GET', `${CASES}?author=${author.pubkey}&${query}`)).items.map(
        ({ target_event: event }) => event,
      );
    expect(await found('')).toEqual([later.id, held.id, reported.id]);
    expect(await found(`topic=${topic}`)).toEqual([held.id, reported.id]);
    expect(await found('reason=malware')).toEqual([reported.id]);
    expect(await found(`rule_id=${rule.rule_id}`)).toEqual([held.id]);
    expect(await found('status=held')).toEqual([held.id]);
    expect(await found(`since=${start + 30_000}`)).toEqual([later.id]);
    expect(await found(`until=${start + 30_000}`)).toEqual([held.id, reported.id]);
    expect(await found(`topic=${topic}&status=open&reason=malware`)).toEqual([reported.id]);
    expect(await found(`topic=${topic}&reason=spam`)).toEqual([]);
    const everyones = await done<{ items: Case[] }>('GET', `${CASES}?topic=${topic}`);
    expect(everyones.items.map(({ topics }) => topics)).toEqual([[topic], [topic]]);
  });

  it('is decided with many others by one request, each with its own result', async () => {
    const events = [await post(), await post()];
    const opened = await Promise.all(events.map(({ id }) => done<Case>('POST', CASES, { event_id: id })));
    const person = await done<Case>('POST', CASES, { pubkey: newAuthor().pubkey });
    const unknown = '00000000-0000-4000-8000-000000000000';
    const ids = [...opened, person].map(({ case_id: id }) => id);
    const answer = await done<{ items: Row[] }>('POST', `${CASES}/actions`, {
      case_ids: [...ids, unknown],
      action: 'remove',
      note: 'a wave',
    });
    expect(answer.items).toMatchObject([
      { case_id: ids[0], action: { outcome: 'removed' }, refused: null },
      { case_id: ids[1], action: { outcome: 'removed' }, refused: null },
      { case_id: ids[2], action: null, refused: 'STATUS_CONFLICT' },
      { case_id: unknown, action: null, refused: 'NOT_FOUND' },
    ]);
    expect([await served(events[0]!), await served(events[1]!)]).toEqual([false, false]);
  });

  it('is not opened about an event that never arrived', async () => {
    await done('POST', '/v1/reports', { event_id: 'a'.repeat(64), reason: 'spam' }, newAuthor());
    expect(await casesAbout('a'.repeat(64))).toEqual([]);
    await api.refused(404, 'NOT_FOUND', 'POST', CASES, { as: root, body: { event_id: 'a'.repeat(64) } });
  });

  it('removes and restores an event, live and in search, on both instances, with audit rows', async () => {
    const word = `quagga${posted}`;
    const event = await post({ content: `a ${word}` });
    const search = async () => (await far.query({ search: word })).events.length;
    await until('it is found', async () => (await search()) === 1);
    const { case_id: id } = await done<Case>('POST', CASES, { event_id: event.id });
    const live = far.frames.length;
    far.send(['REQ', 'live', { ids: [event.id], limit: 0 }]);
    await far.waitFor(([verb, sub]) => verb === 'EOSE' && sub === 'live', live);
    expect(await act(id, 'remove', { note: 'not here' })).toMatchObject({
      outcome: 'removed',
      actor: root.pubkey,
    });
    await waitUntilHidden(event);
    expect(await search()).toBe(0);
    expect(await act(id, 'restore')).toMatchObject({ outcome: 'restored' });
    await far.waitFor((frame) => frame[0] === 'EVENT' && frame[1] === 'live', live);
    far.send(['CLOSE', 'live']);
    await until('it is found again', async () => (await search()) === 1);
    const { items } = await done<{ items: Row[] }>('GET', '/v1/admin/audit-log?limit=3');
    expect(items.map(({ action }) => action)).toEqual([
      'moderation.restore',
      'moderation.remove',
      'moderation.open',
    ]);
    expect(items[1]).toMatchObject({ target: id, details: { note: 'not here', event: event.id } });
  });

  it('does not restore an event that its author deleted meanwhile', async () => {
    const author = newAuthor();
    const event = await post({}, author);
    const { case_id: id } = await done<Case>('POST', CASES, { event_id: event.id });
    await act(id, 'remove');
    expect(await whole(id), 'seen by moderators').toMatchObject({ event: { id: event.id } });
    await post({ kind: 5, tags: [['e', event.id]] }, author);
    expect(await whole(id), 'seen by nobody').toMatchObject({ event: null });
    const refused = await api.refused(409, 'NOT_DONE', 'POST', `${CASES}/${id}/actions`, {
      as: root,
      body: { action: 'restore' },
    });
    expect(refused.body.details).toMatchObject({ outcome: 'deleted' });
    await drained();
    expect(await served(event)).toBe(false);
    expect((await whole(id)).actions.map(({ outcome }) => outcome)).toEqual(['removed', 'deleted']);
  });

  it('returns the outcome when the event to restore was purged', async () => {
    const event = await post();
    const { case_id: id } = await done<Case>('POST', CASES, { event_id: event.id });
    await act(id, 'remove');
    const { id: community } = first.node.communities.all()[0]!;
    const later = Date.now() + 60_000;
    await first.database.pool.query(PURGE_REMOVED_SQL, [community, later, 1_000, later]);
    expect(await whole(id)).toMatchObject({ event: null });
    for (const action of ['restore', 'remove']) {
      const refused = await api.refused(409, 'NOT_DONE', 'POST', `${CASES}/${id}/actions`, {
        as: root,
        body: { action },
      });
      expect(refused.body.details).toMatchObject({ outcome: 'purged' });
    }
  });

  it('about an event of a private kind gets no label, which would reveal the event', async () => {
    const event = await post({ kind: 4, tags: [['p', newAuthor().pubkey]] });
    const { case_id: id } = await done<Case>('POST', CASES, { event_id: event.id });
    const refused = await api.refused(409, 'STATUS_CONFLICT', 'POST', `${CASES}/${id}/actions`, {
      as: root,
      body: { action: 'label', label: { label: 'spam' } },
    });
    expect(refused.body.details).toMatchObject({ kind: 4, labels: expect.stringContaining('public') });
  });

  it('bans and unbans the author, but no operator from the environment', async () => {
    const author = newAuthor();
    const event = await post({}, author);
    const { case_id: id } = await done<Case>('POST', CASES, { event_id: event.id });
    await act(id, 'ban', { note: 'a flood' });
    const again = async () => (await client.publish(sign(author, { content: `${Math.random()}` })))[0];
    await until('the author is blocked', async () => !(await again()));
    const { items } = await done<{ items: Row[] }>('GET', '/v1/admin/blocks/authors');
    expect(items).toMatchObject([{ pubkey: author.pubkey, reason: `case ${id}: a flood` }]);
    await act(id, 'unban');
    await until('the author is let in', again);
    const { case_id: own } = await done<Case>('POST', CASES, { pubkey: root.pubkey });
    await api.refused(409, 'FIXED_OPERATOR', 'POST', `${CASES}/${own}/actions`, {
      as: root,
      body: { action: 'ban' },
    });
  });

  it('is for operators only', async () => {
    await api.refused(403, 'OPERATORS_ONLY', 'GET', CASES, { as: newAuthor() });
    await api.refused(403, 'OPERATORS_ONLY', 'GET', RULES, { as: newAuthor() });
  });
});

describe('labels on events of a topic that is not public', () => {
  it('are shown only to those who may read the topic', async () => {
    const { pool } = first.database;
    const now = Date.now();
    const community = await addCommunity(pool, 'closed', undefined, now);
    const topic = `kukuri:${'c'.repeat(64)}`;
    const rules = { pinned: true, public: false, priority: 0, policy: {} };
    await writeTopic(pool, community, topic, rules, now);
    await writeSetting(pool, community, 'topic.mode', 'open', now);
    const known = () => first.node.communities.get(community);
    await until('the community is known', async () => known()?.topics.get(topic)?.enabled === true);
    const inside = await RawClient.connect(`${first.url}/c/closed`);
    const event = await post({ tags: [['t', topic]] }, newAuthor(), inside);
    await inside.close();
    const { case_id: id } = await done<Case>('POST', `/c/closed${CASES}`, { event_id: event.id });
    await done('POST', `/c/closed${CASES}/${id}/actions`, { action: 'label', label: { label: 'nsfw' } });
    await writeSetting(pool, community, 'auth.mode', 'required', now);
    await until('everybody has to authenticate', async () => known()?.settings['auth.mode'] === 'required');
    const labelsShownTo = (as: Author) =>
      done<{ labels: Row[]; shown: boolean }>('GET', `/c/closed/v1/labels?target=${event.id}`, undefined, as);
    const [member, stranger] = [newAuthor(), newAuthor()];
    await api.refused(401, 'AUTH_REQUIRED', 'GET', `/c/closed/v1/labels?target=${event.id}`);
    expect(await labelsShownTo(stranger)).toMatchObject({ labels: [] });
    const ask = { community, pubkey: member.pubkey, topic, name: undefined, services: [] };
    const approval = { ...requestRules(known()!.settings), autoApproval: 'within-limits' } as const;
    expect(isDenial(await requestTopic(pool, ask, approval, now))).toBe(false);
    expect(await labelsShownTo(member)).toMatchObject({ shown: true, labels: [{ label: 'nsfw' }] });
    expect(await labelsShownTo(stranger)).toMatchObject({ labels: [] });
  });
});

describe('a label that has lapsed', () => {
  it('is neither served nor listed', async () => {
    await enable({ action: 'label', conditions: { kinds: [7_006] }, label: { label: 'safe', days: 1 } });
    const event = await post({ kind: 7_006 });
    await until('it is published', async () => (await labelEvents(event)).length === 2);
    ahead = 86_400_000 + 10_000;
    try {
      expect(await labelEvents(event)).toEqual([]);
      const { body } = await api.ask<{ labels: Row[] }>('GET', `/v1/labels?target=${event.id}`);
      expect(body).toMatchObject({ shown: true, labels: [] });
    } finally {
      ahead = 0;
    }
  });
});
