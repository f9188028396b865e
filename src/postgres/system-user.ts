/**
 * Which user the embedded PostgreSQL runs as, and how to start a program as that user.
 * PostgreSQL refuses to run as root, so a node of root's hands the database to a user without rights.
 */
import { execFile } from 'node:child_process';
import { lchown, readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
/** Users may be kept on another machine. */
const IN_TIME = { timeout: 30_000 };

export interface SystemUser {
  uid: number;
  gid: number;
}

export interface StartOptions extends Partial<SystemUser> {
  cwd: string;
  env: NodeJS.ProcessEnv;
}

/** A program as the server's user: give the three parts to `spawn` or `execFile`. */
export type AsUser = (program: string, args: string[]) => [string, string[], StartOptions];

/** Undefined: as whoever we are. A database that exists keeps its owner. */
export async function chooseServerUser(pgdata: string): Promise<SystemUser | undefined> {
  const ownUid = process.getuid?.();
  const owner = await stat(pgdata).catch(() => undefined);
  if (ownUid !== 0) {
    if (owner && owner.uid !== ownUid) throw new Error(foreignDatabase(pgdata, owner.uid));
    return undefined;
  }
  if (owner && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid };
  return findOrCreateUser();
}

async function findOrCreateUser(): Promise<SystemUser> {
  const existing = await lookUp('minato');
  if (existing) return existing;
  // It may fail: a read-only /etc, or a system without useradd. Then another user without rights does.
  const flags = ['--system', '--no-create-home', '--shell', '/usr/sbin/nologin'];
  await run('useradd', [...flags, 'minato'], IN_TIME).catch(() => undefined);
  for (const name of ['minato', 'postgres', 'nobody']) {
    const user = await lookUp(name);
    if (user) return user;
  }
  throw new Error(
    'PostgreSQL does not run as root, and there is no user minato, postgres or nobody to run it as. ' +
      'Create a system user "minato", start the node as a normal user, or set DATABASE_URL.',
  );
}

async function lookUp(name: string): Promise<SystemUser | undefined> {
  try {
    const [uid, gid] = await Promise.all([
      run('id', ['-u', name], IN_TIME),
      run('id', ['-g', name], IN_TIME),
    ]);
    return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  } catch {
    return undefined;
  }
}

/** Hands over a folder with all that is in it; the folder itself last, so that a broken-off run is done again. */
export async function giveFolder(folder: string, user: SystemUser): Promise<void> {
  for (const entry of await readdir(folder, { recursive: true })) {
    await lchown(join(folder, entry), user.uid, user.gid);
  }
  await lchown(folder, user.uid, user.gid);
}

/**
 * The user must be able to enter every folder above the database and above the binaries. A clone under /root,
 * or in a folder made by `mktemp -d`, is closed to it. Opening other people's folders is not ours to do, so the
 * program then starts with the one capability that passes closed doors.
 */
export async function asUser(user: SystemUser | undefined, paths: string[]): Promise<AsUser> {
  // Not the caller's environment: PGDATA, LC_ALL and the like would change what PostgreSQL does.
  // cwd: the caller's may be closed to the user.
  const options = { cwd: '/', env: { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C' } };
  if (!user) return (program, args) => [program, args, options];
  const closed = await firstClosed(paths, user);
  if (closed === undefined) return (program, args) => [program, args, { ...options, ...user }];
  await requireSetpriv(closed, user);
  return (program, args) => ['setpriv', [...withCapability(user), '--', program, ...args], options];
}

function withCapability(user: SystemUser): string[] {
  // dac_override alone is enough, and unlike dac_read_search a Docker container of root's has it.
  const capabilities = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override'];
  // PostgreSQL looks for its own program with access(2), which ignores capabilities unless this bit is set.
  const heedCapabilities = '--securebits=+no_setuid_fixup';
  return [`--reuid=${user.uid}`, `--regid=${user.gid}`, '--clear-groups', ...capabilities, heedCapabilities];
}

async function requireSetpriv(closed: string, user: SystemUser): Promise<void> {
  try {
    await run('setpriv', ['--version'], IN_TIME);
  } catch {
    throw new Error(
      `The database's user (id ${user.uid}) cannot enter ${closed}, and the program setpriv, which would help, is missing. ` +
        `Run "chmod o+x ${closed}", install setpriv (util-linux), or move Minato and its data folder elsewhere.`,
    );
  }
}

async function firstClosed(paths: string[], user: SystemUser): Promise<string | undefined> {
  for (const step of paths.flatMap(stepsTo)) {
    if (!(await mayEnter(step, user))) return step;
  }
  return undefined;
}

/** "/a/b" → "/", "/a", "/a/b". */
function stepsTo(path: string): string[] {
  const parent = dirname(path);
  return parent === path ? [path] : [...stepsTo(parent), path];
}

async function mayEnter(path: string, user: SystemUser): Promise<boolean> {
  const { mode, uid, gid } = await stat(path);
  if (uid === user.uid) return (mode & 0o100) !== 0;
  if (gid === user.gid) return (mode & 0o010) !== 0;
  return (mode & 0o001) !== 0;
}

function foreignDatabase(pgdata: string, uid: number): string {
  return (
    `The database in ${pgdata} belongs to another user (id ${uid}): the node was first started as root or by somebody else. ` +
    'Start it as that user or as root, or change the owner of the whole data folder.'
  );
}
