/** What a database needs before anything works on it. Apart from the node, so that a command that only reads is quick to start. */
import type { Config } from './config.js';
import type { Log } from './log.js';
import { checkVersion, type Database } from './postgres/database.js';
import { MIGRATION_MS_MAX, migrate } from './postgres/migrate.js';
import { ensureDefaultCommunity } from './store/communities.js';
import { fixNetworkId, fixTagHashSeed } from './store/node-state.js';
import { ensurePartitions } from './store/partitions.js';
import { createTagHash, type TagHash } from './store/tag-hash.js';

export const DEFAULT_NETWORK_ID = 'kukuri:main:';

/** What is fixed for the whole node. */
export interface Prepared {
  /** Stands in front of every topic name when its id is made. */
  readonly networkId: string;
  readonly tagHash: TagHash;
}

/** Schema, partitions and what is fixed at the first boot. Safe on any number of instances at once. */
export async function prepareDatabase(
  database: Database,
  config: Config,
  now: () => number,
  log: Log,
): Promise<Prepared> {
  const client = await database.connect({ statementTimeoutMs: MIGRATION_MS_MAX });
  try {
    await checkVersion(client);
    for (const name of await migrate(client)) log.info({ migration: name }, 'schema migrated');
    await ensurePartitions(client, now());
    const networkId = await fixNetworkId(client, config.networkId, DEFAULT_NETWORK_ID);
    const first = { 'topic.mode': config.topicMode, 'auth.mode': config.authMode };
    await ensureDefaultCommunity(client, first, now());
    return { networkId, tagHash: await createTagHash(await fixTagHashSeed(client)) };
  } finally {
    await client.end();
  }
}
