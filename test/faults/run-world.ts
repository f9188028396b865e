/**
 * Runs the rounds of one world: operations and faults at the same time, then everything is healed, every
 * operation gets its answer, and the checks compare what is there with the model.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { VerifiedEvent } from 'nostr-tools/pure';
import { checkDatabase, readSnapshot } from './checks/database.js';
import { checkFollowers, findInDynamodb, findInRedis, findInTables, readErasures } from './checks/erasure.js';
import { checkProcesses } from './checks/processes.js';
import { checkIndex, readIndex } from './checks/search.js';
import { checkView } from './checks/view.js';
import type { CursorReader } from './clients/cursor-reader.js';
import { Crew } from './crew.js';
import type { Programs } from './environment.js';
import { Faults } from './faults.js';
import { personOf, Signer } from './keys.js';
import { type Expected, expectedView } from './model.js';
import { COMMUNITIES, hasPeer, INSTANCES, planWorld, SHARED } from './plan.js';
import { probe } from './probe.js';
import { type Violation, Violations } from './violations.js';
import { openWorld, type World } from './world/world.js';

/** More time for gossip: it dials a peer again after a minute, and fills later after each failure. */
const CONVERGE_FACTOR = 2;
const LOOK_MS = 200;
/** A wait that takes longer is printed. */
const SLOW_MS = 30_000;

export interface RoundResult {
  readonly round: number;
  readonly seconds: number;
  readonly faults: ReadonlyMap<string, number>;
  readonly skipped: ReadonlyMap<string, number>;
  readonly operations: ReadonlyMap<string, number>;
  readonly events: number;
  readonly violations: readonly Violation[];
  /** What each node has logged last. */
  readonly said: ReadonlyMap<string, string>;
}

export interface WorldOptions {
  readonly seed: number;
  readonly world: number;
  /** How many of its rounds. */
  readonly rounds: number;
  readonly programs: Programs;
  readonly onRound: (result: RoundResult) => void;
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
  readonly settleMs: number;
}

export async function runWorld(options: WorldOptions): Promise<void> {
  const admin = personOf(options.seed, 'admin');
  const world = await openWorld(options.programs, admin.pubkey, hasPeer(options.world));
  try {
    await new WorldRun(options, world, admin).run();
  } finally {
    await world.close();
  }
}

class WorldRun {
  private readonly violations = new Violations();
  private readonly plan;
  private readonly faults: Faults;
  private readonly crew: Crew;
  private readonly signer: Signer;
  private isHealthy = false;
  /** Of the round that runs: when it began, and what was posted in it. */
  private began = 0;
  private posted: readonly number[] = [];

  constructor(
    private readonly options: WorldOptions,
    private readonly world: World,
    private readonly admin: ReturnType<typeof personOf>,
  ) {
    this.plan = planWorld(options.seed, options.world);
    this.faults = new Faults(world);
    this.signer = new Signer(options.seed, options.world, this.plan.events);
    this.crew = new Crew({
      world,
      faults: this.faults,
      signer: this.signer,
      events: this.plan.events,
      admin,
      violations: this.violations,
      isHealthy: () => this.isHealthy,
    });
  }

  async run(): Promise<void> {
    const { rounds, signal } = this.options;
    try {
      await this.world.ensure();
      await this.crew.setUp();
      this.isHealthy = true;
      for (let round = 0; round < rounds && !signal.aborted; round += 1) {
        const isLast = round === rounds - 1;
        const result = await this.runRound(round, isLast);
        this.options.onRound(result);
        // The model and the node have parted: later rounds would only repeat it.
        if (result.violations.length > 0) return;
      }
    } finally {
      await this.crew.stop();
    }
  }

  private async runRound(round: number, isLast: boolean): Promise<RoundResult> {
    const began = Date.now();
    const { operations, faults } = this.plan.rounds[round]!;
    this.began = began;
    this.posted = operations.flatMap((one) => (one.do === 'post' ? [one.event] : []));
    const counts = { made: new Map(this.faults.made), skipped: new Map(this.faults.skipped) };
    const before = this.crew.sentFrames;
    const failed = (error: unknown) => this.violations.add('progress', (error as Error).message);
    this.isHealthy = false;
    const performed = operations.map((operation) => this.crew.perform(operation).catch(failed));
    const following = this.crew.mirror.follow(INSTANCES);
    const probing = probe(this.world, this.violations);
    await Promise.all(faults.map((fault) => this.faults.make(fault)));
    for (const reader of this.crew.cursorReaders) if (round % 2 === 0) reader.leave();
    await probing.stop();
    this.faults.dismissClients();
    try {
      await this.world.ensure();
      this.isHealthy = true;
      await this.inTime('every operation has its answer', Promise.all(performed));
      await following.stop();
      await this.check(isLast);
    } catch (error) {
      failed(error);
    } finally {
      await following.stop();
    }
    const kinds = new Map<string, number>();
    for (const { do: name } of operations) kinds.set(name, (kinds.get(name) ?? 0) + 1);
    return {
      round,
      seconds: (Date.now() - began) / 1_000,
      faults: difference(this.faults.made, counts.made),
      skipped: difference(this.faults.skipped, counts.skipped),
      operations: kinds,
      events: this.crew.sentFrames - before,
      violations: [...this.violations.found],
      said: new Map(Object.entries(this.world.nodes).map(([name, { said }]) => [name, said])),
    };
  }

  private async check(isLast: boolean): Promise<void> {
    await this.settled();
    await this.checkViews();
    const { world, violations, crew } = this;
    const facts = { sent: crew.sent, erased: crew.acts.erased, expiredUpTo: this.expiredUpTo() };
    await world.postgres.withClient(async (client) => {
      checkDatabase(await readSnapshot(client), facts, violations);
      const { rows } = await client.query<{ seq: string }>('SELECT seq FROM events_outbox');
      const skipped = rows.filter(
        ({ seq }) => Number(seq) <= crew.tail.last && !crew.tail.seen.has(Number(seq)),
      );
      if (skipped.length > 0)
        violations.add('I8', `a reader skipped ${skipped.map(({ seq }) => seq).join(', ')}`);
      checkFollowers(await readErasures(client), violations);
      await this.checkTopics(client);
    });
    this.checkReaders();
    checkProcesses(world, violations);
    if (isLast) await this.checkEnd();
    if (isLast) await this.checkGossip();
  }

  /** Consumers, readers and live delivery have caught up with the last change. */
  private async settled(): Promise<void> {
    const { crew, world } = this;
    await this.until('the search index is current', async () =>
      world.postgres.withClient(async (client) => (await readIndex(client)).isCurrent),
    );
    await this.until('the mirror is at the head', async () => {
      if (crew.mirrorMustRebuild)
        this.violations.add('I17', 'the follower has to rebuild although it followed');
      return crew.mirrorMustRebuild || crew.mirror.advance(0);
    });
    await this.until('the readers are live', () =>
      [
        ...crew.cursorReaders.map(({ isLive }) => isLive),
        ...crew.watchers.map((one) => one.liveSince !== undefined),
      ].every(Boolean),
    );
    await this.until('the copies are complete', () => this.copyDifferences().length === 0).catch(() => {
      for (const what of this.copyDifferences()) this.violations.add('I10', what);
    });
    await this.until('live events have arrived', () => this.missedLive().length === 0).catch(() => {
      for (const what of this.missedLive()) this.violations.add('I10', what);
    });
  }

  private async checkViews(): Promise<void> {
    const { crew, violations, world } = this;
    const ids = crew.sent.map(({ event }) => event.id);
    const nameOf = (id: string) => crew.nameOf(id);
    for (let instance = 0; instance < INSTANCES; instance += 1)
      for (let community = 0; community < COMMUNITIES.length; community += 1) {
        const port = world.port(instance);
        await this.until('queries are answered', () => {
          const expected = this.expected(community);
          return checkView({ port, community, expected, ids, violations, nameOf });
        });
      }
    await world.postgres.withClient(async (client) => {
      checkIndex('followed live', await readIndex(client), this.expected(0), violations);
    });
  }

  /** I10: the copies that were kept by cursor are what is served. */
  private copyDifferences(): string[] {
    const { served, open, expired } = this.expected(0);
    const [posts, sea] = this.crew.cursorReaders;
    const isPost = ({ kind }: VerifiedEvent) => kind === 1;
    const isOfSea = ({ kind, tags }: VerifiedEvent) =>
      kind !== 5 && tags.some(([name, value]) => name === 't' && value === 'sea');
    return [
      ['posts by cursor', posts!, isPost],
      ['a topic by cursor', sea!, isOfSea],
    ].flatMap(([what, reader, wanted]) => {
      const fits = wanted as typeof isPost;
      const { copy } = reader as CursorReader;
      const all = [...served.values()].filter(fits);
      const missing = all.filter(({ id }) => !copy.has(id));
      const surplus = [...copy.values()].filter(
        (event) => fits(event) && ![open, expired, served].some((known) => known.has(event.id)),
      );
      const list = (events: readonly VerifiedEvent[]) =>
        events
          .slice(0, 3)
          .map(({ id }) => this.crew.nameOf(id))
          .join('; ');
      return [
        ...(missing.length > 0 ? [`${what}: ${missing.length} missing: ${list(missing)}`] : []),
        ...(surplus.length > 0 ? [`${what}: ${surplus.length} too many: ${list(surplus)}`] : []),
      ];
    });
  }

  /** I10: a live subscription that was open for the whole round has every event of it that is served. */
  private missedLive(): string[] {
    return this.crew.watchers.flatMap((watcher) => {
      if (watcher.liveSince === undefined || watcher.liveSince > this.began) return [];
      const { served } = this.expected(watcher.community);
      const ids = this.posted.map((number) => this.signer.sign(number)).filter(({ kind }) => kind !== 5);
      const missed = ids.filter(({ id }) => served.has(id) && !watcher.has(id));
      return missed.map(({ id }) => `a live subscription missed ${this.crew.nameOf(id)}`);
    });
  }

  private checkReaders(): void {
    const { crew, violations } = this;
    const { served, open, expired } = this.expected(0);
    const expected = new Set(served.keys());
    const seen = new Set([...crew.mirror.copy.keys()].filter((id) => !open.has(id) && !expired.has(id)));
    violations.same('I8', 'the copy of the mirror', { expected, seen }, (id) => crew.nameOf(id));
  }

  private async checkTopics(client: {
    query<T extends object>(text: string): Promise<{ rows: T[] }>;
  }): Promise<void> {
    const { rows } = await client.query<{ key: string; count: string }>(
      `SELECT encode(pubkey, 'hex') || ' ' || topic AS key, count(*) AS count FROM topic_subscriptions
       WHERE status = 'active' GROUP BY 1`,
    );
    const active = new Map(rows.map(({ key, count }) => [key, Number(count)]));
    for (const key of this.crew.approved)
      if (active.get(key) !== 1)
        this.violations.add(
          'topics',
          `an approved request has ${active.get(key) ?? 0} subscriptions: ${key}`,
        );
  }

  /** What takes longer: erasures are complete and leave nothing, and a rebuilt index is the same. */
  private async checkEnd(): Promise<void> {
    const { world, crew, admin } = this;
    const run = (job: string) =>
      crew.http.ask(admin, { method: 'POST', path: `/v1/admin/jobs/${job}/run`, instance: 0 });
    await this.until('every erasure is complete', async () => {
      await crew.mirror.advance(0);
      const rows = await world.postgres.withClient(readErasures);
      if (rows.every(({ stage }) => stage === 'completed')) return true;
      await run('erase');
      await delay(1_000);
      return false;
    });
    for (const pubkey of crew.acts.erased) await this.checkErased(pubkey);
    await this.until('the audit log is shipped', async () => {
      await run('ship-audit');
      await delay(500);
      return world.postgres.withClient(async (client) => {
        const { rows } = await client.query<{ count: string }>('SELECT count(*) FROM audit_log');
        return Number(rows[0]!.count) === 0;
      });
    });
    await this.checkRebuild();
  }

  /** The node and its peer agree, and nothing that was deleted, expired, held or erased comes back. */
  private async checkGossip(): Promise<void> {
    const { gossip, acts } = this.crew;
    if (gossip === undefined) return;
    const nameOf = (id: string) => this.crew.nameOf(id);
    let differences: readonly string[] = [];
    const look = async () => {
      differences = await gossip.differences(this.expected(SHARED), nameOf);
      return differences.length === 0;
    };
    const began = Date.now();
    await this.until('the node and its peer agree', look, this.options.settleMs * CONVERGE_FACTOR).catch(
      () => {
        for (const what of differences) this.violations.add('gossip', what);
      },
    );
    this.options.say(`  the node and its peer agree after ${((Date.now() - began) / 1_000).toFixed(1)} s`);
    await gossip.checkRows(this.violations);
    for (const pubkey of acts.erased) await this.checkErased(pubkey);
  }

  private async checkErased(pubkey: string): Promise<void> {
    const { world, violations, crew } = this;
    const found = await world.postgres.withClient((client) => findInTables(client, pubkey));
    if (found.length > 0) violations.add('I12', `an erased member is still in ${found.join(', ')}`);
    const keys = await findInRedis(world.redisPort, pubkey, world.hasPeer);
    if (keys.length > 0) violations.add('I12', `an erased member is in Redis: ${keys.join(', ')}`);
    const tables = await findInDynamodb(world.dynamodbUrl, pubkey);
    if (tables.length > 0) violations.add('I12', `an erased member is in DynamoDB: ${tables.join(', ')}`);
    if ([...crew.mirror.copy.values()].includes(pubkey))
      violations.add('I17', 'an erased member is in the copy of the mirror');
  }

  private async checkRebuild(): Promise<void> {
    const { world, crew, admin, violations } = this;
    const read = () => world.postgres.withClient(readIndex);
    const { generation } = await read();
    const request = { method: 'POST', path: '/v1/admin/consumers/search/rebuild', body: {}, instance: 0 };
    const isDone = ({ status }: { status: number }) => status < 300;
    await crew.http.insist(admin, request, { isDone, untilMs: 60_000 });
    await this.until('the index is rebuilt', async () => {
      const now = await read();
      return now.generation > generation && now.isCurrent;
    });
    checkIndex('rebuilt', await read(), this.expected(0), violations);
  }

  private expected(community: number): Expected {
    const now = Math.floor(Date.now() / 1_000);
    const times = { from: now - 2, to: now + this.faults.aheadMax + 30 };
    return expectedView(this.crew.sent, community, this.crew.acts, times);
  }

  private expiredUpTo(): number {
    return Math.floor(Date.now() / 1_000) + this.faults.aheadMax + 30;
  }

  private async until(
    what: string,
    look: () => Promise<boolean> | boolean,
    withinMs = this.options.settleMs,
  ): Promise<void> {
    const until = Date.now() + withinMs;
    const slow = setTimeout(() => this.options.say(`  waiting until ${what}`), SLOW_MS);
    try {
      await this.look(what, look, until);
    } finally {
      clearTimeout(slow);
    }
  }

  private async look(what: string, look: () => Promise<boolean> | boolean, until: number): Promise<void> {
    for (;;) {
      let why = '';
      const isTrue = await Promise.resolve(look()).catch((error: Error) => {
        why = error.message;
        return false;
      });
      if (isTrue) return;
      if (Date.now() > until) throw new Error(`this did not happen: ${what} ${why}`);
      await delay(LOOK_MS);
    }
  }

  private async inTime(what: string, work: Promise<unknown>): Promise<void> {
    const timer = delay(this.options.settleMs, 'late' as const, { ref: false });
    const slow = setTimeout(() => this.options.say(`  waiting until ${what}`), SLOW_MS);
    void work.finally(() => clearTimeout(slow));
    if ((await Promise.race([work, timer])) === 'late')
      throw new Error(
        `this did not happen: ${what}; events without one: ${this.crew.unanswered.join('; ') || 'none'}`,
      );
  }
}

function difference(
  now: ReadonlyMap<string, number>,
  before: ReadonlyMap<string, number>,
): Map<string, number> {
  const changed = [...now].map(([name, count]) => [name, count - (before.get(name) ?? 0)] as const);
  return new Map(changed.filter(([, count]) => count > 0));
}
