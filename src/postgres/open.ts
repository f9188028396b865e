/** Which PostgreSQL this program uses: the operator's, the one of a running node, or one that it starts itself. */

import { withoutPassword } from '../core/database-url.js';
import { acquireDataLock, type DataLock, dataLockHolder } from './data-lock.js';
import { type Database, openDatabase } from './database.js';
import { type EmbeddedServer, runningEmbedded, type ServerLog, startEmbedded } from './embedded.js';

export interface OpenedDatabase {
  readonly database: Database;
  /** For people: where the database is. */
  readonly where: string;
  close(): Promise<void>;
}

export interface OpenOptions {
  readonly databaseUrl: string | undefined;
  readonly dataDir: string;
  readonly log: ServerLog;
  /** A command may use the database of a node that runs on the same folder; a second node may not. */
  readonly attach: boolean;
  readonly onGiveUp?: (error: Error) => void;
  /** Ends a start of the embedded server that is under way, and the server with it. */
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

async function startOwn({ dataDir, log, onGiveUp, signal }: OpenOptions): Promise<OpenedDatabase> {
  const lock: DataLock = await acquireDataLock(dataDir);
  let server: EmbeddedServer;
  try {
    server = await startEmbedded(dataDir, log, {
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
    close: async () => {
      await database.close();
      await server.stop();
      await lock.release();
    },
  };
}
