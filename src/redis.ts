/**
 * The one way to Redis (I15): every connection and every question has its deadline. A Redis that is away is
 * waited for in the background: meanwhile every question is rejected at once, and a node starts without it,
 * so that both can come back in any order.
 */
import { createClient } from 'redis';
import { inTime } from './in-time.js';
import type { Log } from './log.js';

const CONNECT_MS_MAX = 2_000;
const RECONNECT_MS_MAX = 2_000;
const QUESTIONS_MAX = 10_000;
/** What a client of the node waits for. */
const ANSWER_MS_MAX = 1_000;

/** Of a connection that stays and is made again when it breaks. */
export function redisOptions(url: string) {
  return {
    url,
    disableOfflineQueue: true as const,
    commandsQueueMaxLength: QUESTIONS_MAX,
    socket: {
      connectTimeout: CONNECT_MS_MAX,
      reconnectStrategy: (retries: number) => Math.min(RECONNECT_MS_MAX, 50 * 2 ** Math.min(retries, 10)),
    },
  };
}

/** What a client of any kind can do. */
interface Connectable {
  on(event: 'error', listener: (error: unknown) => void): unknown;
  connect(): Promise<unknown>;
}

/** Returns after its deadline at the latest; the connection may come later. */
export async function connectSoon(client: Connectable, log: Log): Promise<void> {
  // Whoever asks gets an error; without a listener it would end the process.
  client.on('error', (error) => log.debug({ error: String(error) }, 'Redis does not answer'));
  await fromRedis(client.connect(), CONNECT_MS_MAX).catch(() => undefined);
}

export function fromRedis<T>(answer: Promise<T>, msMax = ANSWER_MS_MAX): Promise<T> {
  return inTime(answer, msMax, 'Redis');
}

const briefClient = (url: string) =>
  createClient({ url, socket: { connectTimeout: CONNECT_MS_MAX, reconnectStrategy: false } });
export type RedisClient = ReturnType<typeof briefClient>;

/** A connection for one piece of work, which is not made again when it breaks. Its maker destroys it. */
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

/** At once: nothing is waited for. */
export function closeRedis(client: { readonly isOpen: boolean; destroy(): void }): void {
  if (client.isOpen) client.destroy();
}
