/** Reads the outbox by SQL as a consumer would, `seq > last`, all the time: a row that it skips breaks I8. */
import { setTimeout as delay } from 'node:timers/promises';
import type { WorldPostgres } from '../world/postgres.js';

const POLL_MS = 100;
const AGAIN_MS = 500;

export class OutboxTail {
  readonly seen = new Set<number>();
  last = 0;
  private isRunning = true;
  private readonly loop: Promise<void>;

  constructor(private readonly postgres: WorldPostgres) {
    this.loop = this.run();
  }

  async stop(): Promise<void> {
    this.isRunning = false;
    await this.loop;
  }

  private async run(): Promise<void> {
    while (this.isRunning) {
      await this.postgres.withClient((client) => this.follow(client)).catch(() => undefined);
      if (this.isRunning) await delay(AGAIN_MS);
    }
  }

  private async follow(client: {
    query(text: string, values: unknown[]): Promise<{ rows: { seq: string }[] }>;
  }): Promise<void> {
    while (this.isRunning) {
      const { rows } = await client.query(
        'SELECT seq FROM events_outbox WHERE seq > $1 ORDER BY seq LIMIT 1000',
        [this.last],
      );
      for (const { seq } of rows) this.seen.add(Number(seq));
      this.last = Math.max(this.last, ...rows.map(({ seq }) => Number(seq)));
      await delay(POLL_MS);
    }
  }
}
