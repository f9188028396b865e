/**
 * The communities of this node with their settings, kept fresh on every instance by polling one number.
 * A reader asks again for each message, so that a change takes effect without a restart.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import { type Settings, settingsFrom } from './core/settings.js';
import type { Log } from './log.js';
import { DEFAULT_SLUG, readCommunities, readConfigVersion } from './store/communities.js';

const POLL_MS = 500;

export interface Community {
  readonly id: number;
  readonly slug: string;
  readonly host: string | undefined;
  readonly settings: Settings;
}

export interface Communities {
  all(): readonly Community[];
  /** The community as it is now, or undefined when it is gone. */
  get(id: number): Community | undefined;
  /** By the path's slug if there is one, else by host name, else the default. An unknown slug finds nothing. */
  find(host: string | undefined, slug: string | undefined): Community | undefined;
  stop(): Promise<void>;
}

export async function watchCommunities(pool: Pool, log: Log): Promise<Communities> {
  const stopping = new AbortController();
  let version = -1;
  let failing = false;
  let byId = new Map<number, Community>();

  const refresh = async (): Promise<void> => {
    const current = await readConfigVersion(pool);
    if (current === version) return;
    const rows = await readCommunities(pool);
    byId = new Map(
      rows.map(({ id, slug, host, settings }) => [
        id,
        { id, slug, host: host ?? undefined, settings: settingsFrom(settings) },
      ]),
    );
    version = current;
  };

  const poll = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await delay(POLL_MS, undefined, { signal: stopping.signal }).catch(() => undefined);
      if (stopping.signal.aborted) return;
      const problem = await refresh().then(
        () => undefined,
        (error: unknown) => String(error),
      );
      // Told once when it begins and once when it ends, not twice a second in between.
      if (problem !== undefined && !failing) log.warn({ error: problem }, 'settings cannot be read');
      if (problem === undefined && failing) log.info('settings can be read again');
      failing = problem !== undefined;
    }
  };

  await refresh();
  const polling = poll();
  const all = () => [...byId.values()];
  return {
    all,
    get: (id) => byId.get(id),
    find: (host, slug) => {
      if (slug !== undefined) return all().find((community) => community.slug === slug);
      const named = host === undefined ? undefined : all().find((community) => community.host === host);
      return named ?? all().find((community) => community.slug === DEFAULT_SLUG);
    },
    stop: () => {
      stopping.abort();
      return polling;
    },
  };
}
