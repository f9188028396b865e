/**
 * The one session of a process that listens to the lanes of all instances. What it hears is only a hint: when it breaks, those who
 * were woken by it poll, and a new one is opened.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from 'pg';
import type { Log } from './log.js';
import type { Database } from './postgres/database.js';
import { OUTBOX_CHANNEL } from './store/batch.js';

const RECONNECT_MS = 1_000;

export interface Woken {
  /** Before a session begins to listen. */
  opening?(client: Client): Promise<void>;
  /** What the lane said; nothing when a session has just begun to listen, and anything may have happened before. */
  wake(notice: string | undefined): void;
}

export class Wakeups {
  private readonly listeners: Woken[] = [];
  private readonly stopping = new AbortController();
  private loop: Promise<void> = Promise.resolve();

  constructor(
    private readonly database: Database,
    private readonly log: Log,
  ) {}

  add(listener: Woken): void {
    this.listeners.push(listener);
  }

  start(): void {
    this.loop = this.listenLoop();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.loop;
  }

  private tell(notice: string | undefined): void {
    for (const listener of this.listeners) listener.wake(notice);
  }

  private async listenLoop(): Promise<void> {
    while (!this.stopping.signal.aborted) {
      let client: Client | undefined;
      try {
        client = await this.database.connect();
        client.on('notification', ({ payload }) => this.tell(payload ?? ''));
        for (const listener of this.listeners) await listener.opening?.(client);
        await client.query(`LISTEN ${OUTBOX_CHANNEL}`);
        this.tell(undefined);
        await this.ended(client);
      } catch (error) {
        this.log.debug({ error: String(error) }, 'the listening session broke');
      }
      await client?.end().catch(() => undefined);
      await delay(RECONNECT_MS, undefined, { signal: this.stopping.signal }).catch(() => undefined);
    }
  }

  private ended(client: Client): Promise<void> {
    return new Promise((resolve) => {
      if (this.stopping.signal.aborted) resolve();
      client.once('end', () => resolve());
      client.once('error', () => resolve());
      this.stopping.signal.addEventListener('abort', () => resolve(), { once: true });
    });
  }
}
