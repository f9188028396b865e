/**
 * Opens the PostgreSQL that this program uses: the operator's, that of a running node, or one that it starts.
 */

import { acquireDataLock, type DataLock, dataLockHolder } from './data-lock.js';
import { type Database, openDatabase } from './database.js';
import {
  type EmbeddedConnection,
  type EmbeddedServer,
  runningEmbedded,
  type ServerLog,
  startEmbedded,
} from './embedded.js';
import type { ServerExtras } from './embedded-site.js';
import { withoutPassword } from './rules-database-url.js';

export interface OpenedDatabase {
  readonly database: Database;
  /** A description of the database for people. */
  readonly where: string;
  /** The embedded server, if this process has started it. */
  readonly connection?: EmbeddedConnection;
  close(): Promise<void>;
}

export interface OpenOptions {
  readonly databaseUrl: string | undefined;
  readonly dataDir: string;
  readonly log: ServerLog;
  /** The system user that an embedded server runs as if root starts it. */
  readonly user?: string | undefined;
  /** Settings of an embedded server for the archive of its log. */
  readonly extras?: () => Promise<ServerExtras | undefined>;
  /** A command may use the database of a node that runs on the same folder; a second node may not. */
  readonly attach: boolean;
  readonly onGiveUp?: (error: Error) => void;
  /** Aborts a start of the embedded server, and stops the server. */
  readonly signal?: AbortSignal;
}

export async function openPostgres(options: OpenOptions): Promise<OpenedDatabase> {
  const { databaseUrl, dataDir } = options;
  if (databaseUrl !== undefined) {
    const database = openDatabase({ url: databaseUrl });
    return { database, where: withoutPassword(databaseUrl), close: () => database.close() };
  }
  if (options.attach && (await dataLockHolder(dataDir)) !== undefined) {
    const connection = await runningEmbedded(dataDir);
    if (connection !== undefined) {
      const database = openDatabase(connection);
      return {
        database,
        where: `the running node's PostgreSQL in ${dataDir}`,
        close: () => database.close(),
      };
    }
  }
  return startOwn(options);
}

async function startOwn(options: OpenOptions): Promise<OpenedDatabase> {
  const { dataDir, log, user, onGiveUp, signal } = options;
  const lock: DataLock = await acquireDataLock(dataDir);
  let server: EmbeddedServer;
  try {
    server = await startEmbedded(dataDir, log, {
      user,
      extras: await options.extras?.(),
      ...(onGiveUp ? { onGiveUp } : {}),
      ...(signal ? { signal } : {}),
    });
  } catch (error) {
    await lock.release();
    throw error;
  }
  const database = openDatabase(server.connection);
  return {
    database,
    where: `embedded PostgreSQL in ${dataDir}`,
    connection: server.connection,
    close: async () => {
      await database.close();
      await server.stop();
      await lock.release();
    },
  };
}
