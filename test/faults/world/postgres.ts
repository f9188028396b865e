/** PostgreSQL of a world, on its small disk. Its data is a copy of a cluster that was migrated once. */
import { type ChildProcess, spawn } from 'node:child_process';
import { cp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { startEmbedded } from '../../../src/postgres/embedded.js';
import { prepareSite, type Site } from '../../../src/postgres/embedded-site.js';
import { migrate } from '../../../src/postgres/migrate.js';
import { WorldProcess } from './process.js';

const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined };
const SETTINGS = {
  max_connections: '200',
  shared_buffers: '64MB',
  max_wal_size: '96MB',
  min_wal_size: '32MB',
  // A commit that did not wait for the disk stays in memory for this long, and is lost with a kill.
  wal_writer_delay: '10s',
  unix_socket_directories: '',
  log_min_messages: 'warning',
};
const STATEMENT_MS_MAX = 60_000;
/** Of the node that gossips with the world's. */
export const PEER_DATABASE = 'peer';

/** Makes the cluster that every world copies. */
export async function makeCluster(folder: string): Promise<void> {
  const server = await startEmbedded(folder, quiet);
  try {
    const client = new pg.Client(server.connection);
    await client.connect();
    await migrate(client);
    await client.end();
    const other = new pg.Client({ ...server.connection, database: 'postgres' });
    await other.connect();
    await other.query(`CREATE DATABASE ${PEER_DATABASE} TEMPLATE ${server.connection.database}`);
    await other.end();
  } finally {
    await server.stop();
  }
}

export class WorldPostgres extends WorldProcess {
  private constructor(private readonly site: Site) {
    super('postgres');
  }

  static async open(cluster: string, folder: string): Promise<WorldPostgres> {
    await cp(join(cluster, 'postgres'), join(folder, 'postgres'), { recursive: true });
    return new WorldPostgres(await prepareSite(folder, quiet));
  }

  /** Its socket, for links and for the reader, which uses no link. */
  get socket(): string {
    return join(this.site.connection.host, `.s.PGSQL.${this.site.connection.port}`);
  }

  /** A session of the independent reader. */
  async withClient<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
    const client = new pg.Client({ ...this.site.connection, query_timeout: STATEMENT_MS_MAX });
    client.on('error', () => undefined);
    await client.connect();
    try {
      return await work(client);
    } finally {
      await client.end();
    }
  }

  /** For preparations, which use functions of the node. */
  async withPool<T>(database: 'minato' | 'peer', work: (pool: pg.Pool) => Promise<T>): Promise<T> {
    const pool = new pg.Pool({ ...this.site.connection, database, max: 1 });
    pool.on('error', () => undefined);
    try {
      return await work(pool);
    } finally {
      await pool.end();
    }
  }

  protected spawn(): ChildProcess {
    const { connection, postgres, pgdata, asUser } = this.site;
    const settings = { ...SETTINGS, port: `${connection.port}`, unix_socket_directories: connection.host };
    const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const [program, args, options] = asUser(postgres, ['-D', pgdata, ...flags]);
    return spawn(program, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  }

  protected async untilReady(hasEnded: () => boolean): Promise<void> {
    for (;;) {
      if (hasEnded()) throw new Error('it has ended');
      const isReady = await this.withClient((client) => client.query('SELECT 1')).then(
        () => true,
        () => false,
      );
      if (isReady) return;
      await delay(50);
    }
  }

  async remove(): Promise<void> {
    if (this.site.socketIsTemporary) await rm(this.site.connection.host, { recursive: true, force: true });
  }
}
