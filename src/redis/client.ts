/**
 * All access to Redis (I15): every connection and every command has a deadline. While Redis is away, the
 * client reconnects in the background and every command is rejected at once. A node starts without Redis, so
 * that both can be restarted in any order. A connection may also end without a word: then it is replaced.
 */
import { createClient } from 'redis';
import { inTime, isNoAnswer } from '../limits/in-time.js';
import type { Log } from '../node/log.js';

const CONNECT_MS_MAX = 2_000;
const RECONNECT_MS_MAX = 2_000;
const COMMANDS_MAX = 10_000;
/** A client of the node waits for this. */
const ANSWER_MS_MAX = 1_000;
/** A connection that is not made by then may wait for an answer that never comes. */
const UNREADY_MS_MAX = 5_000;

/** Options of a connection that reconnects when it breaks. */
export function redisOptions(url: string) {
  return {
    url,
    disableOfflineQueue: true as const,
    commandsQueueMaxLength: COMMANDS_MAX,
    socket: {
      connectTimeout: CONNECT_MS_MAX,
      reconnectStrategy: (retries: number) => Math.min(RECONNECT_MS_MAX, 50 * 2 ** Math.min(retries, 10)),
    },
  };
}

/** What every kind of client has. */
interface Connectable {
  readonly isOpen: boolean;
  readonly isReady: boolean;
  on(event: 'error', listener: (error: unknown) => void): unknown;
  connect(): Promise<unknown>;
  destroy(): void;
}

/**
 * A connection that is kept. When the peer was replaced, or a router has forgotten the connection, nobody
 * says so: commands are sent and never answered, for as long as the system repeats them, many minutes. So a
 * connection that leaves a command unanswered is closed, and another one is made.
 */
export class KeptConnection<C extends Connectable> {
  private client: C;
  private madeMs = performance.now();
  private isClosed = false;

  private constructor(
    private readonly make: () => C,
    private readonly log: Log,
  ) {
    this.client = make();
  }

  /** Returns after its deadline at the latest; the connection may be made later. */
  static async open<C extends Connectable>(make: () => C, log: Log): Promise<KeptConnection<C>> {
    const kept = new KeptConnection(make, log);
    await kept.connect();
    return kept;
  }

  async ask<T>(command: (client: C) => Promise<T>): Promise<T> {
    const { client } = this;
    try {
      return await fromRedis(command(client));
    } catch (error) {
      const isLate = !client.isReady && performance.now() - this.madeMs > UNREADY_MS_MAX;
      if (isLate || isNoAnswer(error)) this.replace(client);
      throw error;
    }
  }

  close(): void {
    this.isClosed = true;
    closeRedis(this.client);
  }

  private async connect(): Promise<void> {
    // Callers get their own error. Without a listener this one would end the process.
    this.client.on('error', (error) => this.log.debug({ error: String(error) }, 'Redis does not answer'));
    await fromRedis(this.client.connect(), CONNECT_MS_MAX).catch(() => undefined);
  }

  private replace(silent: C): void {
    if (this.isClosed || silent !== this.client) return;
    closeRedis(silent);
    this.client = this.make();
    this.madeMs = performance.now();
    void this.connect();
  }
}

export function fromRedis<T>(answer: Promise<T>, msMax = ANSWER_MS_MAX): Promise<T> {
  return inTime(answer, msMax, 'Redis');
}

const briefClient = (url: string) =>
  createClient({ url, socket: { connectTimeout: CONNECT_MS_MAX, reconnectStrategy: false } });
export type RedisClient = ReturnType<typeof briefClient>;

/** A connection for one task, which does not reconnect. The caller closes it. */
export async function openBriefly(url: string, msMax: number): Promise<RedisClient> {
  const client = briefClient(url);
  client.on('error', () => undefined);
  try {
    await fromRedis(client.connect(), msMax);
    return client;
  } catch (error) {
    closeRedis(client);
    throw error;
  }
}

/** Closes at once, without waiting. */
export function closeRedis(client: { readonly isOpen: boolean; destroy(): void }): void {
  if (client.isOpen) client.destroy();
}
