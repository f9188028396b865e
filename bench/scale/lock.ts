/**
 * Watches the lock of the lane in a running PostgreSQL: which share of the time a transaction holds it, what
 * its session does meanwhile, and how many other sessions wait for it. It looks every few milliseconds over a
 * connection of its own, so the shares are those of a sample.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { LANE_LOCK } from '../../src/events/postgres/lane/lock.js';

const LOOK_MS = 3;

/** One lane is one database: the lock belongs to it. */
export interface LockUse {
  /** Shares of the looks, added over all lanes: 2 if two lanes are always held. */
  readonly held: number;
  /** Of `held`: the session computes, waits for the disk, or waits for the node's next statement. */
  readonly computing: number;
  readonly flushing: number;
  readonly forNode: number;
  /** Sessions that wait for a lock that another holds, on average. */
  readonly waiting: number;
  readonly looks: number;
}

interface Look {
  readonly granted: boolean;
  readonly state: string;
  readonly waits: string | null;
}

export class LockWatch {
  private readonly looks: Look[][] = [];
  private isStopping = false;
  private readonly running: Promise<void>;

  private constructor(private readonly client: pg.Client) {
    this.running = this.run();
  }

  static async start(connection: pg.ClientConfig): Promise<LockWatch> {
    const client = new pg.Client(connection);
    // The server may stop first, when a run is interrupted.
    client.on('error', () => undefined);
    await client.connect();
    return new LockWatch(client);
  }

  /** Looks so far. */
  get count(): number {
    return this.looks.length;
  }

  async stop(): Promise<LockUse> {
    this.isStopping = true;
    await this.running;
    await this.client.end();
    const count = (is: (look: Look) => boolean) =>
      this.looks.reduce((sum, look) => sum + look.filter(is).length, 0) / Math.max(1, this.looks.length);
    const isActive = ({ granted, state }: Look) => granted && state === 'active';
    return {
      held: count(({ granted }) => granted),
      computing: count((look) => isActive(look) && look.waits === null),
      flushing: count((look) => isActive(look) && look.waits !== null && look.waits !== 'Client'),
      forNode: count((look) => look.granted && (!isActive(look) || look.waits === 'Client')),
      waiting: count(({ granted }) => !granted),
      looks: this.looks.length,
    };
  }

  private async run(): Promise<void> {
    while (!this.isStopping) {
      const { rows } = await this.client.query<Look>({
        name: 'look',
        text: `SELECT l.granted, a.state, a.wait_event_type AS waits
          FROM pg_locks l JOIN pg_stat_activity a USING (pid)
          WHERE l.locktype = 'advisory' AND l.classid = 0 AND l.objid = $1 AND l.objsubid = 1`,
        values: [LANE_LOCK],
      });
      this.looks.push(rows);
      await sleep(LOOK_MS);
    }
  }
}

export const percent = (share: number): string => `${(share * 100).toFixed(0)} %`;

export function lockText({ held, computing, flushing, forNode, waiting }: LockUse): string {
  return (
    `lock held ${percent(held)} of the time ` +
    `(computing ${percent(computing)}, flushing ${percent(flushing)}, ` +
    `waiting for the node ${percent(forNode)}); ${waiting.toFixed(2)} sessions wait for it`
  );
}
