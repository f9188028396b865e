/**
 * Runs forward-only migrations with node-pg-migrate. Safe if several instances boot at once. A newer schema
 * is refused.
 *
 * A migration is one transaction. One that begins with `-- online` is not: its statements run one by one, so
 * that it can use CREATE INDEX CONCURRENTLY while other instances serve. It is repeated after a kill.
 *
 * While a statement waits for a lock, everybody else waits behind it. So it waits for a short time only, and
 * is tried again.
 */
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { RunnerOption } from 'node-pg-migrate';
import type { Client } from 'pg';
import { errorCode, SQLSTATE } from './rules-error-code.js';

const MIGRATIONS_DIR = fileURLToPath(new URL('../../migrations', import.meta.url));
const MIGRATIONS_TABLE = 'schema_migrations';
const MIGRATE_LOCK = 7_447_002;
/** Limit of one statement, and of the wait for another instance that migrates: a large table takes long. */
export const MIGRATION_MS_MAX = 3_600_000;

/** How long one statement waits for a lock, while others wait behind it. */
const LOCK_WAIT_MS_MAX = 2_000;
/** The lane, which locks rows in another order, may win a deadlock. */
const LOCKED_OUT = new Set<string | undefined>([SQLSTATE.lockNotAvailable, SQLSTATE.deadlock]);
const TRIES = 30;
const TRY_AGAIN_MS = 2_000;

export interface MigrateOptions {
  /** For tests. */
  readonly folder?: string;
  readonly lockWaitMsMax?: number;
}

export interface SchemaState {
  readonly applied: string[];
  readonly pending: string[];
  /** Applied, but unknown to this program: the schema is newer. */
  readonly unknown: string[];
}

async function migrationNames(folder: string): Promise<string[]> {
  const files = await readdir(folder);
  return files
    .filter((file) => file.endsWith('.sql'))
    .map((file) => file.slice(0, -'.sql'.length))
    .sort();
}

export async function schemaState(client: Client, folder = MIGRATIONS_DIR): Promise<SchemaState> {
  const known = await migrationNames(folder);
  const { rows: tables } = await client.query('SELECT to_regclass($1) AS name', [MIGRATIONS_TABLE]);
  const applied: string[] = [];
  if (tables[0]?.name !== null) {
    const { rows } = await client.query<{ name: string }>(
      `SELECT name FROM ${MIGRATIONS_TABLE} ORDER BY name`,
    );
    applied.push(...rows.map((row) => row.name));
  }
  return {
    applied,
    pending: known.filter((name) => !applied.includes(name)),
    unknown: applied.filter((name) => !known.includes(name)),
  };
}

/** Applies the pending migrations and returns their names. */
export async function migrate(
  client: Client,
  { folder = MIGRATIONS_DIR, lockWaitMsMax = LOCK_WAIT_MS_MAX }: MigrateOptions = {},
): Promise<string[]> {
  // Waits for another instance that migrates; the migrator's own lock would fail at once.
  await client.query('SELECT pg_advisory_lock($1)', [MIGRATE_LOCK]);
  try {
    const { unknown, pending } = await schemaState(client, folder);
    if (unknown.length > 0) {
      throw new Error(
        `the schema of the database is newer than this program (it has ${unknown.join(', ')}). ` +
          'Start a newer Minato, or restore a backup made with this one.',
      );
    }
    if (pending.length === 0) return [];
    // After the lock above, whose wait may be long.
    await client.query(`SET lock_timeout = ${lockWaitMsMax}`);
    await runPending(client, folder);
    return pending;
  } catch (error) {
    // A failed migration leaves its transaction open. Without this the unlock below would hide the real
    // error.
    await client.query('ROLLBACK').catch(() => undefined);
    throw error;
  } finally {
    await client.query('RESET lock_timeout').catch(() => undefined);
    await client.query('SELECT pg_advisory_unlock($1)', [MIGRATE_LOCK]).catch(() => undefined);
  }
}

/** Migrations that were applied before one waited too long for a lock stay applied. */
async function runPending(client: Client, folder: string): Promise<void> {
  const { runner } = await import('node-pg-migrate');
  const silent = () => undefined;
  for (let tries = 1; ; tries += 1) {
    try {
      await runner({
        dbClient: client,
        dir: folder,
        direction: 'up',
        migrationsTable: MIGRATIONS_TABLE,
        noLock: true,
        migrationLoaderStrategies: [{ extensions: ['.sql'], loader: loadAll }],
        logger: { debug: silent, info: silent, warn: silent, error: silent },
      });
      return;
    } catch (error) {
      if (!LOCKED_OUT.has(errorCode(error)) || tries >= TRIES) throw error;
      await client.query('ROLLBACK');
      await delay(TRY_AGAIN_MS);
    }
  }
}

type Strategy = NonNullable<RunnerOption['migrationLoaderStrategies']>[number];
type MigrationUnit = Awaited<ReturnType<Exclude<Strategy['loader'], string>>>[number];

const loadAll = (paths: string[]): Promise<MigrationUnit[]> => Promise.all(paths.map(load));

async function load(path: string): Promise<MigrationUnit> {
  const text = await readFile(path, 'utf8');
  const up: NonNullable<MigrationUnit['actions']['up']> = (pgm) => {
    if (!isOnline(text)) return void pgm.sql(text);
    pgm.noTransaction();
    for (const statement of statementsOf(text)) pgm.sql(statement);
  };
  return { id: path, filePaths: [path], actions: { up, down: false } };
}

const isOnline = (text: string) => /^-- online\b/.test(text);

/** Each ends with a semicolon at the end of a line. */
function statementsOf(text: string): string[] {
  const code = text.replace(/^--.*$/gm, '');
  return code
    .split(/;\s*$/m)
    .map((statement) => statement.trim())
    .filter((statement) => statement !== '');
}
