/** Opens what most commands need: the checked configuration and a database that answers. */
import { archiveExtras } from '../backup/wal-archive.js';
import { type Communities, type Community, watchCommunities } from '../communities/communities.js';
import { type Config, readConfig } from '../node/config.js';
import { createLog, type Log } from '../node/log.js';
import { type Prepared, prepareDatabase } from '../node/prepare.js';
import type { Database } from '../postgres/database.js';
import { type OpenedDatabase, openPostgres } from '../postgres/open.js';

export interface CommandContext {
  readonly config: Config;
  readonly database: Database;
  readonly log: Log;
  readonly where: string;
}

/** Commands print their result on stdout. The log has only warnings and errors. */
function commandLog(config: Config): Log {
  return createLog(config.logLevel === 'info' ? 'warn' : config.logLevel, 'stderr');
}

/** Opens the database (of the running node, if there is one), does the work, closes it again. */
export async function withDatabase<T>(work: (context: CommandContext) => Promise<T>): Promise<T> {
  const config = readConfig(process.env);
  const log = commandLog(config);
  const opened = await openInterruptibly(config, log);
  try {
    return await work({ config, database: opened.database, log, where: opened.where });
  } finally {
    await opened.close();
  }
}

/**
 * An interrupt while the embedded server starts stops it. After that each command handles interrupts itself.
 */
async function openInterruptibly(config: Config, log: Log): Promise<OpenedDatabase> {
  const starting = new AbortController();
  const interrupt = () => starting.abort(new Error('interrupted'));
  process.once('SIGINT', interrupt).once('SIGTERM', interrupt);
  try {
    // Also for a short command: what it writes must be in the archive.
    const extras = () => archiveExtras(config);
    return await openPostgres({ ...config, log, extras, attach: true, signal: starting.signal });
  } finally {
    process.off('SIGINT', interrupt).off('SIGTERM', interrupt);
  }
}

/** The same, after the schema is migrated, for one community. */
export async function withCommunity<T>(
  slug: string,
  work: (context: CommandContext & Prepared, community: Community) => Promise<T>,
): Promise<T> {
  return withDatabase(async (context) => {
    const prepared = await prepareDatabase(context.database, context.config, Date.now, context.log);
    const communities = await watchCommunities(context.database.pool, context.log);
    await communities.stop();
    return work({ ...context, ...prepared }, chooseCommunity(communities, slug));
  });
}

/** The community of this name. The error for an unknown name lists those that exist. */
export function chooseCommunity(communities: Communities, slug: string): Community {
  const community = communities.find(undefined, slug);
  if (community !== undefined) return community;
  const names = communities.all().map((known) => known.slug);
  throw new Error(`there is no community "${slug}"; this node has: ${names.join(', ')}`);
}

export const COMMUNITY_OPTION = ['-c, --community <slug>', 'which community', 'default'] as const;
