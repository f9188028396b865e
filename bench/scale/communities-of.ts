/** Communities of a running node, open to every topic, and connections to them. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { Connection } from '../client.js';

const KNOWN_MS_MAX = 30_000;
const LOOK_MS = 100;

export async function makeCommunities(pool: Pool, slugs: readonly string[]): Promise<void> {
  for (const slug of slugs) {
    const id = await addCommunity(pool, slug, undefined, Date.now());
    await writeSetting(pool, id, 'topic.mode', 'open', Date.now());
  }
}

/** Waits until the node knows the community as it was set. */
export async function openAt(url: string, slug: string): Promise<Connection> {
  const endMs = performance.now() + KNOWN_MS_MAX;
  const answers = () => fetch(`${url.replace(/^ws/, 'http')}/c/${slug}`, { headers: NIP11 });
  while (performance.now() < endMs) {
    const answer = await answers();
    if (answer.ok) return Connection.open(`${url}/c/${slug}`);
    await sleep(LOOK_MS);
  }
  throw new Error(`${url} does not know ${slug}`);
}
const NIP11 = { Accept: 'application/nostr+json' };
