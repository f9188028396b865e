/**
 * Runs once before all tests: builds the program and its pages, starts one real PostgreSQL, makes the
 * template databases that every test file clones, and finds a redis-server, a Java and a browser.
 */
import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Logger, runMigrations } from 'graphile-worker';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { ensurePartitions } from '../../src/events/postgres/partitions.js';
import { SCHEDULER_SCHEMA } from '../../src/jobs/job-runs.sql.js';
import { type EmbeddedConnection, startEmbedded } from '../../src/postgres/embedded.js';
import { migrate } from '../../src/postgres/migrate.js';
import { copyFolder } from './servers/copy-folder.js';
import type { Program } from './servers/debian-package.js';
import { useMemoryFolder } from './servers/memory-folder.js';
import { findChromium, findJava, findRedis } from './servers/programs.js';
import { READY, TEMPLATE } from './servers/templates.js';

declare module 'vitest' {
  export interface ProvidedContext {
    postgres: { host: string; port: number; user: string };
    redis: Program;
    java: Program;
    /** The folder of a DynamoDB Local that files share. */
    dynamodb: string;
    chromium: Program;
    /** A folder for files that test files share. */
    scratch: string;
    /** A data folder with a migrated database, to copy. */
    cluster: string;
  }
}

const quiet = { info: () => undefined, warn: () => undefined, error: console.error };

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // Worker threads and spawned nodes run the build, so it must be up to date.
  const run = (...args: string[]) => execFileSync(process.execPath, args, { stdio: 'inherit' });
  run('node_modules/typescript/bin/tsc', '-b', 'tsconfig.build.json');
  run('console/build.mjs');
  const removeTemporary = await useMemoryFolder();
  project.provide('redis', await findRedis());
  project.provide('java', await findJava());
  project.provide('chromium', await findChromium());
  const [scratch, cluster, folder] = await Promise.all(
    ['shared', 'cluster', 'test'].map((name) => mkdtemp(join(tmpdir(), `minato-${name}-`))),
  );
  project.provide('scratch', scratch!);
  project.provide('cluster', cluster!);
  await createCluster(cluster!);
  await copyFolder(join(cluster!, 'postgres'), folder!);
  const server = await startEmbedded(folder!, quiet);
  const { host, port, user, database } = server.connection;
  const admin = new pg.Client({ host, port, user, database: 'postgres' });
  await admin.connect();
  // Nobody cuts its power; tests that kill a server have one of their own.
  for (const setting of ['fsync = off', 'full_page_writes = off'])
    await admin.query(`ALTER SYSTEM SET ${setting}`);
  await admin.query('SELECT pg_reload_conf()');
  await createQueue(server.connection);
  await admin.query(`ALTER DATABASE ${database} RENAME TO ${TEMPLATE}`);
  await admin.query(`CREATE DATABASE ${READY} TEMPLATE ${TEMPLATE} STRATEGY file_copy`);
  await admin.end();
  const ready = new pg.Client({ host, port, user, database: READY });
  await ready.connect();
  await ensurePartitions(ready, Date.now());
  await ready.end();
  project.provide('postgres', { host, port, user });
  const dynamodb = await mkdtemp(join(tmpdir(), 'minato-dynamodb-'));
  project.provide('dynamodb', dynamodb);
  return async () => {
    const shared = await readFile(join(dynamodb, 'shared.json'), 'utf8').catch(() => undefined);
    if (shared !== undefined) process.kill((JSON.parse(shared) as { pid: number }).pid, 'SIGKILL');
    await rm(dynamodb, { recursive: true, force: true });
    await server.stop();
    for (const path of [folder, cluster, scratch]) await rm(path!, { recursive: true, force: true });
    await removeTemporary();
  };
}

/** The tables of the scheduler, which the first worker makes: a third of what its start costs PostgreSQL. */
function createQueue({ host, port, user, database }: EmbeddedConnection): Promise<void> {
  const connectionString = `postgres://${user}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`;
  const logger = new Logger(() => () => undefined);
  return runMigrations({ connectionString, schema: SCHEDULER_SCHEMA, logger });
}

/** A data folder with a migrated database. */
async function createCluster(dataDir: string): Promise<void> {
  const server = await startEmbedded(dataDir, quiet);
  const client = new pg.Client(server.connection);
  await client.connect();
  await migrate(client);
  await client.end();
  await server.stop();
}
