/**
 * Runs forward-only migrations with node-pg-migrate. Safe if several instances boot at once. A newer schema
 * is refused.
 */
import { readdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { Client } from 'pg';

const MIGRATIONS_DIR = fileURLToPath(new URL('../../migrations', import.meta.url));
const MIGRATIONS_TABLE = 'schema_migrations';
const MIGRATE_LOCK = 7_447_002;
/** Limit of one statement, and of the wait for another instance that migrates: a large table takes long. */
export const MIGRATION_MS_MAX = 3_600_000;

export interface SchemaState {
  readonly applied: string[];
  readonly pending: string[];
  /** Applied, but unknown to this program: the schema is newer. */
  readonly unknown: string[];
}

async function migrationNames(): Promise<string[]> {
  const files = await readdir(MIGRATIONS_DIR);
  return files
    .filter((file) => file.endsWith('.sql'))
    .map((file) => file.slice(0, -'.sql'.length))
    .sort();
}

export async function schemaState(client: Client): Promise<SchemaState> {
  const known = await migrationNames();
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
export async function migrate(client: Client): Promise<string[]> {
  // Waits for another instance that migrates; the migrator's own lock would fail at once.
  await client.query('SELECT pg_advisory_lock($1)', [MIGRATE_LOCK]);
  try {
    const { unknown, pending } = await schemaState(client);
    if (unknown.length > 0) {
      throw new Error(
        `the schema of the database is newer than this program (it has ${unknown.join(', ')}). ` +
          'Start a newer Minato, or restore a backup made with this one.',
      );
    }
    if (pending.length === 0) return [];
    const { runner } = await import('node-pg-migrate');
    const done = await runner({
      dbClient: client,
      dir: MIGRATIONS_DIR,
      direction: 'up',
      migrationsTable: MIGRATIONS_TABLE,
      noLock: true,
      logger: {
        debug: () => undefined,
        info: () => undefined,
        warn: () => undefined,
        error: () => undefined,
      },
    });
    return done.map((migration) => migration.name);
  } catch (error) {
    // A failed migration leaves its transaction open. Without this the unlock below would hide the real
    // error.
    await client.query('ROLLBACK').catch(() => undefined);
    throw error;
  } finally {
    await client.query('SELECT pg_advisory_unlock($1)', [MIGRATE_LOCK]).catch(() => undefined);
  }
}
