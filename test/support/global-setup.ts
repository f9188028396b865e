/**
 * Runs once before all tests: builds the program and its pages, starts one real PostgreSQL, makes the
 * template database that every test file clones, and finds a redis-server, a Java and a browser.
 */
import { execFileSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { startEmbedded } from '../../src/postgres/embedded.js';
import { migrate } from '../../src/postgres/migrate.js';
import type { Program } from './servers/debian-package.js';
import { findChromium, findJava, findRedis } from './servers/programs.js';

declare module 'vitest' {
  export interface ProvidedContext {
    postgres: { host: string; port: number; user: string };
    redis: Program;
    java: Program;
    chromium: Program;
  }
}

export const TEMPLATE = 'minato_template';
const quiet = { info: () => undefined, warn: () => undefined, error: console.error };

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // Worker threads and spawned nodes run the build, so it must be up to date.
  const run = (...args: string[]) => execFileSync(process.execPath, args, { stdio: 'inherit' });
  run('node_modules/typescript/bin/tsc', '-b', 'tsconfig.build.json');
  run('console/build.mjs');
  project.provide('redis', await findRedis());
  project.provide('java', await findJava());
  project.provide('chromium', await findChromium());
  const folder = await mkdtemp(join(tmpdir(), 'minato-test-'));
  const server = await startEmbedded(folder, quiet);
  const { host, port, user } = server.connection;
  const admin = new pg.Client({ host, port, user, database: 'postgres' });
  await admin.connect();
  await admin.query(`CREATE DATABASE ${TEMPLATE}`);
  await admin.end();
  const template = new pg.Client({ host, port, user, database: TEMPLATE });
  await template.connect();
  await migrate(template);
  await template.end();
  project.provide('postgres', { host, port, user });
  return async () => {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  };
}
