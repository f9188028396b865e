/** A separate database for each test file, cloned from the migrated template. */
import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { inject } from 'vitest';
import type { EmbeddedConnection } from '../../../src/postgres/embedded.js';
import { TEMPLATE } from './templates.js';

export interface TestDatabase {
  readonly connection: EmbeddedConnection;
  /** For DATABASE_URL of a spawned node. */
  readonly url: string;
  /** The data folder of the nodes on it. */
  readonly folder: string;
  drop(): Promise<void>;
}

/** Clones the migrated template, or another database that has no connections. */
export async function createTestDatabase(template = TEMPLATE): Promise<TestDatabase> {
  const server = inject('postgres');
  const database = `test_${randomBytes(6).toString('hex')}`;
  const folder = join(tmpdir(), `minato-${database}`);
  // A third of the CPU time of the default, which writes every page to the log.
  await asAdmin((admin) =>
    admin.query(`CREATE DATABASE ${database} TEMPLATE ${template} STRATEGY file_copy`),
  );
  return {
    connection: { ...server, database },
    url:
      `postgres://${server.user}@localhost:${server.port}/${database}` +
      `?host=${encodeURIComponent(server.host)}`,
    folder,
    drop: async () => {
      await asAdmin((admin) => admin.query(`DROP DATABASE ${database} WITH (FORCE)`));
      await rm(folder, { recursive: true, force: true });
    },
  };
}

export async function asAdmin(work: (admin: pg.Client) => Promise<unknown>): Promise<void> {
  const admin = new pg.Client({ ...inject('postgres'), database: 'postgres' });
  await admin.connect();
  try {
    await work(admin);
  } finally {
    await admin.end();
  }
}
