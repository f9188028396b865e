/**
 * The shared limits in Redis. Redis runs one script at a time, which makes each take exact. A key expires
 * when its bucket is full again. While Redis is away, the client reconnects in the background and every call
 * is rejected at once.
 */
import { createClient, defineScript } from 'redis';
import type { Log } from '../node/log.js';
import { closeRedis, fromRedis, KeptConnection, openBriefly, redisOptions } from '../redis/client.js';
import { takenOf } from './answer.js';
import { RATE_PREFIX, USED_PREFIX } from './keys.js';
import { CLOCK_APART_MS_MAX, ROUNDING } from './limits.sql.js';
import type { SharedLimits, Taken } from './shared.js';

/** Longer than a client would wait: only doctor uses it. */
const DOCTOR_MS_MAX = 3_000;
/** A key is kept this much longer than needed: Redis and its callers have different clocks. */
const SPARE_MS = CLOCK_APART_MS_MAX;

/** A new key has the whole burst. Numbers are returned as text: Redis would cut off their fractions. */
const TAKE = `
local now, wanted, rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local tokens, at = burst, now
local held = redis.call('HMGET', KEYS[1], 'tokens', 'at')
if held[1] then
  at = tonumber(held[2])
  tokens = math.min(burst, tonumber(held[1]) + math.max(0, now - at) * rate / 1000)
  if at < now or at - now > ${CLOCK_APART_MS_MAX} then at = now end
end
local granted = math.min(wanted, math.floor(tokens + ${ROUNDING}))
tokens = string.format('%.17g', math.max(0, tokens - granted))
at = string.format('%.0f', at)
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', at)
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return {string.format('%.0f', granted), tokens, at}
`;

const USE_ONCE = `
local until_ms = redis.call('GET', KEYS[1])
if until_ms and tonumber(until_ms) >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
`;

const scripts = {
  takeTokens: defineScript({
    SCRIPT: TAKE,
    NUMBER_OF_KEYS: 1,
    parseCommand: (parser, key: string, ...numbers: number[]) => {
      parser.pushKey(key);
      parser.push(...numbers.map(String));
    },
    transformReply: (reply: unknown) => {
      const [granted, tokens, at] = reply as [string, string, string];
      return { granted: Number(granted), tokens: Number(tokens), at: Number(at) };
    },
  }),
  useOnce: defineScript({
    SCRIPT: USE_ONCE,
    NUMBER_OF_KEYS: 1,
    parseCommand: (parser, key: string, ...numbers: number[]) => {
      parser.pushKey(key);
      parser.push(...numbers.map(String));
    },
    transformReply: (reply: unknown) => reply === 1,
  }),
};

const clientOf = (url: string) => createClient({ ...redisOptions(url), scripts });

export async function openRedisLimits(url: string, log: Log): Promise<SharedLimits> {
  return new RedisLimits(await KeptConnection.open(() => clientOf(url), log));
}

class RedisLimits implements SharedLimits {
  constructor(private readonly redis: KeptConnection<ReturnType<typeof clientOf>>) {}

  async take(key: string, wanted: number, perSecond: number, burst: number, nowMs: number): Promise<Taken> {
    const fullAfterMs = Math.ceil((burst / perSecond) * 1_000);
    const keptMs = fullAfterMs + SPARE_MS;
    const bucket = await this.redis.ask((client) =>
      client.takeTokens(RATE_PREFIX + key, nowMs, wanted, perSecond, burst, keptMs),
    );
    return takenOf(bucket, perSecond, nowMs);
  }

  useOnce(key: string, ttlMs: number, nowMs: number): Promise<boolean> {
    return this.redis.ask((client) =>
      client.useOnce(USED_PREFIX + key, nowMs, nowMs + ttlMs, ttlMs + SPARE_MS),
    );
  }

  async close(): Promise<void> {
    this.redis.close();
  }
}

/** The version of the Redis at this URL. Throws if it does not answer. */
export async function askRedis(url: string): Promise<string> {
  const client = await openBriefly(url, DOCTOR_MS_MAX);
  try {
    const said = await fromRedis(client.info('server'), DOCTOR_MS_MAX);
    return /^redis_version:(\S+)/m.exec(said)?.[1] ?? 'unknown';
  } finally {
    closeRedis(client);
  }
}
