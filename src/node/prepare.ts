/**
 * Prepares a database before anything uses it. Separate from the node, so that a command that only reads
 * starts quickly.
 */

import { ensureDefaultCommunity } from '../communities/communities.sql.js';
import { ensurePartitions } from '../events/postgres/partitions.js';
import { createTagHash, type TagHash } from '../events/postgres/tag-hash.js';
import { checkSessions, checkVersion, type Database } from '../postgres/database.js';
import { MIGRATION_MS_MAX, migrate } from '../postgres/migrate.js';
import type { Config } from './config.js';
import type { Log } from './log.js';
import { fixEventStore, fixNetworkId, fixTagHashSeed } from './state.sql.js';

export const DEFAULT_NETWORK_ID = 'kukuri:main:';

/** Values that are fixed at the first boot of a node. */
export interface Prepared {
  /** The prefix of every topic name when its id is computed. */
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
  await checkSessions(database);
  const client = await database.connect({ statementTimeoutMs: MIGRATION_MS_MAX });
  try {
    await checkVersion(client);
    for (const name of await migrate(client)) log.info({ migration: name }, 'schema migrated');
    await fixEventStore(client, config.eventStore);
    await ensurePartitions(client, now());
    const networkId = await fixNetworkId(client, config.networkId, DEFAULT_NETWORK_ID);
    const first = { 'topic.mode': config.topicMode, 'auth.mode': config.authMode };
    await ensureDefaultCommunity(client, first, now());
    return { networkId, tagHash: await createTagHash(await fixTagHashSeed(client)) };
  } finally {
    await client.end();
  }
}
