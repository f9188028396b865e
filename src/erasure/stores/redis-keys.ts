/**
 * Keys in Redis that belong to a subject: found page by page (SCAN), counted once each, deleted page by page
 * (UNLINK). Every key that exists from the first page to the last is found. It uses a connection of its own
 * without reconnects: when Redis fails half-way, the call rejects, deleted keys stay deleted, and the next
 * call finds the rest.
 */
import { closeRedis, fromRedis, openBriefly, type RedisClient } from '../../redis/client.js';
import type { Progress } from './deleter.js';
import { SeenKeys } from './seen-keys.js';

const SCAN_COUNT = 1_000;

export interface RedisPlace {
  readonly url: string;
  /** Longest wait for one answer. */
  readonly answerMsMax: number;
}

export interface WantedKeys {
  /** Of SCAN; each matches keys of the subject only. */
  readonly patterns: readonly string[];
  /** Only what is from then or before, in milliseconds. */
  readonly upTo: number;
  /** The time of each key; undefined for one that was deleted meanwhile. */
  readonly timesOf: (client: RedisClient, keys: string[]) => Promise<(number | undefined)[]>;
}

export function countKeys(place: RedisPlace, wanted: WantedKeys): Promise<number> {
  return withRedis(place, async (client) => {
    const seen = new SeenKeys();
    let count = 0;
    for await (const keys of pagesOf(client, place, wanted))
      for (const key of keys) if (seen.add(key)) count += 1;
    return count;
  });
}

/** The names of keys, page by page; one may come several times. */
export async function* namesOf(place: RedisPlace, pattern: string): AsyncGenerator<string[]> {
  const wanted = { patterns: [pattern], upTo: Number.MAX_SAFE_INTEGER, timesOf: async () => [] };
  const client = await openBriefly(place.url, place.answerMsMax);
  try {
    yield* pagesOf(client, place, wanted);
  } finally {
    closeRedis(client);
  }
}

export function deleteKeys(place: RedisPlace, wanted: WantedKeys, progress: Progress): Promise<number> {
  return withRedis(place, async (client) => {
    let deleted = 0;
    for await (const keys of pagesOf(client, place, wanted)) {
      if (keys.length === 0) continue;
      // UNLINK returns how many existed, so a key that came twice is counted once.
      const gone = await fromRedis(client.unlink(keys), place.answerMsMax);
      deleted += gone;
      if (gone > 0) await progress(gone);
    }
    return deleted;
  });
}

async function* pagesOf(
  client: RedisClient,
  { answerMsMax }: RedisPlace,
  { patterns, upTo, timesOf }: WantedKeys,
): AsyncGenerator<string[]> {
  for (const MATCH of patterns) {
    let cursor = '0';
    do {
      const page = await fromRedis(client.scan(cursor, { MATCH, COUNT: SCAN_COUNT }), answerMsMax);
      const keys = [...new Set(page.keys)];
      if (upTo === Number.MAX_SAFE_INTEGER || keys.length === 0) yield keys;
      else {
        const times = await fromRedis(timesOf(client, keys), answerMsMax);
        yield keys.filter((_, at) => (times[at] ?? Number.POSITIVE_INFINITY) <= upTo);
      }
      cursor = page.cursor;
    } while (cursor !== '0');
  }
}

async function withRedis<T>(
  { url, answerMsMax }: RedisPlace,
  work: (client: RedisClient) => Promise<T>,
): Promise<T> {
  const client = await openBriefly(url, answerMsMax);
  try {
    return await work(client);
  } finally {
    closeRedis(client);
  }
}
