/** A sync as `minato sync` runs it, in this process, and stores filled with random events. */
import { readConfig } from '../../../src/node/config.js';
import { startWriter, type Writer } from '../../../src/node/writer.js';
import {
  type Direction,
  type Synced,
  type SyncOptions,
  type SyncParts,
  syncWithPeer,
} from '../../../src/sync/exchange.js';
import { type Author, type Draft, newAuthor, sign } from '../events.js';
import type { TestNode } from '../node.js';

export interface Syncing {
  readonly parts: SyncParts;
  readonly writer: Writer;
  /** The default community by default. */
  sync(url: string, how?: How): Promise<Synced>;
  close(): Promise<void>;
}

export interface How extends Partial<SyncOptions> {
  readonly direction?: Direction;
  readonly topics?: readonly string[];
  readonly since?: number;
  readonly community?: number;
}

/** A process of its own beside the node, on the same database, as far as the database can tell. */
export async function openSyncing({ database, test, log }: TestNode): Promise<Syncing> {
  const config = readConfig({
    MINATO_DATA_DIR: test.folder,
    MINATO_TOPIC_MODE: 'open',
    MINATO_LOG_LEVEL: 'error',
  });
  const writer = await startWriter({ database, config, log });
  const parts: SyncParts = {
    ...writer,
    pool: database.pool,
    diskLevel: writer.disk.levelFor,
    log,
    now: Date.now,
  };
  return {
    parts,
    writer,
    sync: (url, { direction = 'down', topics, since, community, ...options } = {}) =>
      syncWithPeer(
        {
          community: community ?? writer.communities.find(undefined, undefined)!.id,
          url,
          direction,
          topics,
          since,
        },
        parts,
        {
          signal: new AbortController().signal,
          isLowPriority: false,
          allowsPrivate: true,
          ...options,
        },
      ),
    close: () => writer.close(),
  };
}

/** Stores events without a socket, as an import does. */
export async function store({ writer }: Pick<Syncing, 'writer'>, events: readonly object[]): Promise<void> {
  const community = writer.communities.find(undefined, undefined)!;
  const outcomes = await Promise.all(events.map((event) => writer.admission.admit(community, event)));
  const refused = outcomes.filter((outcome) => typeof outcome === 'object');
  if (refused.length > 0) throw new Error(`not stored: ${JSON.stringify(refused[0])}`);
}

/** Signed events with random times, some of them in the same second. */
export function someEvents(
  count: number,
  { author = newAuthor(), span = 100_000, ...draft }: Draft & { author?: Author; span?: number } = {},
) {
  const end = Math.floor(Date.now() / 1_000) - 60;
  return Array.from({ length: count }, () =>
    sign(author, { created_at: end - Math.floor(Math.random() * span), ...draft }),
  );
}

export const idsOf = (events: readonly { id: string }[]) => events.map(({ id }) => id).sort();
