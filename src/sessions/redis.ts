/**
 * The sessions in Redis: two keys each, made and ended together, which go by themselves when their time is over. A Redis that is away is
 * waited for in the background: meanwhile every question is rejected at once, and nobody is believed.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { createClient } from 'redis';
import type { Log } from '../log.js';
import { inTime as answeredIn } from './in-time.js';
import { readSessionValue, SESSION_PREFIX, sessionKeys, sessionValue } from './keys.js';
import type { Session, SessionHolder, SessionRef, Sessions } from './shared.js';

const CONNECT_MS_MAX = 2_000;
const RECONNECT_MS_MAX = 2_000;
const QUESTIONS_MAX = 10_000;
const ANSWER_MS_MAX = 1_000;
/** The callers' clocks are not that of Redis; theirs decides. */
const SPARE_MS = 60_000;
const SCAN_COUNT = 1_000;

const inTime = <T>(answer: Promise<T>) => answeredIn(answer, ANSWER_MS_MAX);

function clientOf(url: string) {
  return createClient({
    url,
    disableOfflineQueue: true,
    commandsQueueMaxLength: QUESTIONS_MAX,
    socket: {
      connectTimeout: CONNECT_MS_MAX,
      reconnectStrategy: (retries) => Math.min(RECONNECT_MS_MAX, 50 * 2 ** Math.min(retries, 10)),
    },
  });
}

export async function openRedisSessions(url: string, log: Log): Promise<Sessions> {
  const client = clientOf(url);
  // Whoever asks is told; without a listener it would end the process.
  client.on('error', (error) => log.debug({ error: String(error) }, 'Redis does not answer'));
  // A node starts without its Redis too, so that both can come back in any order.
  const connected = client.connect().catch(() => undefined);
  await Promise.race([connected, delay(CONNECT_MS_MAX, undefined, { ref: false })]);
  return new RedisSessions(client);
}

class RedisSessions implements Sessions {
  constructor(private readonly client: ReturnType<typeof clientOf>) {}

  async create(ref: SessionRef, { createdAt, expiresAt, csrfHash }: Session): Promise<void> {
    const [session, csrf] = sessionKeys(ref);
    const PX = expiresAt - createdAt + SPARE_MS;
    await inTime(
      this.client
        .multi()
        .set(session, sessionValue(createdAt, expiresAt), { PX })
        .set(csrf, sessionValue(createdAt, expiresAt, csrfHash), { PX })
        .exec(),
    );
  }

  async find(ref: SessionRef, now: number): Promise<Session | undefined> {
    const [session, csrf] = await inTime(this.client.mGet(sessionKeys(ref)));
    // One without the other is no session: who could forge requests is not to be let in.
    if (session == null || csrf == null || readSessionValue(session) === undefined) return undefined;
    const found = readSessionValue(csrf);
    return found === undefined || found.csrfHash === '' || found.expiresAt <= now ? undefined : found;
  }

  async end(ref: SessionRef): Promise<boolean> {
    return (await inTime(this.client.unlink(sessionKeys(ref)))) > 0;
  }

  async endAll({ community, pubkey }: SessionHolder): Promise<number> {
    const start = `${SESSION_PREFIX}${community}:${pubkey}:`;
    let [cursor, ended] = ['0', 0];
    do {
      const page = await inTime(this.client.scan(cursor, { MATCH: `${start}*`, COUNT: SCAN_COUNT }));
      for (const key of new Set(page.keys)) {
        const ref = { community, pubkey, tokenHash: key.slice(start.length) };
        if (await this.end(ref)) ended += 1;
      }
      cursor = page.cursor;
    } while (cursor !== '0');
    return ended;
  }

  async close(): Promise<void> {
    if (this.client.isOpen) this.client.destroy();
  }
}
