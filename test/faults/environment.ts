/** The programs of a run and the cluster that its worlds copy. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Program } from '../support/servers/debian-package.js';
import { canIsolate, spawnApart } from '../support/servers/loopback.js';
import { findJava, findRedis } from '../support/servers/programs.js';
import { findFaketime } from './world/clock.js';
import { makeCluster } from './world/postgres.js';

/** DynamoDB Local needs credentials but accepts any. */
export const CREDENTIALS = { AWS_ACCESS_KEY_ID: 'test', AWS_SECRET_ACCESS_KEY: 'test' };

export interface Programs {
  readonly redis: Program;
  readonly java: Program;
  /** The library, or undefined: then clocks do not jump. */
  readonly faketime: string | undefined;
  /** A data folder with a migrated database. */
  readonly cluster: string;
  remove(): Promise<void>;
}

export async function preparePrograms(): Promise<Programs> {
  const [redis, java, faketime] = [await findRedis(), await findJava(), await findFaketime()];
  const cluster = await mkdtemp(join(tmpdir(), 'minato-faults-cluster-'));
  await makeCluster(cluster);
  return { redis, java, faketime, cluster, remove: () => rm(cluster, { recursive: true, force: true }) };
}

/** Set in the run that is apart. */
const APART = 'MINATO_FAULTS_APART';

/**
 * Runs this command again in a network with loopback only, because iroh contacts servers of its makers, and
 * returns its exit code. Undefined: it is apart already, or this user may not do it, and it goes on here.
 */
export async function runApart(): Promise<number | undefined> {
  if (process.env[APART] !== undefined || !canIsolate()) return undefined;
  // What is not installed is downloaded now.
  await findRedis();
  await findJava();
  await findFaketime();
  const args = [...process.execArgv, ...process.argv.slice(1)];
  const child = spawnApart(args, { stdio: 'inherit', env: { ...process.env, [APART]: '1' } });
  // A terminal sends Ctrl-C to both; SIGTERM is for this one only.
  process.on('SIGINT', () => undefined);
  process.on('SIGTERM', () => child.kill('SIGTERM'));
  const [code] = (await once(child, 'exit')) as [number | null];
  return code ?? 1;
}
