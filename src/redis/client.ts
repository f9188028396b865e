/**
 * All access to Redis (I15): every connection and every command has a deadline. While Redis is away, the
 * client reconnects in the background and every command is rejected at once. A node starts without Redis, so
 * that both can be restarted in any order.
 */
import { createClient } from 'redis';
import { inTime } from '../limits/in-time.js';
import type { Log } from '../node/log.js';

const CONNECT_MS_MAX = 2_000;
const RECONNECT_MS_MAX = 2_000;
const COMMANDS_MAX = 10_000;
/** A client of the node waits for this. */
const ANSWER_MS_MAX = 1_000;

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

/** The methods that every kind of client has. */
interface Connectable {
  on(event: 'error', listener: (error: unknown) => void): unknown;
  connect(): Promise<unknown>;
}

/** Returns after its deadline at the latest; the connection may be made later. */
export async function connectSoon(client: Connectable, log: Log): Promise<void> {
  // Callers get their own error. Without a listener this one would end the process.
  client.on('error', (error) => log.debug({ error: String(error) }, 'Redis does not answer'));
  await fromRedis(client.connect(), CONNECT_MS_MAX).catch(() => undefined);
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
