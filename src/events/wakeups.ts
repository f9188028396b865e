/**
 * The one session of a process that listens for notifications of all instances: of their lanes, and of
 * changed settings and rights. A notification is only a hint; polling is the truth. While this session
 * listens, its listeners poll slowly (`pollMs`). When it breaks, they are woken and poll as often as their
 * guarantee requires, until a new session is open.
 *
 * A session may look open but be dead (a firewall dropped it, or the server's machine is off). A regular
 * probe with a deadline finds that out (I15).
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Client, Notification } from 'pg';
import { inTime } from '../limits/in-time.js';
import type { Log } from '../node/log.js';
import type { Database } from '../postgres/database.js';
import { listenTo } from '../postgres/session.js';
import { BUS_NOTICE, OUTBOX_CHANNEL } from './postgres/batch.js';

export { BUS_NOTICE };

const RECONNECT_MS = 1_000;
/** How often the session is probed, and how long an answer may take. */
const PROBE_MS = 2_500;
const PROBE_MS_MAX = 2_500;
/** How often listeners poll while the session works: the longest delay after a lost notification. */
const SAFETY_POLL_MS = 5_000;

export interface Woken {
  /** The channel that it listens to; the lane's by default. */
  readonly channel?: string;
  /** Called before a session begins to listen. */
  opening?(): Promise<void>;
  /**
   * The notification; undefined when a session has just begun to listen or has ended, because anything may
   * have happened. `isOwn`: the lane of this process has sent it.
   */
  wake(notice: string | undefined, isOwn: boolean): void;
}

export class Wakeups {
  private readonly listeners: Woken[] = [];
  private readonly stopping = new AbortController();
  private loop: Promise<void> = Promise.resolve();
  private isListening = false;
  /** The server process of the lane's session. */
  private ownProcess: number | undefined;

  constructor(
    private readonly database: Database,
    private readonly log: Log,
  ) {}

  /** Call it before `start`: channels added later are not listened to. */
  add(listener: Woken): void {
    this.listeners.push(listener);
  }

  /** The poll interval of a listener; `aloneMs` while no session would wake it. */
  pollMs(aloneMs: number): number {
    return this.isListening ? Math.max(SAFETY_POLL_MS, aloneMs) : aloneMs;
  }

  /**
   * The session of this process's lane has begun, or has ended: then listeners are woken, because they may
   * have left a notification of it to its commit, whose answer did not come.
   */
  noteLane(processId: number | undefined): void {
    this.ownProcess = processId;
    if (processId === undefined) this.wakeAll();
  }

  start(): void {
    this.loop = this.listenLoop();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.loop;
  }

  private notify({ channel, payload = '', processId }: Notification): void {
    for (const listener of this.listeners)
      if ((listener.channel ?? OUTBOX_CHANNEL) === channel)
        listener.wake(payload, processId === this.ownProcess);
  }

  private setListening(isListening: boolean): void {
    this.isListening = isListening;
    this.wakeAll();
  }

  private wakeAll(): void {
    for (const listener of this.listeners) listener.wake(undefined, false);
  }

  private async listenLoop(): Promise<void> {
    while (!this.stopping.signal.aborted) {
      let client: Client | undefined;
      try {
        client = await this.database.connect();
        client.on('notification', (notification) => this.notify(notification));
        for (const listener of this.listeners) await listener.opening?.();
        for (const { channel } of this.listeners) if (channel !== undefined) await listenTo(client, channel);
        await listenTo(client, OUTBOX_CHANNEL);
        this.setListening(true);
        await this.untilBroken(client);
      } catch (error) {
        this.log.debug({ error: String(error) }, 'the listening session broke');
      }
      if (this.isListening) this.setListening(false);
      await client?.end().catch(() => undefined);
      await delay(RECONNECT_MS, undefined, { signal: this.stopping.signal }).catch(() => undefined);
    }
  }

  /** Returns when the session has ended or this process stops; throws when the server does not answer. */
  private async untilBroken(client: Client): Promise<void> {
    const over = new AbortController();
    const end = () => over.abort();
    client.once('end', end);
    client.once('error', end);
    this.stopping.signal.addEventListener('abort', end, { once: true });
    if (this.stopping.signal.aborted) end();
    try {
      while (!over.signal.aborted) {
        await delay(PROBE_MS, undefined, { signal: over.signal }).catch(() => undefined);
        if (!over.signal.aborted)
          // LISTEN again changes nothing. It only checks that the session works.
          await inTime(listenTo(client, OUTBOX_CHANNEL), PROBE_MS_MAX, 'the listening session of PostgreSQL');
      }
    } finally {
      this.stopping.signal.removeEventListener('abort', end);
    }
  }
}
