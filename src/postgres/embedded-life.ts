/** One process of the embedded PostgreSQL: launch, first answer, end. */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { NAME } from './embedded-access.js';
import { type EmbeddedConnection, PORT, type ServerLog, type Site } from './embedded-site.js';
import { SQLSTATE } from './rules-error-code.js';
import { machineSize, serverSettings } from './server-settings.js';
import { Session } from './session.js';

const READY_MS_MAX = 10 * 60_000; // Crash recovery of a large database takes minutes.
const PROGRESS_MS = 5_000;
const CONNECT_MS_MAX = 5_000;
/** CREATE DATABASE copies a template, which takes seconds on a slow disk. */
const CREATE_MS_MAX = 60_000;
const LAST_LINES = 20;
const HINDERED = 'F0001'; // lock_file_exists

export interface Life {
  /** Undefined if the program could not be started. */
  pid: number | undefined;
  startedAt: number;
  /** False before and after it serves: then its routine messages are not logged. */
  serving: boolean;
  lastLines: string[];
  /** The reason of its end; undefined while it runs. */
  end: string | undefined;
  ended: Promise<void>;
}

export function launch(site: Site, log: ServerLog): Life {
  const { memoryBytes, cores } = machineSize();
  const settings = {
    ...serverSettings(memoryBytes, cores, site.diskBytes),
    ...site.extras?.settings,
    port: `${PORT}`,
    // PostgreSQL reads a list of paths: the quotes keep a comma in the path from splitting it.
    unix_socket_directories: `"${site.connection.host.replaceAll('"', '""')}"`,
  };
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const [command, args, options] = site.asUser(site.postgres, ['-D', site.pgdata, ...flags]);
  // Detached: Ctrl-C in the terminal must reach only the node, which stops the server after its own work.
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
      // Children that survive a killed server keep its log open: do not wait for them.
      child.once('exit', (code, signal) => setTimeout(end, 200, signal ?? `exit code ${code}`));
    }),
  };
  createInterface({ input: child.stderr }).on('line', (line) => hear(life, line, log));
  return life;
}

/**
 * A line is "SQLSTATE SEVERITY:  text". Other lines come from the system and are shown only if the server
 * ends.
 */
function hear(life: Life, line: string, log: ServerLog): void {
  life.lastLines = [...life.lastLines, line].slice(-LAST_LINES);
  const [, sqlstate = '', severity, text] = /^(\w{5}) ([A-Z]+): +(.*)$/.exec(line) ?? [];
  // "Starting up" and "shutting down", sent to each client; and what a start waits for (see hindered).
  if (sqlstate.startsWith('57P') || sqlstate === HINDERED) return;
  // The scheduler looks for its tables before it creates them.
  if (sqlstate === SQLSTATE.undefinedTable) return;
  // Pipelined statements after one that failed: that failure was logged.
  if (sqlstate === SQLSTATE.failedTransaction) return;
  if (severity === 'LOG' && life.serving) log.info(`PostgreSQL: ${text}`);
  if (severity === 'WARNING' || severity === 'ERROR') log.warn(`PostgreSQL: ${text} (${sqlstate})`);
  if (severity === 'FATAL' || severity === 'PANIC') log.error(`PostgreSQL: ${text} (${sqlstate})`);
}

export async function untilReady(life: Life, site: Site, log: ServerLog, signal: AbortSignal): Promise<void> {
  let nextReportMs = PROGRESS_MS;
  while (!(await answers(site.connection))) {
    const waitedMs = Date.now() - life.startedAt;
    if (life.end !== undefined)
      throw new Error(`PostgreSQL ended while starting (${life.end}). ${lastLogLines(life)}`);
    if (waitedMs > (site.extras?.readyMsMax ?? READY_MS_MAX))
      throw new Error(`PostgreSQL does not become ready. ${lastLogLines(life)}`);
    if (waitedMs > nextReportMs) {
      log.info(`PostgreSQL is starting (${Math.round(waitedMs / 1000)} s): ${life.lastLines.at(-1) ?? ''}`);
      nextReportMs += PROGRESS_MS;
    }
    await delay(waitedMs < PROGRESS_MS ? 50 : 500, undefined, { signal });
  }
}

export const lastLogLines = (life: Life) => `Its last log lines:\n${life.lastLines.join('\n')}`;

async function answers(connection: EmbeddedConnection): Promise<boolean> {
  try {
    await withClient(connection, (client) => client.query('SELECT 1'));
    return true;
  } catch (error) {
    // 57P…: it is starting up or shutting down. Without a SQLSTATE there is no server at the socket yet.
    if (error instanceof pg.DatabaseError && !error.code?.startsWith('57P')) throw error;
    return false;
  }
}

export async function createDatabase(connection: EmbeddedConnection): Promise<void> {
  await withClient(connection, async (client) => {
    const { rowCount } = await client.query('SELECT 1 FROM pg_database WHERE datname = $1', [NAME]);
    if (rowCount === 0) await client.query(`CREATE DATABASE ${NAME}`);
  });
}

async function withClient(
  connection: EmbeddedConnection,
  work: (client: pg.Client) => Promise<unknown>,
): Promise<void> {
  const client = new Session({
    ...connection,
    database: 'postgres',
    ssl: false,
    connectionTimeoutMillis: CONNECT_MS_MAX,
    query_timeout: CREATE_MS_MAX,
  });
  client.on('error', () => {}); // A connection lost while idle; the next query fails.
  try {
    await client.connect();
    await work(client);
  } finally {
    await client.end().catch(() => {});
  }
}

/** Children of a killed server still hold its shared memory; they end soon. */
export const hindered = (life: Life) => life.lastLines.some((line) => line.startsWith(HINDERED));
