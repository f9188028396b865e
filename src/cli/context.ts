/** Opens what most commands need: the checked configuration and a database that answers. */
import { archiveExtras } from '../backup/wal-archive.js';
import { type Communities, type Community, watchCommunities } from '../communities/communities.js';
import { settingsFrom } from '../communities/rules-settings.js';
import { storedInPostgres } from '../events/postgres/read/stored-events.js';
import type { StoredEvents } from '../events/stored-events.js';
import { type Config, readConfig } from '../node/config.js';
import { createLog, type Log } from '../node/log.js';
import { type Prepared, prepareDatabase } from '../node/prepare.js';
import type { Database } from '../postgres/database.js';
import { type OpenedDatabase, openPostgres } from '../postgres/open.js';
import type { SearchedEvents } from '../search/search.sql.js';

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

/** Where events are read: in the database, or elsewhere. */
export interface CommandEvents {
  readonly stored: StoredEvents;
  /** For searches. */
  readonly elsewhere: SearchedEvents | undefined;
  close(): Promise<void>;
}

interface CommunityContext extends CommandContext, Prepared {
  readonly events: CommandEvents;
}

/** The same, after the schema is migrated, for one community. */
export async function withCommunity<T>(
  slug: string,
  work: (context: CommunityContext, community: Community) => Promise<T>,
): Promise<T> {
  return withDatabase(async (context) => {
    const prepared = await prepareDatabase(context.database, context.config, Date.now, context.log);
    const communities = await watchCommunities(context.database.pool, context.log);
    await communities.stop();
    const community = chooseCommunity(communities, slug);
    const events = await openEvents(context, prepared, communities);
    try {
      return await work({ ...context, ...prepared, events }, community);
    } finally {
      await events.close();
    }
  });
}

/** DynamoDB is loaded only where it is used. */
async function openEvents(
  { config, database, log }: CommandContext,
  { tagHash }: Prepared,
  communities: Communities,
): Promise<CommandEvents> {
  if (config.eventStore === 'postgres')
    return { stored: storedInPostgres(tagHash), elsewhere: undefined, close: async () => undefined };
  const { openDynamodbReads } = await import('../events/dynamodb/open.js');
  return openDynamodbReads({
    place: config.dynamodb!,
    database,
    tagHash,
    log,
    now: Date.now,
    communities: () => communities.all().map(({ id }) => id),
    settingsOf: (community) => communities.get(community)?.settings ?? settingsFrom(new Map()),
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
