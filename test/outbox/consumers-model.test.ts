/**
 * I9, with random histories: whatever arrives or is deleted, and wherever an instance crashes, following the
 * outbox, a rebuild and the effective events give the same state.
 */
import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ensurePartitions } from '../../src/events/postgres/partitions.js';
import { JOBS } from '../../src/jobs/list.js';
import { replayFrom } from '../../src/outbox/consumers/admin.sql.js';
import { askRebuild } from '../../src/outbox/consumers/consumers.sql.js';
import { eventually } from '../support/cli.js';
import { eventWith, SEED, type Sent, START, sentOf, shuffled } from '../support/models/event-model.js';
import { FaultProxy, isCommit, type Message } from '../support/servers/fault-proxy.js';
import { hasPassed, type Instance, startInstance, stateOf } from '../support/stores/consuming.js';
import { makeLedger, readLedger, readWholeView } from '../support/stores/ledger.js';
import { type Life, openLife } from '../support/stores/life.js';

const DAY = 86_400;
const LIMIT_MS = 100_000;
const RULES = [
  { settings: { 'retention.regularDays': 3 } },
  { settings: { 'retention.dedupeDays': 1, 'retention.regularDays': 1, 'deletion.auditDays': 1 } },
  { settings: { 'retention.regularDays': 0, 'deletion.mode': 'physical' } },
];

let life: Life;

beforeAll(async () => {
  life = await openLife(START * 1_000, RULES, 2);
});
afterAll(() => life?.close());

type Step =
  | { readonly type: 'arrive'; readonly count: number }
  | { readonly type: 'jobs' }
  | { readonly type: 'pass'; readonly seconds: number }
  | { readonly type: 'rebuild' }
  | { readonly type: 'replay'; readonly back: number }
  | { readonly type: 'catch up' }
  /** At the so-many-th COMMIT from now on; the instance goes on, or another takes its place. */
  | {
      readonly type: 'crash';
      readonly commits: number;
      readonly kind: 'cut' | 'cut-after' | 'lose-answer';
      readonly forGood: boolean;
    };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ type: fc.constant('arrive' as const), count: fc.integer({ min: 1, max: 25 }) }),
  },
  { weight: 1, arbitrary: fc.constant({ type: 'jobs' as const }) },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constant('pass' as const),
      seconds: fc.constantFrom(1, 3, DAY, 2 * DAY),
    }),
  },
  { weight: 2, arbitrary: fc.constant({ type: 'rebuild' as const }) },
  {
    weight: 1,
    arbitrary: fc.record({ type: fc.constant('replay' as const), back: fc.integer({ min: 0, max: 20 }) }),
  },
  { weight: 1, arbitrary: fc.constant({ type: 'catch up' as const }) },
  {
    weight: 3,
    arbitrary: fc.record({
      type: fc.constant('crash' as const),
      commits: fc.integer({ min: 1, max: 4 }),
      kind: fc.constantFrom('cut' as const, 'cut-after' as const, 'lose-answer' as const),
      forGood: fc.boolean(),
    }),
  },
);
const events = shuffled(sentOf(eventWith([undefined, undefined, undefined, 1, 3, DAY])));
const course = fc.noBias(
  fc.record({ list: events, steps: fc.array(step, { minLength: 10, maxLength: 16, size: 'max' }) }),
);

/** The consumer under test, on an instance that is broken again and again. */
class Broken {
  private proxy: FaultProxy | undefined;
  private instance: Instance | undefined;

  constructor(
    readonly name: string,
    private readonly ledger: Awaited<ReturnType<typeof makeLedger>>,
  ) {}

  async start(): Promise<void> {
    this.proxy = await FaultProxy.start(life.test.connection);
    this.instance = await startInstance(life, [this.ledger], this.proxy.connection);
  }

  async stop(): Promise<void> {
    this.proxy?.comeBack();
    await this.instance?.stop();
    await this.proxy?.stop();
  }

  async crash(commits: number, kind: 'cut' | 'cut-after' | 'lose-answer'): Promise<void> {
    let seen = 0;
    const matches = (message: Message) => isCommit(message) && ++seen === commits;
    const crashed = this.proxy!.when(matches, { kind }).then(() => true);
    await eventually('it crashes', () => {
      this.instance!.consumers.hurry();
      return Promise.race([crashed, delay(5, undefined)]);
    });
  }

  async replace(): Promise<void> {
    this.proxy!.goDown();
    await this.instance!.stop();
    await this.proxy!.stop();
    // As after the seconds that a watcher waits.
    await life.client.query('UPDATE consumer_offsets SET holder = NULL WHERE consumer = $1', [this.name]);
    await this.start();
  }

  caughtUp(): Promise<void> {
    return hasPassed(life, this.name, [this.instance!]);
  }
}

async function submit(list: readonly Sent[]): Promise<void> {
  const idOf = (place: number) => life.communities[place]!;
  const one = ({ community, event, vanishIn }: Sent, at: number) =>
    life.submit(at % 2, idOf(community), event, vanishIn?.map(idOf));
  await Promise.all(list.map(one));
}

const SWEEPS = JOBS.filter(({ purges }) => purges);
const runJobs = async () => {
  for (const job of SWEEPS) await life.run(job, 1);
};

async function take(next: Step, waiting: Sent[], broken: Broken): Promise<void> {
  const { name } = broken;
  switch (next.type) {
    case 'arrive':
      return submit(waiting.splice(0, next.count));
    case 'jobs':
      return runJobs();
    case 'pass':
      life.now += next.seconds * 1_000;
      return;
    case 'rebuild':
      await askRebuild(life.client, name, 'asked for', life.now);
      return;
    case 'replay': {
      const { lastSeq, generation } = await stateOf(life, name);
      if (generation > 0) await replayFrom(life.client, name, Math.max(0, lastSeq - next.back));
      return;
    }
    case 'catch up':
      return broken.caughtUp();
    case 'crash':
      await broken.crash(next.commits, next.kind);
      if (next.forGood) await broken.replace();
  }
}

/** As at the first start, but for the numbers. */
async function startAgain(): Promise<void> {
  life.now = START * 1_000;
  await life.client.query(
    `TRUNCATE erasures, erasure_marks, erasure_certificates, events, event_tags, event_dedupe, event_heads,
       events_outbox, deletion_tombstones, deletion_quotas, vanish_marks,
       community_totals, topic_totals, capacity_steps, live_bus`,
  );
  await ensurePartitions(life.client, life.now);
}

let runs = 0;
let held = 0;

it('following, a rebuild and the effective events give the same state, wherever it crashes', {
  timeout: 2 * LIMIT_MS,
}, async () => {
  const property = fc.asyncProperty(course, async ({ list, steps }) => {
    await startAgain();
    runs += 1;
    const name = `model_${runs}`;
    const broken = new Broken(name, await makeLedger(life.client, name));
    await broken.start();
    try {
      await broken.caughtUp();
      const waiting = [...list];
      for (const next of steps) await take(next, waiting, broken);
      await submit(waiting);
      await runJobs();
      await broken.caughtUp();
      const view = await readWholeView(life.client);
      held += view.length;
      expect(await readLedger(life.client, name)).toEqual(view);
      await askRebuild(life.client, name, 'to compare', life.now);
      await broken.caughtUp();
      expect(await readLedger(life.client, name)).toEqual(view);
      expect(await stateOf(life, name)).toMatchObject({ deadLetters: 0 });
    } finally {
      await broken.stop();
    }
  });
  await fc.assert(property, {
    seed: SEED,
    numRuns: 7,
    interruptAfterTimeLimit: LIMIT_MS,
    markInterruptAsFailure: true,
  });
  expect(held, 'there was something to hold').toBeGreaterThan(runs * 10);
});
