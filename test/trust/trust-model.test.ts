/**
 * Random histories (I9): whatever was posted, reported, deleted and labelled, however time passed, and
 * wherever the consumer was killed, set back or rebuilt, its scores equal those of a naive computation, and
 * the daily pass finds nothing to correct.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TrustModel } from '../../bench/trust-model.js';
import { simulate, simulateGrowth } from '../../bench/trust-simulation.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { NodeKeys } from '../../src/keys/keys.js';
import { createLog } from '../../src/node/log.js';
import { type Change, readChanges, readView } from '../../src/outbox/changes.sql.js';
import type { Consumer } from '../../src/outbox/consumers/consumer.js';
import { reportedBy } from '../../src/reports/rules.js';
import { trustConsumer } from '../../src/trust/consumer.js';
import { trustPass } from '../../src/trust/jobs.js';
import { groundTime, namedBy } from '../../src/trust/rules.js';
import { eventually } from '../support/cli.js';
import { writeTopic } from '../support/domains/topics.js';
import { DAY, hasten, putLabel } from '../support/domains/trust.js';
import { hash, type Life, openLife, unsigned } from '../support/stores/life.js';

const START = Date.UTC(2026, 0, 10);
const PEOPLE = Array.from({ length: 7 }, (_, at) => hash(`person ${at}`));
const HISTORIES = 4;
const STEPS = 120;
const TOPIC = 'kukuri:now-and-then';
/** Topics of labelled events. */
const TOPICS = [[], ['cats'], [TOPIC], ['kukuri:shut'], ['kukuri:shut', TOPIC]];

let life: Life;
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-trust-'));
  life = await openLife(
    START,
    Array.from({ length: HISTORIES }, (_, at) => ({
      settings: {
        'trust.publish': false,
        'auth.mode': at % 2 === 0 ? 'required' : 'off',
        // In half of the histories everybody is a founder; in the others operators come first.
        'trust.foundingDays': at < 2 ? 3_650 : 0,
        'trust.establishedMin': 2,
        'trust.reportsFull': 4,
        // One note to two people makes a full tie, so that a short history has ties.
        'trust.kindWeights': { 1: 6, 6: 3, 7: 2 },
      },
    })),
  );
});
afterAll(async () => {
  await life.close();
  await rm(folder, { recursive: true, force: true });
});

function chance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Reads the outbox like the node, as far and as often as the history says; so does the model. */
class Reader {
  lastSeq = 0;
  readonly consumer: Consumer;

  constructor(
    private readonly community: number,
    private readonly model: TrustModel,
  ) {
    const { store, communities } = life.writers[0]!;
    const { database } = life;
    const log = createLog('error');
    const keys = new NodeKeys({ folder, pool: life.database.apiPool, now: () => life.now });
    this.consumer = trustConsumer({ communities, database, store, keys, log, now: () => life.now });
  }

  async read(limit: number): Promise<number> {
    const { changes, upTo } = await readChanges(life.client, { after: this.lastSeq, limit });
    await inTransaction(life.client, () => this.consumer.apply(changes, life.client, 1), 'COMMIT');
    for (const change of changes) if (change.community === this.community) this.note(change);
    this.lastSeq = upTo;
    return changes.length;
  }

  /** Killed before its commit. */
  async crash(): Promise<void> {
    const { changes } = await readChanges(life.client, { after: this.lastSeq, limit: 50 });
    await inTransaction(life.client, () => this.consumer.apply(changes, life.client, 1), 'ROLLBACK');
  }

  /** Set back by the operator: it reads the same changes again. */
  async again(rows: number): Promise<void> {
    const { changes } = await readChanges(life.client, {
      after: Math.max(0, this.lastSeq - rows),
      limit: rows,
    });
    const passed = changes.filter(({ seq }) => seq <= this.lastSeq);
    await inTransaction(life.client, () => this.consumer.apply(passed, life.client, 1), 'COMMIT');
  }

  /** Reads everything that is served into another generation. */
  async rebuild(): Promise<void> {
    for (let after = 0; ; ) {
      const page = await readView(life.client, { after, upTo: this.lastSeq, limit: 100 });
      await inTransaction(life.client, () => this.consumer.apply(page, life.client, 2), 'COMMIT');
      if (page.length < 100) return;
      after = page.at(-1)!.seq;
    }
  }

  async finish(): Promise<void> {
    while ((await this.read(100)) > 0);
    await hasten(life.client, life.now);
    while (await this.consumer.followUp!());
  }

  private note({ op, payload, author, createdAt, ingestedAt, kind }: Change): void {
    if (op === 'delete' || payload === undefined) return;
    const { model } = this;
    const event = JSON.parse(payload) as NostrEvent;
    const at = groundTime(createdAt, ingestedAt);
    model.see(author, ingestedAt);
    const { named, shared } = namedBy(event);
    if ([1, 6, 7].includes(kind))
      for (const each of named) model.contact({ author, named: each, kind, at, shared });
    if (kind !== 1_984) return;
    for (const { pubkey } of reportedBy(event)) model.report(author, pubkey!, at, ingestedAt);
  }
}

async function inTransaction(client: Client, work: () => Promise<void>, end: string): Promise<void> {
  await client.query('BEGIN');
  await work();
  await client.query(end);
}

class History {
  readonly model: TrustModel;
  readonly reader: Reader;
  private readonly random: () => number;
  private readonly posted: NostrEvent[] = [];
  private readonly labels: { id: string; at: number }[] = [];
  private made = 0;
  /** All densities that occurred. */
  readonly scores = new Set<number>();

  constructor(
    seed: number,
    private readonly community: number,
  ) {
    this.random = chance(seed);
    const { settings } = life.writers[0]!.communities.get(community)!;
    this.model = new TrustModel(settings, START);
    this.reader = new Reader(community, this.model);
    if (settings['auth.mode'] === 'required') this.model.publicTopics = new Set();
  }

  private pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.random() * items.length)]!;
  }

  private async send(draft: Partial<NostrEvent>): Promise<void> {
    this.made += 1;
    const { random } = this;
    // Most are dated now; some are dated in the past, some in the future.
    const off = random() < 0.7 ? 0 : random() < 0.5 ? -random() * 40 * 86_400 : random() * 900;
    const event = unsigned({
      kind: 1,
      pubkey: this.pick(PEOPLE),
      created_at: Math.floor(life.now / 1_000 + off),
      content: `${this.community} ${this.made}`,
      ...draft,
    });
    const outcome = await life.submit(0, this.community, event);
    if (outcome !== 'stored') throw new Error(outcome);
    if (event.kind !== 5) this.posted.push(event);
  }

  /** Some have been members for long when the history begins. */
  async begin(): Promise<void> {
    await this.reader.consumer.outdated!(life.client, 1);
    await this.reader.finish();
    for (const pubkey of PEOPLE.slice(0, 6)) await this.send({ kind: 0, pubkey, created_at: 1 });
    if (this.model.settings['trust.foundingDays'] === 0)
      for (const pubkey of PEOPLE.slice(0, 3)) {
        this.model.approved.add(pubkey);
        await life.client.query('INSERT INTO operators (community, pubkey, created_at) VALUES ($1, $2, 1)', [
          this.community,
          Buffer.from(pubkey, 'hex'),
        ]);
      }
    life.now += 25 * DAY;
  }

  async step(): Promise<void> {
    const { random, reader, community, model } = this;
    const dice = random();
    const p = () => ['p', this.pick(PEOPLE)];
    if (dice < 0.4)
      await this.send({ kind: this.pick([1, 1, 6, 7, 30_023]), tags: [p(), p(), ['d', `${this.made}`]] });
    else if (dice < 0.55) await this.send({ kind: 1_984, tags: [[...p(), 'spam']] });
    else if (dice < 0.62 && this.posted.length > 0) {
      const { id, pubkey, created_at } = this.pick(this.posted);
      await this.send({ kind: 5, pubkey, tags: [['e', id]], created_at });
    } else if (dice < 0.67) {
      const lapses = Math.floor(life.now / 1_000 + random() * 40 * 86_400);
      const pubkey = this.pick(PEOPLE);
      const label = this.pick(['spam', 'nsfw', 'safe']);
      const topics = this.pick(TOPICS);
      const row = { community, pubkey, label, at: life.now, lapsesAt: lapses, topics };
      const id = await putLabel(life.client, row);
      if (label === 'safe') return;
      this.labels.push({ id, at: model.labels.length });
      model.labels.push({
        subject: pubkey,
        at: life.now,
        lapsesAt: lapses * 1_000,
        topics,
        withdrawn: false,
      });
    } else if (dice < 0.69 && this.labels.length > 0) {
      const { id, at } = this.pick(this.labels);
      await life.client.query('UPDATE labels SET withdrawn_at = $2 WHERE label_id = $1', [id, life.now]);
      model.labels[at]!.withdrawn = true;
    } else if (dice < 0.71) await this.openOrShut();
    else if (dice < 0.8) life.now += Math.floor(random() ** 3 * 5 * DAY);
    else if (dice < 0.9) await reader.read(1 + Math.floor(random() * 20));
    else if (dice < 0.92) await reader.crash();
    else if (dice < 0.94) await reader.again(1 + Math.floor(random() * 40));
    else if (dice < 0.95) await reader.rebuild();
    else if (dice < 0.96) await this.pass();
    else await reader.consumer.followUp!();
  }

  /** A topic becomes public, or is no longer public. */
  private async openOrShut(): Promise<void> {
    const { community, model, reader } = this;
    const { communities } = life.writers[0]!;
    const isPublic = () => communities.get(community)?.topics.get(TOPIC)?.public === true;
    const wanted = !isPublic();
    const rules = { pinned: true, public: wanted, priority: 0, policy: {} };
    await writeTopic(life.client, community, TOPIC, rules, life.now);
    await eventually('it is known', () => (isPublic() === wanted ? true : undefined));
    if (wanted) model.publicTopics?.add(TOPIC);
    else model.publicTopics?.delete(TOPIC);
    expect(await reader.consumer.outdated!(life.client, 1)).toBeUndefined();
  }

  /** The daily pass: no score is wrong, and those who have earned standing get it. */
  async pass(): Promise<void> {
    await this.reader.finish();
    expect(await life.run(trustPass)).toBe(0);
    this.model.review(life.now);
  }

  async expectSame(): Promise<void> {
    await this.reader.finish();
    const { rows } = await life.client.query<{ claim: string; score: number; subject: string }>(
      `SELECT claim, score, encode(subject, 'hex') AS subject FROM trust_scores WHERE community = $1`,
      [this.community],
    );
    const kept = (claim: string, subject: string) =>
      rows.find((row) => row.claim === claim && row.subject === subject)?.score ?? 0;
    for (const person of PEOPLE) {
      const { now } = life;
      this.scores.add(kept('communication-density', person));
      expect([kept('report-based', person), kept('communication-density', person)]).toEqual([
        this.model.risk(person, now),
        this.model.density(person, now),
      ]);
    }
  }
}

describe('after a random history', () => {
  it.each(Array.from({ length: HISTORIES }, (_, at) => at))(
    'the scores are those of a naive computation, and the pass over all agrees (%i)',
    async (at) => {
      const history = new History(at + 1, life.communities[at]!);
      await history.begin();
      for (let done = 0; done < STEPS; done += 1) {
        await history.step();
        if (done % 30 === 29) await history.expectSame();
        if (done % 40 === 39) await history.pass();
      }
      await history.expectSame();
      await history.pass();
      // The history was not trivial: it had contacts, reports with and without weight, and scores between 0
      // and 1.
      expect(history.model.contactCount).toBeGreaterThan(10);
      expect(history.scores.size).toBeGreaterThan(4);
      life.now += 31 * DAY;
      await history.expectSame();
      await history.pass();
    },
  );

  it('the daily pass finds wrong scores', async () => {
    await life.client.query('UPDATE trust_scores SET score = 0.123 WHERE community = $1', [
      life.communities[0],
    ]);
    const { rows } = await life.client.query(
      'SELECT count(DISTINCT subject) AS people FROM trust_scores WHERE community = $1',
      [life.communities[0]],
    );
    expect(rows[0].people).toBeGreaterThan(5);
    // Also when it continues over many runs.
    const bounds = { rows: 2, batches: 1 };
    expect(await life.run(trustPass, 0, bounds)).toBe(rows[0].people);
  });

  it('reports had weight in some of them', async () => {
    const { rows } = await life.client.query(
      `SELECT count(*) FILTER (WHERE weight > 0) AS heavy, count(*) FILTER (WHERE weight = 0) AS light
       FROM trust_reports`,
    );
    expect(rows[0].heavy).toBeGreaterThan(10);
    expect(rows[0].light).toBeGreaterThan(5);
  });

  it('labels were on events that not everybody may read', async () => {
    const { rows } = await life.client.query(
      `SELECT count(*) FILTER (WHERE 'kukuri:shut' = ANY (topics)) AS shut,
         count(*) FILTER (WHERE $1 = ANY (topics)) AS changing
       FROM labels WHERE label <> 'safe'`,
      [TOPIC],
    );
    expect(rows[0].shut).toBeGreaterThan(2);
    expect(rows[0].changing).toBeGreaterThan(2);
  });

  it('standing was granted in some of them', async () => {
    const { rows } = await life.client.query(
      'SELECT count(*) AS granted FROM trust_authors WHERE stands_from IS NOT NULL',
    );
    expect(rows[0].granted).toBeGreaterThan(3);
  });
});

describe('the simulation', () => {
  it.each([
    [1, 3],
    [2, 5],
    [3, 8],
  ])(
    'no attack with fewer established helpers than wanted moves a score by more than 10 points (%i, %i)',
    (seed, few) => {
      const outcomes = simulate({
        seed,
        members: 60,
        crowds: [10, 100],
        settings: { 'trust.establishedMin': few },
      });
      const weak = outcomes.filter(({ helpers }) => helpers < few);
      expect(weak.length).toBeGreaterThan(9);
      for (const outcome of weak)
        expect(Math.abs(outcome.after - outcome.before), outcome.attack).toBeLessThanOrEqual(10);
      // The rules do not simply give 0 to everybody.
      expect(outcomes.find(({ attack }) => attack === '10 established members report')?.after).toBeLessThan(
        50,
      );
    },
  );

  it('keys of the founding days are established; without founding days nobody is', () => {
    const ranks = (foundingDays: number) =>
      simulate({ members: 60, crowds: [10], settings: { 'trust.foundingDays': foundingDays } })
        .filter(({ attack }) => /founding month/.test(attack))
        .map(({ after }) => after);
    expect(ranks(30)).toEqual([0]);
    expect(ranks(0)).toEqual([100]);
  });

  it('honest members become established, and their talk counts', () => {
    const [, , , last] = simulateGrowth({ members: 60 });
    expect(last!.established).toBeGreaterThan(last!.members / 2);
    expect(last!.density).toBeGreaterThan(10);
  });
});
