/**
 * A node that is started as root drops its privileges: after its port is bound and before any client is
 * served, it becomes the system user that the embedded PostgreSQL runs as. An attacker who takes over the
 * node then has only the rights of that user.
 *
 * If that user cannot access the program or the data folder (as below /root), the node stays root and warns.
 * Otherwise it would fail later, at the first file that it needs.
 */
import { constants } from 'node:fs';
import { mkdir, open, readdir, stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { socketOf } from '../postgres/rules-database-url.js';
import { findOrCreateUser, lookUp, runProgram, type SystemUser } from '../postgres/system-user.js';
import { type Config, ConfigError } from './config.js';
import type { Log } from './log.js';

/** Everything that the node itself creates in its data folder. The database folder belongs to PostgreSQL. */
const OWN_NAMES = /^(keys|certificates\.jsonl|minato\.lock.*)$/;
/** Shared by the whole system: their owner is never changed. */
const SHARED = [
  '/',
  '/etc',
  '/home',
  '/mnt',
  '/opt',
  '/root',
  '/srv',
  '/tmp',
  '/usr',
  '/var',
  '/var/lib',
  '/var/tmp',
];

export interface Privileges {
  /** Makes the data folder accessible to the user. Called before the port is bound. */
  prepare(): Promise<void>;
  /** Becomes the user, for good. Synchronous, so that nothing is served before it. */
  drop(): void;
}

type About = Pick<Config, 'dataDir' | 'databaseUrl' | 'user'> & {
  /** Programs that the node starts later. */
  readonly starts?: readonly string[];
};

/** Undefined: there are no privileges to drop, or no user to become. Called when the database is open. */
export async function planPrivileges(about: About, log: Log): Promise<Privileges | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  if (about.user === 'root') {
    log.warn('the node stays root: MINATO_USER is root');
    return undefined;
  }
  const user = await userToBecome(about);
  if (user === undefined) {
    log.warn(
      'the node stays root: there is no system user "minato"; create it, or name one with MINATO_USER',
    );
    return undefined;
  }
  let hindrance: string | undefined;
  return {
    prepare: async () => {
      hindrance = await prepareFor(about, user);
      if (hindrance !== undefined) log.warn({ user: user.uid }, `the node stays root: ${hindrance}`);
    },
    drop: () => {
      if (hindrance !== undefined) return;
      become(user);
      log.info({ user: user.uid, group: user.gid }, 'the node has dropped root privileges');
    },
  };
}

/** The reason why the node cannot run as this user; undefined if it can. */
async function prepareFor(about: About, user: SystemUser): Promise<string | undefined> {
  try {
    await giveDataFolder(about.dataDir, user);
    const closed = await firstClosed(about, user);
    return closed && `its user cannot access ${closed}; give it access, or move that path`;
  } catch (error) {
    return `the system does not allow it (${(error as Error).message})`;
  }
}

/** The user of the embedded PostgreSQL. With DATABASE_URL: MINATO_USER, or the system user `minato`. */
async function userToBecome({ dataDir, databaseUrl, user }: About): Promise<SystemUser | undefined> {
  if (databaseUrl === undefined) {
    const { uid, gid } = await stat(join(dataDir, 'postgres'));
    return uid === 0 ? undefined : { uid, gid };
  }
  return user === undefined ? findOrCreateUser(['minato']) : userNamed(user);
}

/** An unknown name is an error of the configuration. */
export async function userNamed(name: string): Promise<SystemUser> {
  const user = await lookUp(name);
  if (user === undefined) throw new ConfigError(`MINATO_USER: there is no user "${name}" on this machine`);
  return user;
}

/** Missing in the types of Node.js. */
interface InitGroups {
  initgroups(user: number, group: number): void;
}

function become({ uid, gid }: SystemUser): void {
  try {
    (process as unknown as InitGroups).initgroups(uid, gid);
  } catch {
    // A user without a name has no other groups.
    process.setgroups!([gid]);
  }
  process.setgid!(gid);
  process.setuid!(uid);
  if (process.getuid!() === uid && process.geteuid!() === uid && !canReturn()) return;
  throw new Error('the node could not drop root privileges');
}

function canReturn(): boolean {
  try {
    process.setuid!(0);
    return true;
  } catch {
    return false;
  }
}

/** Files that an earlier version created as root get the user as their owner. */
async function giveDataFolder(dataDir: string, user: SystemUser): Promise<void> {
  const folder = resolve(dataDir);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const found = await stat(folder);
  if (SHARED.includes(folder) || (found.mode & 0o002) !== 0) return;
  for (const name of (await readdir(folder)).filter((one) => OWN_NAMES.test(one)))
    await give(join(folder, name), user);
  await give(folder, user, false);
}

/** Through an open handle, never through a link: the user may have put a link into this folder. */
async function give(path: string, user: SystemUser, withContents = true): Promise<void> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const handle = await open(path, flags).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ELOOP' || error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (handle === undefined) return;
  try {
    const found = await handle.stat();
    const isFolder = found.isDirectory();
    if (!isFolder && !(found.isFile() && found.nlink === 1)) return;
    if (isFolder && withContents) for (const name of await readdir(path)) await give(join(path, name), user);
    // Only files of root change their owner.
    if (found.uid === 0) await handle.chown(user.uid, user.gid);
  } finally {
    await handle.close();
  }
}

/** The first path that the node needs and that this user cannot access; undefined if it can access all. */
async function firstClosed(
  { dataDir, databaseUrl, starts = [] }: About,
  user: SystemUser,
): Promise<string | undefined> {
  const self = fileURLToPath(import.meta.url);
  const socket = databaseUrl === undefined ? undefined : socketOf(databaseUrl);
  const wanted = [
    ['-r', self],
    ['-r', createRequire(import.meta.url).resolve('pg')],
    ...(socket === undefined ? [] : [['-w', socket]]),
    ['-w', resolve(dataDir)],
    ...starts.map((path) => ['-x', path]),
  ].flat();
  const script = 'while [ $# -gt 0 ]; do test "$1" "$2" || { printf %s "$2"; exit 1; }; shift 2; done';
  return runProgram('/bin/sh', ['-c', script, 'sh', ...wanted], { ...user, cwd: '/' }).then(
    () => undefined,
    (error: { stdout?: string }) => {
      if (error.stdout) return error.stdout;
      throw error;
    },
  );
}
