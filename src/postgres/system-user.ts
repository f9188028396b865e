/**
 * Chooses the user that the embedded PostgreSQL runs as, and runs programs, also as that user. PostgreSQL
 * refuses to run as root, so a node started by root runs it as an unprivileged user. A program that hangs is
 * ended (I15).
 */
import { execFile } from 'node:child_process';
import { lchown, readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { NoAnswer } from '../limits/in-time.js';

const run = promisify(execFile);
/** Enough for a user database on another machine. */
const PROGRAM_MS_MAX = 30_000;

export interface SystemUser {
  uid: number;
  gid: number;
}

export interface StartOptions extends Partial<SystemUser> {
  cwd: string;
  env: NodeJS.ProcessEnv;
}

/** The arguments of `spawn` or `execFile` that start a program as the server's user. */
export type AsUser = (program: string, args: string[]) => [string, string[], StartOptions];

/**
 * Runs a program to its end. One that takes longer is killed: SIGTERM, which `execFile` sends by default,
 * does not end a program that is stopped or ignores it.
 */
export async function runProgram(
  program: string,
  args: readonly string[],
  { msMax = PROGRAM_MS_MAX, ...options }: Partial<StartOptions> & { readonly msMax?: number } = {},
): Promise<{ readonly stdout: string }> {
  try {
    return await run(program, args, { ...options, timeout: msMax, killSignal: 'SIGKILL' });
  } catch (error) {
    if ((error as { killed?: boolean }).killed !== true) throw error;
    throw new NoAnswer(`${program} did not end within ${msMax} ms`, error);
  }
}

/**
 * Undefined: the user of this process. An existing database keeps its owner, unless MINATO_USER names
 * another.
 */
export async function chooseServerUser(pgdata: string, named?: string): Promise<SystemUser | undefined> {
  const ownUid = process.getuid?.();
  const owner = await stat(pgdata).catch(() => undefined);
  if (ownUid !== 0) {
    if (owner && owner.uid !== ownUid) throw new Error(foreignDatabase(pgdata, owner.uid));
    return undefined;
  }
  const wanted = named === undefined || named === 'root' ? undefined : await lookUp(named);
  if (wanted !== undefined && wanted.uid !== 0) return wanted;
  if (owner && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid };
  const user = await findOrCreateUser(['minato', 'postgres', 'nobody']);
  if (user !== undefined) return user;
  throw new Error(
    'PostgreSQL does not run as root, and there is no user minato, postgres or nobody to run it as. ' +
      'Create a system user "minato", start the node as a normal user, or set DATABASE_URL.',
  );
}

/** The system user "minato", created if it is missing, or the first of these names that exists. */
export async function findOrCreateUser(names: readonly string[]): Promise<SystemUser | undefined> {
  const existing = await lookUp('minato');
  if (existing) return existing;
  // It may fail: a read-only /etc, or a system without useradd. Then another unprivileged user is taken.
  const flags = ['--system', '--no-create-home', '--shell', '/usr/sbin/nologin'];
  await runProgram('useradd', [...flags, 'minato']).catch(() => undefined);
  for (const name of names) {
    const user = await lookUp(name);
    if (user) return user;
  }
  return undefined;
}

export async function lookUp(name: string): Promise<SystemUser | undefined> {
  try {
    const [uid, gid] = await Promise.all([runProgram('id', ['-u', name]), runProgram('id', ['-g', name])]);
    return { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  } catch {
    return undefined;
  }
}

/**
 * Changes the owner of a folder and its contents; the folder last, so that an interrupted run is repeated.
 */
export async function giveFolder(folder: string, user: SystemUser): Promise<void> {
  for (const entry of await readdir(folder, { recursive: true })) {
    await lchown(join(folder, entry), user.uid, user.gid);
  }
  await lchown(folder, user.uid, user.gid);
}

/**
 * The user must be able to enter every folder above the database and above the binaries. It cannot enter a
 * clone under /root, or in a folder made by `mktemp -d`. Minato does not change the mode of other people's
 * folders: instead the program starts with the one capability that ignores file permissions.
 */
export async function asUser(
  user: SystemUser | undefined,
  paths: string[],
  ownEnv: NodeJS.ProcessEnv = {},
): Promise<AsUser> {
  // Not the caller's environment: PGDATA, LC_ALL and the like would change what PostgreSQL does.
  // cwd: the caller's may be closed to the user.
  const env = { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C', ...ownEnv };
  const options = { cwd: '/', env };
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
    await runProgram('setpriv', ['--version']);
  } catch {
    throw new Error(
      `The user of the database (id ${user.uid}) cannot enter ${closed}, and setpriv is missing. ` +
        `Run "chmod o+x ${closed}", install setpriv (util-linux), ` +
        'or move Minato and its data folder elsewhere.',
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
    `The database in ${pgdata} belongs to another user (id ${uid}): root or somebody else started the node ` +
    'first. Start it as that user or as root, or change the owner of the whole data folder.'
  );
}
