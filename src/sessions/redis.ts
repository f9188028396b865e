/**
 * The sessions in Redis: two keys each, made and ended together, which go by themselves when their time is over. A Redis that is away is
 * waited for in the background: meanwhile every question is rejected at once, and nobody is believed.
 */
import { createClient } from 'redis';
import type { Log } from '../log.js';
import { closeRedis, connectSoon, fromRedis, redisOptions } from '../redis.js';
import { readSessionValue, SESSION_PREFIX, sessionKeys, sessionValue } from './keys.js';
import type { Session, SessionHolder, SessionRef, Sessions } from './shared.js';

/** The callers' clocks are not that of Redis; theirs decides. */
const SPARE_MS = 60_000;
const SCAN_COUNT = 1_000;

const clientOf = (url: string) => createClient(redisOptions(url));

export async function openRedisSessions(url: string, log: Log): Promise<Sessions> {
  const client = clientOf(url);
  await connectSoon(client, log);
  return new RedisSessions(client);
}

class RedisSessions implements Sessions {
  constructor(private readonly client: ReturnType<typeof clientOf>) {}

  async create(ref: SessionRef, { createdAt, expiresAt, csrfHash }: Session): Promise<void> {
    const [session, csrf] = sessionKeys(ref);
    const PX = expiresAt - createdAt + SPARE_MS;
    await fromRedis(
      this.client
        .multi()
        .set(session, sessionValue(createdAt, expiresAt), { PX })
        .set(csrf, sessionValue(createdAt, expiresAt, csrfHash), { PX })
        .exec(),
    );
  }

  async find(ref: SessionRef, now: number): Promise<Session | undefined> {
    const [session, csrf] = await fromRedis(this.client.mGet(sessionKeys(ref)));
    // One without the other is no session: who could forge requests is not to be let in.
    if (session == null || csrf == null || readSessionValue(session) === undefined) return undefined;
    const found = readSessionValue(csrf);
    return found === undefined || found.csrfHash === '' || found.expiresAt <= now ? undefined : found;
  }

  async end(ref: SessionRef): Promise<boolean> {
    return (await fromRedis(this.client.unlink(sessionKeys(ref)))) > 0;
  }

  async endAll({ community, pubkey }: SessionHolder): Promise<number> {
    const start = `${SESSION_PREFIX}${community}:${pubkey}:`;
    let [cursor, ended] = ['0', 0];
    do {
      const page = await fromRedis(this.client.scan(cursor, { MATCH: `${start}*`, COUNT: SCAN_COUNT }));
      for (const key of new Set(page.keys)) {
        const ref = { community, pubkey, tokenHash: key.slice(start.length) };
        if (await this.end(ref)) ended += 1;
      }
      cursor = page.cursor;
    } while (cursor !== '0');
    return ended;
  }

  async close(): Promise<void> {
    closeRedis(this.client);
  }
}
