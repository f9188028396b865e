/**
 * The sessions in Redis: two keys each, written and deleted together, with an expiry time. The client
 * reconnects to an unavailable Redis in the background. Meanwhile every request is rejected at once, and no
 * session is accepted.
 */
import { createClient } from 'redis';
import type { Log } from '../node/log.js';
import { KeptConnection, redisOptions } from '../redis/client.js';
import { readSessionValue, SESSION_PREFIX, sessionKeys, sessionValue } from './keys.js';
import {
  LISTED_MAX,
  type ListedSession,
  type Session,
  type SessionHolder,
  type SessionRef,
  type Sessions,
} from './shared.js';

/** The callers' clocks decide, not the clock of Redis, so keys live a little longer. */
const SPARE_MS = 60_000;
const SCAN_COUNT = 1_000;

const clientOf = (url: string) => createClient(redisOptions(url));

export async function openRedisSessions(url: string, log: Log): Promise<Sessions> {
  return new RedisSessions(await KeptConnection.open(() => clientOf(url), log));
}

class RedisSessions implements Sessions {
  constructor(private readonly redis: KeptConnection<ReturnType<typeof clientOf>>) {}

  async create(ref: SessionRef, { createdAt, expiresAt, csrfHash }: Session): Promise<void> {
    const [session, csrf] = sessionKeys(ref);
    const PX = expiresAt - createdAt + SPARE_MS;
    await this.redis.ask((client) =>
      client
        .multi()
        .set(session, sessionValue(createdAt, expiresAt), { PX })
        .set(csrf, sessionValue(createdAt, expiresAt, csrfHash), { PX })
        .exec(),
    );
  }

  async find(ref: SessionRef, now: number): Promise<Session | undefined> {
    const [session, csrf] = await this.redis.ask((client) => client.mGet(sessionKeys(ref)));
    // Both keys are needed: without the CSRF token a session is not protected.
    if (session == null || csrf == null || readSessionValue(session) === undefined) return undefined;
    const found = readSessionValue(csrf);
    return found === undefined || found.csrfHash === '' || found.expiresAt <= now ? undefined : found;
  }

  async end(ref: SessionRef): Promise<boolean> {
    return (await this.redis.ask((client) => client.unlink(sessionKeys(ref)))) > 0;
  }

  async list(holder: SessionHolder, now: number): Promise<ListedSession[]> {
    const found = new Map<string, ListedSession>();
    for await (const refs of this.refsOf(holder)) {
      for (const ref of refs) {
        const session = await this.find(ref, now);
        if (session === undefined) continue;
        const { createdAt, expiresAt } = session;
        found.set(ref.tokenHash, { tokenHash: ref.tokenHash, createdAt, expiresAt });
      }
    }
    return [...found.values()].sort((a, b) => b.createdAt - a.createdAt).slice(0, LISTED_MAX);
  }

  async endAll(holder: SessionHolder): Promise<number> {
    let ended = 0;
    for await (const refs of this.refsOf(holder)) for (const ref of refs) if (await this.end(ref)) ended += 1;
    return ended;
  }

  /** Page by page. A session may come twice. */
  private async *refsOf({ community, pubkey }: SessionHolder): AsyncGenerator<SessionRef[]> {
    const start = `${SESSION_PREFIX}${community}:${pubkey}:`;
    let cursor = '0';
    do {
      const page = await this.redis.ask((client) =>
        client.scan(cursor, { MATCH: `${start}*`, COUNT: SCAN_COUNT }),
      );
      yield [...new Set(page.keys)].map((key) => ({ community, pubkey, tokenHash: key.slice(start.length) }));
      cursor = page.cursor;
    } while (cursor !== '0');
  }

  async close(): Promise<void> {
    this.redis.close();
  }
}
