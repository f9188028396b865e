/**
 * A primary and a streaming replica of Debian's PostgreSQL, whose package has `pg_basebackup`. The embedded
 * one has not. Neither may run as root.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { appendFile, chmod, chown, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { findOrCreateUser, type SystemUser } from '../../../src/postgres/system-user.js';
import { eventually } from '../cli.js';
import { childrenOf } from '../instances.js';
import { environmentOf, findProgram, type Program } from './debian-package.js';
import { freePort } from './free-port.js';

const run = promisify(execFile);
const VERSION_MIN = 15;
const INSTALLED = '/usr/lib/postgresql';

/** The folder of its programs. */
async function findServer(): Promise<{ readonly folder: string; readonly program: Program }> {
  const newestIn = (root: string): string | undefined => {
    const versions = existsSync(root) ? readdirSync(root).map(Number) : [];
    const usable = versions.filter((v) => v >= VERSION_MIN && existsSync(join(root, `${v}`, 'bin/postgres')));
    return usable.length === 0 ? undefined : join(root, `${Math.max(...usable)}`, 'bin');
  };
  const installed = newestIn(INSTALLED);
  if (installed !== undefined) return { folder: installed, program: { path: installed } };
  const program = await findProgram({
    program: 'pg_basebackup',
    packages: ['postgresql-15', 'postgresql'],
    elsewhere: 'Fedora: dnf install postgresql-server; macOS: brew install postgresql',
  });
  const folder = newestIn(join(dirname(program.path), '../lib/postgresql')) ?? dirname(program.path);
  return { folder, program };
}

interface Site {
  readonly folder: string;
  readonly bin: string;
  readonly env: NodeJS.ProcessEnv;
  readonly user: SystemUser | undefined;
}

const CONF = `
listen_addresses = '127.0.0.1'
max_connections = 300
wal_level = replica
hot_standby = on
max_wal_senders = 10
wal_keep_size = 256MB
shared_buffers = 64MB
log_min_messages = warning
`;
const ACCESS = 'host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n';

export class Replicated {
  private constructor(
    private readonly site: Site,
    readonly primary: PostgresServer,
    readonly replica: PostgresServer,
  ) {}

  static async start(): Promise<Replicated> {
    const { folder: bin, program } = await findServer();
    const user = process.getuid?.() === 0 ? await findOrCreateUser(['postgres', 'minato']) : undefined;
    const folder = await mkdtemp(join(tmpdir(), 'minato-replicated-'));
    if (user !== undefined) await chown(folder, user.uid, user.gid);
    const site: Site = { folder, bin, env: environmentOf(program), user };
    const of = (data: string) => ({ ...user, env: site.env, cwd: data });
    const primaryData = join(folder, 'primary');
    await run(
      join(bin, 'initdb'),
      ['-D', primaryData, '-U', 'minato', '-A', 'trust', '-E', 'UTF8'],
      of(folder),
    );
    await appendFile(join(primaryData, 'postgresql.conf'), CONF);
    await appendFile(join(primaryData, 'pg_hba.conf'), ACCESS);
    const primary = new PostgresServer(site, primaryData, await freePort());
    await primary.comeUp();
    await primary.sql('CREATE DATABASE minato', 'postgres');
    const replicaData = join(folder, 'replica');
    await mkdir(replicaData);
    await chmod(replicaData, 0o700);
    if (user !== undefined) await chown(replicaData, user.uid, user.gid);
    const from = `host=127.0.0.1 port=${primary.port} user=minato application_name=replica`;
    await run(join(bin, 'pg_basebackup'), ['-D', replicaData, '-d', from, '-R', '-c', 'fast'], of(folder));
    const replica = new PostgresServer(site, replicaData, await freePort());
    await replica.comeUp();
    return new Replicated(site, primary, replica);
  }

  /** For the data of nodes too; removed with the servers. */
  get folder(): string {
    return this.site.folder;
  }

  async stop(): Promise<void> {
    await this.replica.goDown();
    await this.primary.goDown();
    await rm(this.site.folder, { recursive: true, force: true });
  }
}

export class PostgresServer {
  private child: ChildProcess | undefined;

  constructor(
    private readonly site: Site,
    private readonly data: string,
    readonly port: number,
  ) {}

  /** For DATABASE_URL and DATABASE_READ_URL. */
  get url(): string {
    return `postgres://minato@127.0.0.1:${this.port}/minato`;
  }

  async comeUp(): Promise<void> {
    const { bin, env, user, folder } = this.site;
    const args = ['-D', this.data, '-p', `${this.port}`, '-k', folder];
    this.child = spawn(join(bin, 'postgres'), args, { ...user, env, cwd: this.data, stdio: 'ignore' });
    await eventually('PostgreSQL answers', () =>
      this.sql('SELECT 1', 'postgres').then(
        () => true,
        () => undefined,
      ),
    );
  }

  /** `SIGINT` is PostgreSQL's fast shutdown. */
  async goDown(signal: NodeJS.Signals = 'SIGINT'): Promise<void> {
    const { child } = this;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    this.signalAll('SIGCONT');
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  }

  freeze(): void {
    this.signalAll('SIGSTOP');
  }
  thaw(): void {
    this.signalAll('SIGCONT');
  }

  async sql<T extends object>(text: string, database = 'minato'): Promise<T[]> {
    const client = new pg.Client({ host: '127.0.0.1', port: this.port, user: 'minato', database });
    client.on('error', () => undefined);
    await client.connect();
    try {
      return (await client.query<T>(text)).rows;
    } finally {
      await client.end();
    }
  }

  /** The main process first, so that it starts no more children. */
  private signalAll(signal: NodeJS.Signals): void {
    const pid = this.child!.pid!;
    process.kill(pid, signal);
    for (const each of childrenOf(pid)) {
      try {
        process.kill(each, signal);
      } catch {
        // It has ended meanwhile.
      }
    }
  }
}
