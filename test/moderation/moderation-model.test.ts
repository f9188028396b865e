/**
 * Random histories of posts, deletions, rules, moderators and time against a naive model: the view is the
 * same in any order, and reading everything again changes nothing (I6, I9). Also: what is stored about a
 * member who vanishes is erased.
 */
import { mkdtemp, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { erase } from '../../src/erasure/jobs.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import type { Hiding } from '../../src/events/store.js';
import { NodeKeys } from '../../src/keys/keys.js';
import { labelsAbout } from '../../src/labels/labels.sql.js';
import { type LabelSpec, labelSchema } from '../../src/labels/rules.js';
import { findBatch, startBatch, stepBatch, undoBatch } from '../../src/moderation/batches.sql.js';
import { act, openByHand } from '../../src/moderation/cases.sql.js';
import { moderationConsumer } from '../../src/moderation/consumer.js';
import { purgeRemovedEvents } from '../../src/moderation/jobs.js';
import { OVER_RATE_SQL } from '../../src/moderation/judge.sql.js';
import { carryOut } from '../../src/moderation/pending-actions.js';
import type { CaseAction } from '../../src/moderation/rules.js';
import { deleteRule, listRules } from '../../src/moderation/stored-rules.sql.js';
import { createLog } from '../../src/node/log.js';
import { readChanges, readView } from '../../src/outbox/changes.sql.js';
import type { Consumer } from '../../src/outbox/consumers/consumer.js';
import { readHead } from '../../src/outbox/outbox.sql.js';
import { eventually } from '../support/cli.js';
import { type Plan, rateScans, switchRule, writeRule } from '../support/domains/moderation.js';
import { newAuthor, sign } from '../support/events.js';
import { hash, type Life, openLife, unsigned } from '../support/stores/life.js';

const START = Date.UTC(2032, 2, 1);
let life: Life;
let folder: string;
let community: number;
let consumer: Consumer;
let keys: NodeKeys;
let read = 0;

beforeAll(async () => {
  life = await openLife(START, [{}], 2);
  community = life.communities[0]!;
  folder = await mkdtemp(join(tmpdir(), 'minato-model-'));
  const { apiPool: pool } = life.database;
  const now = () => life.now;
  const { communities, store } = life.writers[1]!;
  keys = new NodeKeys({ folder, pool, now });
  consumer = moderationConsumer({ communities, pool, store, keys, log: createLog('error'), now });
  await enable('hide', { words: ['bad'] });
  await enable('hold', { words: ['held'] });
  await enable('label', { words: ['odd'] });
  // Events that the node signs itself are not judged.
  await enable('hide', { kinds: [1_985, 39_006] });
  await eventually('the community is known', () => communities.get(community));
});
afterAll(async () => {
  await life.close();
  await rm(folder, { recursive: true });
});

let rules = 0;
async function enable(action: string, conditions: object): Promise<void> {
  rules += 1;
  const at = { pool: life.database.apiPool, community, now: life.now };
  const more = action === 'label' ? { label: { label: 'spam' }, priority: 1 } : {};
  const { ruleId } = await writeRule(at, { name: `${rules}`, action, conditions, ...more });
  await switchRule(at, ruleId, true);
}

/** The rule that was enabled last. */
async function disable(): Promise<void> {
  const { apiPool: pool } = life.database;
  const last = (await listRules(pool, community)).find(({ name }) => name === `${rules}`)!;
  expect(isDenial(await deleteRule(pool, { community, ruleId: last.ruleId }, life.now))).toBe(false);
}

async function apply(changes: Parameters<Consumer['apply']>[0], generation: number): Promise<void> {
  for (let at = 0; at < changes.length; at += 100) {
    await life.client.query('BEGIN');
    await consumer.apply(changes.slice(at, at + 100), life.client, generation);
    await life.client.query('COMMIT');
  }
}

async function drain(): Promise<void> {
  const { changes, upTo } = await readChanges(life.client, { after: read, limit: 10_000 });
  await apply(changes, 1);
  read = upTo;
  while (await consumer.followUp!());
}

/** Reads everything as a replay and as a rebuild would. */
async function readAllAgain(): Promise<void> {
  const { changes } = await readChanges(life.client, { after: 0, limit: 10_000 });
  await apply(changes, 1);
  const upTo = await readHead(life.client);
  await apply(await readView(life.client, { after: 0, upTo, limit: 10_000 }), 2);
  while (await consumer.followUp!());
}

const stored = () => life.writers[0]!.store.stored;

async function decide(event: NostrEvent, action: CaseAction, label?: LabelSpec): Promise<void> {
  const { apiPool: pool } = life.database;
  const opened = await openByHand(
    pool,
    stored(),
    { community, event: event.id, pubkey: undefined, note: '' },
    life.now,
  );
  if (isDenial(opened)) throw new Error(opened.denied);
  const acting = {
    community,
    caseId: opened.caseId,
    action,
    note: '',
    label,
    privateKinds: [],
    events: stored(),
  };
  expect(isDenial(await act(pool, acting, { fixed: [] }, life.now))).toBe(false);
}

/** Decides and carries out at once, as the API does. */
async function moderate(event: NostrEvent, action: CaseAction): Promise<void> {
  await decide(event, action);
  await carryOut(
    { store: life.writers[0]!.store, pool: life.database.apiPool, now: () => life.now },
    { community, id: event.id },
  );
}

const served = async ({ id }: NostrEvent) =>
  (
    await life.client.query(
      `SELECT 1 FROM events WHERE community = $1 AND id = $2 AND hidden IS NULL
         AND (expires_at IS NULL OR expires_at > $3)`,
      [community, Buffer.from(id, 'hex'), Math.floor(life.now / 1_000)],
    )
  ).rowCount === 1;

/** Number of served label events of the node about this event. */
const labelEventsAbout = async (id: string) =>
  (
    await life.client.query(
      `SELECT 1 FROM events WHERE community = $1 AND kind IN (1985, 39006) AND hidden IS NULL
         AND strpos(payload, $2) > 0`,
      [community, id],
    )
  ).rowCount;

/** Everything that moderation stores, except `updated_at` of cases. */
const kept = async () =>
  (
    await life.client.query<{ row: string }>(
      `SELECT to_jsonb(a)::text AS row FROM moderation_actions a UNION ALL SELECT to_jsonb(l)::text
       FROM labels l
       UNION ALL SELECT (to_jsonb(c) - 'updated_at')::text FROM moderation_cases c
       UNION ALL SELECT last_seq::text FROM lane_state ORDER BY 1`,
    )
  ).rows.map(({ row }) => row);

interface Known {
  readonly event: NostrEvent;
  readonly expiresAt: number;
  deleted: boolean;
  removed: boolean;
}

const SECONDS = 1_000;
const word = fc.constantFrom('fine', 'bad', 'held', 'odd');
const which = fc.nat({ max: 3 });
const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ op: fc.constant('post' as const), word, lives: fc.constantFrom(0, 15) }),
  },
  {
    weight: 6,
    arbitrary: fc.record({ op: fc.constantFrom('remove', 'restore', 'delete', 'resend'), which }),
  },
  { weight: 3, arbitrary: fc.record({ op: fc.constantFrom('drain', 'later'), which }) },
);

describe('moderation', () => {
  it('gives the same view as a naive model in any order, and a replay changes nothing', async () => {
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 14 }), async (steps) => {
        run += 1;
        const pubkey = hash(`author ${run} ${Math.random()}`);
        const all: Known[] = [];
        const now = () => Math.floor(life.now / SECONDS);
        const say = (event: NostrEvent) => life.submit(0, community, event);
        const isHere = (known: Known) => !known.deleted && !known.removed && now() < known.expiresAt;
        for (const [at, one] of steps.entries()) {
          if (one.op === 'post') {
            const expiresAt = one.lives === 0 ? Infinity : now() + one.lives;
            const tags = one.lives === 0 ? [] : [['expiration', String(expiresAt)]];
            const event = unsigned({
              kind: 1,
              pubkey,
              created_at: now(),
              content: `${one.word} ${run} ${at}`,
              tags,
            });
            expect(await say(event)).toBe('stored');
            // Rules that hide and hold are applied on arrival (I16).
            const removed = ['bad', 'held'].includes(one.word);
            expect(await served(event)).toBe(!removed);
            all.push({ event, expiresAt, deleted: false, removed });
            continue;
          }
          if (one.op === 'later') life.now += 10 * SECONDS;
          if (one.op === 'drain') await drain();
          const known = all[one.which];
          if (known === undefined) continue;
          const { event } = known;
          if (one.op === 'resend' && !isHere(known)) expect(await say(event)).not.toBe('stored');
          if (one.op === 'delete' && !known.deleted) {
            await say(
              unsigned({ kind: 5, pubkey, created_at: now(), tags: [['e', event.id]], content: `${at}` }),
            );
            known.deleted = true;
          }
          if (one.op === 'remove') {
            await moderate(event, 'remove');
            known.removed ||= !known.deleted;
          }
          if (one.op === 'restore') {
            await moderate(event, 'restore');
            const stays = known.removed && (known.deleted || now() >= known.expiresAt);
            known.removed = stays;
          }
          const view: boolean[] = [];
          for (const { event: each } of all) view.push(await served(each));
          expect(view).toEqual(all.map(isHere));
        }
        await drain();
        await drain();
      }),
      { numRuns: 40 },
    );
    const before = await kept();
    expect(before.length).toBeGreaterThan(30);
    life.now += SECONDS;
    await enable('hide', { words: ['fine', 'odd'], kinds: [1] });
    await readAllAgain();
    await disable();
    expect(await kept()).toEqual(before);
  });

  it('withdraws a label with the key that signed it, and does not put it again', async () => {
    const event = sign(newAuthor(), { content: 'odd', created_at: Math.floor(life.now / SECONDS) });
    expect(await life.submit(0, community, event)).toBe('stored');
    await drain();
    const held = async () =>
      (await labelsAbout(life.client, { community, event: event.id }, life.now)).length;
    expect([await held(), await labelEventsAbout(event.id)]).toEqual([1, 2]);
    expect(isDenial(await keys.rotate(community, 'moderation'))).toBe(false);
    await decide(event, 'unlabel', labelSchema.parse({ label: 'spam' }));
    expect(await held()).toBe(0);
    await drain();
    expect(await labelEventsAbout(event.id)).toBe(0);
    await readAllAgain();
    expect([await held(), await labelEventsAbout(event.id)]).toEqual([0, 0]);
  });

  it('counts an event once for a rate, however often it is read', async () => {
    life.now += SECONDS;
    await enable('hide', { kinds: [7_000], rate: { count: 2, seconds: 60 } });
    const pubkey = hash('often');
    const send = async (from: number) => {
      const events = Array.from({ length: 2 }, (_, at) =>
        unsigned({ kind: 7_000, pubkey, created_at: from, content: `${from} ${at}` }),
      );
      await Promise.all(events.map((event) => life.submit(0, community, event)));
      return events;
    };
    const first = await send(1);
    await drain();
    await readAllAgain();
    const second = await send(2);
    await drain();
    life.now += 61 * SECONDS;
    const third = await send(3);
    await drain();
    const before = await kept();
    await readAllAgain();
    expect(await kept()).toEqual(before);
    const view: boolean[] = [];
    for (const event of [...first, ...second, ...third]) view.push(await served(event));
    expect(view).toEqual([true, true, false, false, true, true]);
    await disable();
  });

  it('reads one event more than a rate allows, however many there are', async () => {
    const ruleId = (await listRules(life.client, community))[0]!.ruleId;
    const author = Buffer.from(hash('flood'), 'hex');
    await life.client.query(
      `INSERT INTO moderation_rates (community, rule_id, at, seq, pubkey, event_id)
       SELECT $1, $2, n, n, $3, sha256(n::text::bytea) FROM generate_series(1, 3000) n`,
      [community, ruleId, author],
    );
    await life.client.query('ANALYZE moderation_rates');
    const values = [[ruleId], [community], [author], [3_000], [3_000], [author], [5], [10_000]];
    const { rows } = await life.client.query<{ 'QUERY PLAN': Plan[] }>(
      `EXPLAIN (ANALYZE, FORMAT JSON) ${OVER_RATE_SQL}`,
      values,
    );
    const looked = rateScans((rows[0]!['QUERY PLAN'][0] as unknown as { Plan: Plan }).Plan);
    expect(looked).toEqual([6]);
    await life.client.query('DELETE FROM moderation_rates WHERE pubkey = $1', [author]);
  });

  it('does not dismiss a case that a rule holds', async () => {
    const event = sign(newAuthor(), { content: 'held too', created_at: Math.floor(life.now / SECONDS) });
    expect(await life.submit(0, community, event)).toBe('stored');
    const { apiPool: pool } = life.database;
    const about = { community, event: event.id, pubkey: undefined, note: '' };
    const opened = await openByHand(pool, stored(), about, life.now);
    if (isDenial(opened)) throw new Error(opened.denied);
    expect(opened).toMatchObject({ status: 'held', reason: 'rule: 2' });
    const action: CaseAction = 'dismiss';
    const acting = { community, caseId: opened.caseId, action, note: '', privateKinds: [], events: stored() };
    const dismissed = await act(pool, acting, { fixed: [] }, life.now);
    expect(dismissed).toMatchObject({ denied: 'STATUS_CONFLICT', details: { status: 'held' } });
  });

  it('opens a case for reports about an event that a rule has hidden', async () => {
    const seconds = Math.floor(life.now / SECONDS);
    const event = sign(newAuthor(), { content: 'bad and reported', created_at: seconds });
    const alone = sign(newAuthor(), { content: 'bad alone', created_at: seconds });
    const tags = [
      ['e', event.id, 'illegal'],
      ['p', event.pubkey],
    ];
    const report = sign(newAuthor(), { kind: 1_984, tags, created_at: seconds });
    for (const one of [event, alone, report]) expect(await life.submit(0, community, one)).toBe('stored');
    await drain();
    expect([await served(event), await served(alone)]).toEqual([false, false]);
    const statusOf = async ({ id }: NostrEvent) =>
      (
        await life.client.query<{ status: string }>(
          'SELECT status FROM moderation_cases WHERE target_event = $1 ORDER BY status',
          [Buffer.from(id, 'hex')],
        )
      ).rows.map(({ status }) => status);
    expect([await statusOf(event), await statusOf(alone)]).toEqual([['open', 'resolved'], ['resolved']]);
  });

  it('publishes labels while others wait for a missing key, and logs that key once', async () => {
    const seconds = Math.floor(life.now / SECONDS);
    const old = sign(newAuthor(), { content: 'odd one', created_at: seconds });
    const fresh = sign(newAuthor(), { content: 'odd other', created_at: seconds });
    expect(await life.submit(0, community, old)).toBe('stored');
    await drain();
    const path = keys.pathOf(await keys.pubkey(community, 'moderation'));
    expect(isDenial(await keys.rotate(community, 'moderation'))).toBe(false);
    await decide(old, 'unlabel', labelSchema.parse({ label: 'spam' }));
    await rename(path, `${path}.away`);
    const { apiPool: pool } = life.database;
    const heard: string[] = [];
    const warn = (...given: unknown[]) => void heard.push(String(given[1]));
    const { communities, store } = life.writers[1]!;
    const now = () => life.now;
    const startAgain = () => {
      const forgetful = new NodeKeys({ folder, pool, now });
      return moderationConsumer({ communities, pool, store, keys: forgetful, log: { warn }, now });
    };
    const before = consumer;
    consumer = startAgain();
    expect(await life.submit(0, community, fresh)).toBe('stored');
    await drain();
    await drain();
    expect([await labelEventsAbout(old.id), await labelEventsAbout(fresh.id)]).toEqual([2, 2]);
    expect(heard).toEqual(['labels cannot be published']);
    await rename(`${path}.away`, path);
    consumer = startAgain();
    await drain();
    expect(await labelEventsAbout(old.id)).toBe(0);
    consumer = before;
  });

  it('carries out an action once: a late worker does not undo a later action', async () => {
    const event = sign(newAuthor(), { content: 'fine', created_at: Math.floor(life.now / SECONDS) });
    expect(await life.submit(0, community, event)).toBe('stored');
    const { apiPool: pool } = life.database;
    // Both have read the pending removal before either carries it out.
    const late: (() => Promise<number>)[] = [];
    const { store } = life.writers[1]!;
    const slow = {
      ...store,
      hide: (work: Hiding) =>
        new Promise<number>((done) => late.push(() => store.hide(work).finally(() => done(0)))),
    };
    await decide(event, 'remove');
    const waiting = carryOut({ store: slow, pool, now: () => life.now });
    await eventually('the late worker has read the action', () => late[0]);
    await moderate(event, 'restore');
    expect(await served(event)).toBe(true);
    await late[0]!();
    await waiting;
    expect(await served(event)).toBe(true);
    const { rows } = await life.client.query<{ outcome: string }>(
      'SELECT outcome FROM moderation_actions WHERE target_event = $1 ORDER BY position',
      [Buffer.from(event.id, 'hex')],
    );
    expect(rows.map(({ outcome }) => outcome)).toEqual(['removed', 'restored']);
  });

  it('makes cases of a hundred reports with as many statements as of two, one per target', async () => {
    const seconds = Math.floor(life.now / SECONDS);
    const targets = [0, 1, 2].map(() => sign(newAuthor(), { content: 'fine', created_at: seconds }));
    for (const event of targets) expect(await life.submit(0, community, event)).toBe('stored');
    await drain();
    const person = newAuthor().pubkey;
    const reportOf = (at: number) => {
      const target = targets[at % 4];
      const tags = target === undefined ? [['p', person, 'spam']] : [['e', target.id, 'nudity']];
      // An event that never arrived gets no case.
      const unknown = ['e', hash(`unknown ${at}`), 'spam'];
      return unsigned({
        kind: 1_984,
        pubkey: hash(`reporter ${at}`),
        created_at: seconds,
        tags: [...tags, unknown],
      });
    };
    const statementsFor = async (from: number, count: number): Promise<number> => {
      for (let at = from; at < from + count; at += 1)
        expect(await life.submit(0, community, reportOf(at))).toBe('stored');
      const spied = vi.spyOn(life.client, 'query');
      const { changes, upTo } = await readChanges(life.client, { after: read, limit: 10_000 });
      spied.mockClear();
      await apply(changes, 1);
      read = upTo;
      const statements = spied.mock.calls.length;
      spied.mockRestore();
      return statements;
    };
    const ofTwo = await statementsFor(0, 2);
    expect(await statementsFor(2, 98)).toBe(ofTwo);
    const { rows } = await life.client.query<{ reason: string; reports: number }>(
      `SELECT c.reason, (SELECT count(*) FROM reports r WHERE r.case_id = c.case_id) AS reports
       FROM moderation_cases c
       WHERE c.target_event = ANY ($1) OR (c.target_event IS NULL AND c.target_pubkey = $2)
       ORDER BY c.reason`,
      [targets.map(({ id }) => Buffer.from(id, 'hex')), Buffer.from(person, 'hex')],
    );
    expect(rows).toEqual([
      ...targets.map(() => ({ reason: 'reported: nudity', reports: 25 })),
      { reason: 'reported: spam', reports: 25 },
    ]);
  });

  it('carries out a batch in portions, each event once, with several workers at the same time', async () => {
    const { apiPool: pool } = life.database;
    const { communities, store } = life.writers[1]!;
    const author = newAuthor();
    const seconds = Math.floor(life.now / SECONDS);
    const events = Array.from({ length: 450 }, (_, at) =>
      unsigned({ kind: 1, pubkey: author.pubkey, created_at: seconds - (at % 7), content: `many ${at}` }),
    );
    await Promise.all(events.map((event) => life.submit(0, community, event)));
    const conditions = { authors: [author.pubkey] };
    const spec = { action: 'remove' as const, conditions, byRule: false, note: '' };
    const batch = await startBatch(pool, { community }, spec, life.now);
    if (isDenial(batch)) throw new Error(batch.denied);
    const step = () => stepBatch(pool, stored(), (id) => communities.get(id)?.settings, life.now);
    const found = async () => {
      const now = await findBatch(pool, community, batch.batchId);
      if (isDenial(now)) throw new Error(now.denied);
      return now;
    };
    await step();
    expect(await found()).toMatchObject({ status: 'running', matched: 200 });
    for (let more = true; more; ) more = (await Promise.all([step(), step(), step()])).some(Boolean);
    while (await carryOut({ store, pool, now: () => life.now }));
    expect(await found()).toMatchObject({
      status: 'done',
      matched: 450,
      outcomes: { 'remove: removed': 450 },
    });
    expect(isDenial(await undoBatch(pool, { community, batchId: batch.batchId }, 30, life.now))).toBe(false);
    for (let more = true; more; ) more = (await Promise.all([step(), step(), step()])).some(Boolean);
    while (await carryOut({ store, pool, now: () => life.now }));
    expect(await found()).toMatchObject({
      status: 'undone',
      outcomes: { 'remove: removed': 450, 'restore: restored': 450 },
    });
    expect(await served(events[0]!)).toBe(true);
  });

  it('keeps nothing about a vanished member, and deletes the label events about them', async () => {
    const [gone, other] = [newAuthor(), newAuthor()];
    const seconds = Math.floor(life.now / SECONDS);
    const events = [gone, other].map((author) =>
      sign(author, { content: 'odd and bad', created_at: seconds }),
    );
    for (const event of events) expect(await life.submit(0, community, event)).toBe('stored');
    await drain();
    const count = async (pubkey: string) =>
      (
        await life.client.query<{ rows: number }>(
          `SELECT (SELECT count(*) FROM labels WHERE target_pubkey = $1) + (SELECT count(*)
           FROM moderation_cases WHERE target_pubkey = $1)
             + (SELECT count(*) FROM moderation_actions WHERE target_pubkey = $1) AS rows`,
          [Buffer.from(pubkey, 'hex')],
        )
      ).rows[0]!.rows;
    expect([await count(gone.pubkey), await labelEventsAbout(events[0]!.id)]).toEqual([4, 2]);
    const vanish = sign(gone, { kind: 62, created_at: seconds, tags: [['relay', 'ALL_RELAYS']] });
    expect(await life.submit(0, community, vanish, [community])).toBe('stored');
    await life.run(erase);
    expect([await count(gone.pubkey), await labelEventsAbout(events[0]!.id)]).toEqual([0, 0]);
    expect([await count(other.pubkey), await labelEventsAbout(events[1]!.id)]).toEqual([4, 2]);
  });

  it('purges a held event only after undoDays since the decision', async () => {
    const event = sign(newAuthor(), { content: 'held long', created_at: Math.floor(life.now / SECONDS) });
    expect(await life.submit(0, community, event)).toBe('stored');
    await drain();
    const isKept = async () => {
      await life.run(purgeRemovedEvents);
      const id = Buffer.from(event.id, 'hex');
      return (await life.client.query('SELECT 1 FROM events WHERE id = $1', [id])).rowCount === 1;
    };
    life.now += 40 * DAY_MS;
    expect([await served(event), await isKept()]).toEqual([false, true]);
    await moderate(event, 'remove');
    life.now += 29 * DAY_MS;
    expect(await isKept()).toBe(true);
    life.now += 2 * DAY_MS;
    expect(await isKept()).toBe(false);
  });
});
