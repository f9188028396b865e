/** The programs of a run and the cluster that its worlds copy. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Program } from '../support/servers/debian-package.js';
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
