/**
 * Copies of one migrated cluster, for servers and nodes whose creation is not the subject of a test.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inject } from 'vitest';
import { type EmbeddedServer, startEmbedded } from '../../../src/postgres/embedded.js';
import { copyFolder } from './copy-folder.js';
import type { TestDatabase } from './database.js';

const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined };

/** Puts a cluster with a migrated database into a data folder. To create one takes seconds of CPU time. */
export function copyCluster(dataDir: string): Promise<void> {
  return copyFolder(join(inject('cluster'), 'postgres'), dataDir);
}

/**
 * A separate PostgreSQL for a test file, which can be frozen: it accepts connections, but answers nothing and
 * closes nothing.
 */
export class TestPostgres {
  private constructor(
    private readonly server: EmbeddedServer,
    private readonly folder: string,
  ) {}

  static async start(): Promise<TestPostgres> {
    const folder = await mkdtemp(join(tmpdir(), 'minato-postgres-'));
    await copyCluster(folder);
    return new TestPostgres(await startEmbedded(folder, quiet), folder);
  }

  /** Its migrated database, for a node. */
  get database(): TestDatabase {
    const { connection } = this.server;
    const { host, port, user, database } = connection;
    return {
      connection,
      url: `postgres://${user}@/${database}?host=${host}&port=${port}`,
      folder: join(this.folder, 'node'),
      drop: async () => undefined,
    };
  }

  freeze(): void {
    this.signalAll('SIGSTOP');
  }
  thaw(): void {
    this.signalAll('SIGCONT');
  }

  async stop(): Promise<void> {
    this.thaw();
    await this.server.stop();
    await rm(this.folder, { recursive: true, force: true });
  }

  /** The main process first, so that it starts no more children. */
  private signalAll(signal: NodeJS.Signals): void {
    const file = readFileSync(join(this.folder, 'postgres', 'postmaster.pid'), 'utf8');
    const server = Number(file.split('\n')[0]);
    process.kill(server, signal);
    for (const pid of readdirSync('/proc').map(Number))
      if (parentOf(pid) === server) process.kill(pid, signal);
  }
}

/** Field 4 of /proc/PID/stat, after the name in parentheses. */
function parentOf(pid: number): number | undefined {
  if (!(pid > 0)) return undefined;
  try {
    const line = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return Number(line.slice(line.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return undefined;
  }
}
