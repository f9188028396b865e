/**
 * Random histories (I9): whatever was posted, reported, deleted and labelled, however time passed, and wherever the consumer was cut off,
 * set back or rebuilt, its scores are those of a naive computation, and the pass over all of them finds nothing to mend.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TrustModel } from '../bench/trust-model.js';
import { simulate } from '../bench/trust-simulation.js';
import type { NostrEvent } from '../src/core/event.js';
import { reportedBy } from '../src/core/report.js';
import { groundTime, namedBy } from '../src/core/trust.js';
import { trustPass } from '../src/jobs/trust.js';
import { NodeKeys } from '../src/keys.js';
import { createLog } from '../src/log.js';
import type { Consumer } from '../src/services/consumer.js';
import { trustConsumer } from '../src/services/trust.js';
import { type Change, readChanges, readView } from '../src/store/changes.js';
import { eventually } from './support/cli.js';
import { hash, type Life, openLife, unsigned } from './support/life.js';
import { writeTopic } from './support/topics.js';
import { DAY, putLabel } from './support/trust.js';

const START = Date.UTC(2026, 0, 10);
const PEOPLE = Array.from({ length: 12 }, (_, at) => hash(`person ${at}`));
const HISTORIES = 4;
const STEPS = 120;
const TOPIC = 'kukuri:now-and-then';
/** Of labelled events. */
const TOPICS = [[], ['cats'], [TOPIC], ['kukuri:shut'], ['kukuri:shut', TOPIC]];

let life: Life;
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-trust-'));
  life = await openLife(
    START,
    Array.from({ length: HISTORIES }, (_, at) => ({
      settings: { 'trust.publish': false, 'auth.mode': at % 2 === 0 ? 'required' : 'off' },
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

/** Reads the outbox as the node does, as far and as often as the history says; the model reads along. */
class Reader {
  lastSeq = 0;
  readonly consumer: Consumer;

  constructor(
    private readonly community: number,
    private readonly model: TrustModel,
  ) {
    const { lane, communities } = life.writers[0]!;
    const { database } = life;
    const log = createLog('error');
    const keys = new NodeKeys({ folder, pool: life.database.apiPool, now: () => life.now });
    this.consumer = trustConsumer({ communities, database, lane, keys, log, now: () => life.now });
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

  /** Set back by the operator: the same changes come again. */
  async again(rows: number): Promise<void> {
    const { changes } = await readChanges(life.client, {
      after: Math.max(0, this.lastSeq - rows),
      limit: rows,
    });
    const passed = changes.filter(({ seq }) => seq <= this.lastSeq);
    await inTransaction(life.client, () => this.consumer.apply(passed, life.client, 1), 'COMMIT');
  }

  /** Everything that is effective, in another generation. */
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
    while (await this.consumer.followUp!());
  }

  private note({ op, payload, author, createdAt, ingestedAt, kind }: Change): void {
    if (op === 'delete' || payload === undefined) return;
    const { model } = this;
    const event = JSON.parse(payload) as NostrEvent;
    const at = groundTime(createdAt, ingestedAt);
    model.see(author, ingestedAt);
    if ([1, 6, 7].includes(kind))
      for (const named of namedBy(event)) model.contact({ author, named, kind, at });
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
  readonly model = new TrustModel();
  readonly reader: Reader;
  private readonly random: () => number;
  private readonly posted: NostrEvent[] = [];
  private readonly labels: { id: string; at: number }[] = [];
  private made = 0;

  constructor(
    seed: number,
    private readonly community: number,
  ) {
    this.random = chance(seed);
    this.reader = new Reader(community, this.model);
    const { settings } = life.writers[0]!.communities.get(community)!;
    if (settings['auth.mode'] === 'required') this.model.publicTopics = new Set();
  }

  private pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.random() * items.length)]!;
  }

  private async send(draft: Partial<NostrEvent>): Promise<void> {
    this.made += 1;
    const { random } = this;
    // Most are of now; some are backdated, some are ahead of time.
    const off = random() < 0.7 ? 0 : random() < 0.5 ? -random() * 40 * 86_400 : random() * 900;
    const event = unsigned({
      kind: 1,
      pubkey: this.pick(PEOPLE),
      created_at: Math.floor(life.now / 1_000 + off),
      content: `${this.community} ${this.made}`,
      ...draft,
    });
    const told = await life.submit(0, this.community, event);
    if (told !== 'stored') throw new Error(told);
    if (event.kind !== 5) this.posted.push(event);
  }

  /** Some have been there for long when it begins. */
  async begin(): Promise<void> {
    await this.reader.consumer.outdated!(life.client, 1);
    await this.reader.finish();
    for (const pubkey of PEOPLE.slice(0, 8)) await this.send({ kind: 0, pubkey, created_at: 1 });
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
    else await reader.consumer.followUp!();
  }

  /** A topic becomes public, or stops being so. */
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
      }
      await history.expectSame();
      expect(await life.run(trustPass)).toBe(0);
      // Something was at stake: contacts, reports with and without weight, and scores that are neither nothing nor all.
      expect(history.model.contacts.length).toBeGreaterThan(10);
      life.now += 31 * DAY;
      await history.expectSame();
      expect(await life.run(trustPass)).toBe(0);
    },
  );

  it('the pass over all finds what is wrong', async () => {
    await life.client.query('UPDATE trust_scores SET score = 0.123 WHERE community = $1', [
      life.communities[0],
    ]);
    const { rows } = await life.client.query(
      'SELECT count(DISTINCT subject) AS people FROM trust_scores WHERE community = $1',
      [life.communities[0]],
    );
    expect(rows[0].people).toBeGreaterThan(5);
    // Also when it goes on in the next run again and again.
    const bounds = { rows: 2, batches: 1 };
    expect(await life.run(trustPass, 0, bounds)).toBe(rows[0].people);
  });

  it('reports had weight in some of them', async () => {
    const { rows } = await life.client.query(
      'SELECT count(*) FILTER (WHERE weight > 0) AS heavy, count(*) FILTER (WHERE weight = 0) AS light FROM trust_reports',
    );
    expect(rows[0].heavy).toBeGreaterThan(15);
    expect(rows[0].light).toBeGreaterThan(5);
  });

  it('labels were on events that not everybody may read', async () => {
    const { rows } = await life.client.query(
      `SELECT count(*) FILTER (WHERE 'kukuri:shut' = ANY (topics)) AS shut, count(*) FILTER (WHERE $1 = ANY (topics)) AS changing
       FROM labels WHERE label <> 'safe'`,
      [TOPIC],
    );
    expect(rows[0].shut).toBeGreaterThan(2);
    expect(rows[0].changing).toBeGreaterThan(2);
  });
});

describe('the simulation', () => {
  const outcomes = simulate({ members: 60, crowds: [10, 100] });
  const rankAfter = (attack: RegExp) =>
    outcomes.filter(({ attack: name }) => attack.test(name)).map(({ rank }) => rank);

  it('a crowd of new keys sinks nobody, also one that has talked among itself for weeks', () => {
    expect(
      rankAfter(/^a crowd of \d+ (keys of today|that has talked among itself for (a|four) week)/),
    ).toEqual([100, 100, 100, 100, 100]);
  });

  it('a handful of established members can, and a hijacked few alone cannot', () => {
    expect(rankAfter(/^10 established/)).toEqual([0]);
    expect(rankAfter(/hijacked/)[0]).toBeGreaterThanOrEqual(70);
  });

  it('a crowd that waits for more than a month is stopped where only approved members are heard', () => {
    expect(rankAfter(/six weeks|the same/)).toEqual([0, 100]);
  });
});
