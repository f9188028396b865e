/**
 * Instances that only run consumers, over one store that the test writes to. Each has its own connections.
 */
import { watchCommunities } from '../../../src/communities/communities.js';
import type { NostrEvent } from '../../../src/events/rules/event.js';
import { Wakeups } from '../../../src/events/wakeups.js';
import { createLog } from '../../../src/node/log.js';
import { createMetrics, type Metrics } from '../../../src/node/metrics.js';
import { type ConsumerState, readConsumers } from '../../../src/outbox/consumers/admin.sql.js';
import type { Consumer } from '../../../src/outbox/consumers/consumer.js';
import { RecentChanges } from '../../../src/outbox/consumers/recent-changes.js';
import { report } from '../../../src/outbox/consumers/report.js';
import { type RunningConsumers, startConsumers } from '../../../src/outbox/consumers/start.js';
import { openDatabase } from '../../../src/postgres/database.js';
import type { EmbeddedConnection } from '../../../src/postgres/embedded.js';
import { eventually } from '../cli.js';
import { hash, type Life, unsigned } from './life.js';

export interface Instance {
  readonly consumers: RunningConsumers;
  /** The current metrics of a consumer. */
  measured(name: string): Promise<Record<string, number>>;
  stop(): Promise<void>;
}

export async function startInstance(
  life: Life,
  consumers: readonly Consumer[],
  connection: EmbeddedConnection = life.test.connection,
): Promise<Instance> {
  const database = openDatabase(connection);
  const log = createLog('fatal');
  const communities = await watchCommunities(database.ownPool, log);
  const wakeups = new Wakeups(database, log);
  const metrics = createMetrics();
  const now = () => life.now;
  // As in a node: it holds the instance's own commits, not those of others.
  const recent = new RecentChanges();
  const deafen = life.onCommit(0, (writes) => recent.onCommit(writes));
  const options = { database, communities, consumers, wakeups, metrics, log, now, recent };
  const running = startConsumers(options);
  wakeups.start();
  return {
    consumers: running,
    measured: async (name) => {
      await report(options);
      return valuesOf(metrics, name);
    },
    stop: async () => {
      deafen();
      await running.stop();
      await wakeups.stop();
      await communities.stop();
      await database.close();
    },
  };
}

async function valuesOf({ registry }: Metrics, name: string): Promise<Record<string, number>> {
  const lines = (await registry.metrics()).matchAll(/^minato_consumer_(\w+){consumer="(\w+)"} (.*)$/gm);
  const own = [...lines].filter(([, , consumer]) => consumer === name);
  return Object.fromEntries(own.map(([, metric, , value]) => [metric, Number(value)]));
}

async function findState({ client }: Life, name: string): Promise<ConsumerState | undefined> {
  return (await readConsumers(client, Date.now())).find(({ consumer }) => consumer === name);
}

export async function stateOf(life: Life, name: string): Promise<ConsumerState> {
  const found = await findState(life, name);
  if (found === undefined) throw new Error(`there is no consumer ${name}`);
  return found;
}

/** Waits with the test's own connection: `drained` of an instance with broken connections would fail. */
export async function hasPassed(
  life: Life,
  name: string,
  instances: readonly Instance[] = [],
): Promise<void> {
  await eventually(`${name} has passed everything`, async () => {
    for (const { consumers } of instances) consumers.hurry();
    const found = await findState(life, name);
    const isWhole = found !== undefined && found.generation > 0 && found.rebuild === undefined;
    return isWhole && found.lagRows === 0 ? true : undefined;
  });
}

let made = 0;

/** Events of one author, one after another. */
export class Poster {
  readonly pubkey = hash(`poster ${made++}`);

  constructor(
    private readonly life: Life,
    private readonly place = 0,
  ) {}

  async send(
    draft: Partial<NostrEvent> = {},
    vanishIn?: readonly number[],
    instance = 0,
  ): Promise<NostrEvent> {
    made += 1;
    const { life, pubkey } = this;
    const event = unsigned({ kind: 1, pubkey, created_at: made, content: `${made}`, ...draft });
    const outcome = await life.submit(instance, life.communities[this.place]!, event, vanishIn);
    if (outcome !== 'stored') throw new Error(outcome);
    return event;
  }

  /** In as few commits as the lane allows. */
  sendMany(count: number): Promise<NostrEvent[]> {
    return Promise.all(Array.from({ length: count }, () => this.send()));
  }

  delete(...targets: readonly NostrEvent[]): Promise<NostrEvent> {
    return this.send({ kind: 5, tags: targets.map(({ id }) => ['e', id]) });
  }

  vanish(): Promise<NostrEvent> {
    const tags = [['relay', 'ALL_RELAYS']];
    return this.send({ kind: 62, tags }, [this.life.communities[this.place]!]);
  }
}
