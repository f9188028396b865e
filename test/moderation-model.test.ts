/**
 * Random histories of posts, deletions, rules, moderators and time against a naive model: the view is the same, whatever the order, and
 * reading everything again changes nothing (I6, I9). And what is kept about one who vanishes goes.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isDenial } from '../src/core/errors.js';
import type { NostrEvent } from '../src/core/event.js';
import { type CaseAction, ruleSchema } from '../src/core/moderation.js';
import { eraseVanished } from '../src/jobs/erase-vanished.js';
import { NodeKeys } from '../src/keys.js';
import type { HidingWork } from '../src/lane.js';
import { createLog } from '../src/log.js';
import { carryOut } from '../src/orders.js';
import type { Consumer } from '../src/services/consumer.js';
import { moderationConsumer } from '../src/services/moderation.js';
import { readChanges, readView } from '../src/store/changes.js';
import { act, openByHand } from '../src/store/moderation-cases.js';
import { changeRule, createRule, deleteRule, listRules, noteTried } from '../src/store/moderation-rules.js';
import { readHead } from '../src/store/outbox.js';
import { eventually } from './support/cli.js';
import { newAuthor, sign } from './support/events.js';
import { hash, type Life, openLife, unsigned } from './support/life.js';

const START = Date.UTC(2032, 2, 1);
let life: Life;
let folder: string;
let community: number;
let consumer: Consumer;
let read = 0;

beforeAll(async () => {
  life = await openLife(START, [{}], 2);
  community = life.communities[0]!;
  folder = await mkdtemp(join(tmpdir(), 'minato-model-'));
  const { apiPool: pool } = life.database;
  const now = () => life.now;
  const { communities, lane } = life.writers[1]!;
  const keys = new NodeKeys({ folder, pool, now });
  consumer = moderationConsumer({ communities, pool, lane, keys, log: createLog('error'), now });
  await enable('hide', { words: ['bad'] });
  await enable('hold', { words: ['held'] });
  await enable('label', { words: ['odd'] });
  // What the node signs itself is not judged.
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
  const { apiPool: pool } = life.database;
  const label = action === 'label' ? { label: { label: 'spam' } } : {};
  const spec = ruleSchema.parse({
    name: `${rules}`,
    action,
    conditions,
    priority: action === 'label' ? 1 : 0,
    ...label,
  });
  const rule = await createRule(pool, { community }, spec, life.now);
  if (isDenial(rule)) throw new Error(rule.denied);
  await noteTried(pool, rule);
  const done = await changeRule(
    pool,
    { community, ruleId: rule.ruleId },
    { enabled: true },
    () => spec,
    life.now,
  );
  expect(isDenial(done)).toBe(false);
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

/** As a replay and as a rebuild would bring it. */
async function readAllAgain(): Promise<void> {
  const { changes } = await readChanges(life.client, { after: 0, limit: 10_000 });
  await apply(changes, 1);
  const upTo = await readHead(life.client);
  await apply(await readView(life.client, { after: 0, upTo, limit: 10_000 }), 2);
  while (await consumer.followUp!());
}

async function order(event: NostrEvent, action: CaseAction): Promise<void> {
  const { apiPool: pool } = life.database;
  const opened = await openByHand(
    pool,
    { community, event: event.id, pubkey: undefined, note: '' },
    life.now,
  );
  if (isDenial(opened)) throw new Error(opened.denied);
  const acting = { community, caseId: opened.caseId, action, note: '' };
  expect(isDenial(await act(pool, acting, { fixed: [] }, life.now))).toBe(false);
}

/** As the API does it. */
async function moderate(event: NostrEvent, action: CaseAction): Promise<void> {
  await order(event, action);
  await carryOut({ lane: life.writers[0]!.lane, pool: life.database.apiPool }, { community, id: event.id });
}

const served = async ({ id }: NostrEvent) =>
  (
    await life.client.query(
      `SELECT 1 FROM events WHERE community = $1 AND id = $2 AND hidden IS NULL AND (expires_at IS NULL OR expires_at > $3)`,
      [community, Buffer.from(id, 'hex'), Math.floor(life.now / 1_000)],
    )
  ).rowCount === 1;

/** Everything that moderation keeps, but for when a case was last touched. */
const kept = async () =>
  (
    await life.client.query<{ row: string }>(
      `SELECT to_jsonb(a)::text AS row FROM moderation_actions a UNION ALL SELECT to_jsonb(l)::text FROM labels l
       UNION ALL SELECT (to_jsonb(c) - 'updated_at')::text FROM moderation_cases c
       UNION ALL SELECT last_seq::text FROM lane_state ORDER BY 1`,
    )
  ).rows.map(({ row }) => row);

interface Known {
  readonly event: NostrEvent;
  readonly word: string;
  readonly expiresAt: number;
  deleted: boolean;
  removed: boolean;
  /** A rule or a moderator has had a say. */
  decided: boolean;
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
  it('gives the view that a naive model gives, in any order of things, and nothing more when all is read again', async () => {
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
            all.push({ event, word: one.word, expiresAt, deleted: false, removed: false, decided: false });
            continue;
          }
          if (one.op === 'later') life.now += 10 * SECONDS;
          if (one.op === 'drain') {
            await drain();
            for (const known of all) {
              const isJudged = !known.decided && !known.deleted && ['bad', 'held'].includes(known.word);
              if (isJudged) Object.assign(known, { removed: true, decided: true });
            }
          }
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
            Object.assign(known, { decided: true, removed: known.removed || !known.deleted });
          }
          if (one.op === 'restore') {
            await moderate(event, 'restore');
            const stays = known.removed && (known.deleted || now() >= known.expiresAt);
            Object.assign(known, { decided: true, removed: stays });
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

  it('carries out an order once: one who comes late changes nothing that a later order has made', async () => {
    const event = sign(newAuthor(), { content: 'fine', created_at: Math.floor(life.now / SECONDS) });
    expect(await life.submit(0, community, event)).toBe('stored');
    const { apiPool: pool } = life.database;
    // Both have read the order to remove before either carries it out.
    const late: (() => Promise<number>)[] = [];
    const { lane } = life.writers[1]!;
    const slow = {
      ...lane,
      hide: (work: HidingWork) =>
        new Promise<number>((done) => late.push(() => lane.hide(work).finally(() => done(0)))),
    };
    await order(event, 'remove');
    const waiting = carryOut({ lane: slow, pool });
    await eventually('the late one has its order', () => late[0]);
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

  it('keeps nothing about one who has vanished, and the events that told their labels go', async () => {
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
          `SELECT (SELECT count(*) FROM labels WHERE target_pubkey = $1) + (SELECT count(*) FROM moderation_cases WHERE target_pubkey = $1)
             + (SELECT count(*) FROM moderation_actions WHERE target_pubkey = $1) AS rows`,
          [Buffer.from(pubkey, 'hex')],
        )
      ).rows[0]!.rows;
    const labels = async (id: string) =>
      (
        await life.client.query(
          `SELECT 1 FROM events WHERE community = $1 AND kind IN (1985, 39006) AND hidden IS NULL AND strpos(payload, $2) > 0`,
          [community, id],
        )
      ).rowCount;
    expect([await count(gone.pubkey), await labels(events[0]!.id)]).toEqual([4, 2]);
    const vanish = sign(gone, { kind: 62, created_at: seconds, tags: [['relay', 'ALL_RELAYS']] });
    expect(await life.submit(0, community, vanish, [community])).toBe('stored');
    await life.run(eraseVanished);
    expect([await count(gone.pubkey), await labels(events[0]!.id)]).toEqual([0, 0]);
    expect([await count(other.pubkey), await labels(events[1]!.id)]).toEqual([4, 2]);
  });
});
