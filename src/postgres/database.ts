/**
 * Connections to PostgreSQL, embedded or the operator's: pools for different purposes, and separate sessions
 * for the lane, the listener and migrations.
 */
import type pg from 'pg';
import type { QueryClass } from '../events/rules/query-cost.js';
import type { EmbeddedConnection } from './embedded.js';
import { errorCode, SQLSTATE } from './rules-error-code.js';
import { asNoAnswer, Session, SessionPool } from './session.js';
import { stepBack } from './step-back.js';
import { types } from './values.js';

export type ConnectionTarget = { readonly url: string } | EmbeddedConnection;

export interface Database {
  /** For commands, and for reads that are neither a query of a client nor urgent. */
  readonly pool: pg.Pool;
  /**
   * For queries of clients: one pool per class, with as many sessions as the class has slots
   * (relay/query-gate.ts).
   */
  readonly queryPools: Record<QueryClass, pg.Pool>;
  /**
   * For the node's own reads (outbox, settings, readiness), which must not wait behind slow queries of
   * clients.
   */
  readonly ownPool: pg.Pool;
  /**
   * For the API, whose changes wait for one another: they must not delay queries of clients, nor be delayed
   * by them.
   */
  readonly apiPool: pg.Pool;
  /** For rates and used credentials, which every client waits for. */
  readonly limitsPool: pg.Pool;
  /** For searches, whose query plans depend on how rare a word is. */
  readonly searchPool: pg.Pool;
  /** A session outside the pools, for work that keeps state: the lane, LISTEN, migrations. */
  connect(options?: SessionOptions): Promise<pg.Client>;
  /** A small separate pool with the server's own planner settings. The caller ends it. */
  separatePool(size: number, idleMsMax?: number): pg.Pool;
  /** For background work with long statements. The caller ends it. */
  patientPool(size: number, statementTimeoutMs: number): pg.Pool;
  /**
   * Ends every connection at once, and each new one: a server that hangs must not keep this process from
   * ending.
   */
  cut(): void;
  close(): Promise<void>;
}

export interface SessionOptions {
  /** A minute by default. */
  readonly statementTimeoutMs?: number;
  readonly lockTimeoutMs?: number;
  readonly idleInTransactionTimeoutMs?: number;
  /** Use the planner settings of the reading pools. */
  readonly indexWalks?: boolean;
  /** Its commits wait for the disk, whatever the server's default is. */
  readonly durable?: boolean;
  /**
   * Sends statements without waiting for the results of those before. They still run one after another. No
   * transaction may take longer than this.
   */
  readonly pipelined?: { readonly transactionMsMax: number };
}

export const VERSION_MIN = 150_000;
const POOL_SIZE = 4;
const QUERY_POOLS: Record<QueryClass, { readonly size: number; readonly timeoutMs: number }> = {
  light: { size: 6, timeoutMs: 1_000 },
  medium: { size: 4, timeoutMs: 2_000 },
  heavy: { size: 2, timeoutMs: 3_000 },
  search: { size: 2, timeoutMs: 3_000 },
};
const OWN_POOL_SIZE = 3;
const API_POOL_SIZE = 4;
const LIMITS_POOL_SIZE = 2;
/**
 * How long an unused session of a pool is kept. Longer than any safety poll: a new session costs some 30 ms
 * of CPU in the server.
 */
const IDLE_SESSION_MS = 30_000;
const READ_TIMEOUT_MS = 10_000;
const CONNECT_TIMEOUT_MS = 10_000;
/**
 * A working server cancels a statement at its time-out. If it hangs, this process gives up this much later.
 */
const SILENCE_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 60_000;

/**
 * Every read of a REQ and of the lane is an index scan. These settings keep the planner from another choice
 * while a table is small, and from keeping that plan in a prepared statement while the table grows.
 */
const INDEX_WALKS = [
  'plan_cache_mode=force_generic_plan',
  'enable_seqscan=off',
  'enable_hashjoin=off',
  'enable_mergejoin=off',
  'enable_bitmapscan=off',
  'enable_sort=off',
  'jit=off',
]
  .map((option) => `-c ${option}`)
  .join(' ');

const DURABLE = '-c synchronous_commit=on';

const PLANNED_EACH_TIME = '-c plan_cache_mode=force_custom_plan -c jit=off';

/** The time-out of the server, and that of this process for a server that hangs. */
const withinMs = (statementMs: number, silenceMs = SILENCE_MS) => ({
  statement_timeout: statementMs,
  query_timeout: statementMs + silenceMs,
});

export interface OpenDatabaseOptions {
  /** How much later than the server this process gives up; for a server that another one replaces. */
  readonly silenceMs?: number;
}

export function openDatabase(target: ConnectionTarget, { silenceMs }: OpenDatabaseOptions = {}): Database {
  const where = 'url' in target ? { connectionString: target.url } : target;
  const open = new Set<Session>();
  let isCut = false;
  class OwnSession extends Session {
    constructor(config: pg.ClientConfig = {}) {
      super(config);
      open.add(this);
      this.once('end', () => open.delete(this));
      // After it has begun to connect, so that it fails like any other.
      if (isCut) setImmediate(() => this.cut());
    }
  }
  const plain = {
    ...where,
    application_name: 'minato',
    connectionTimeoutMillis: silenceMs ?? CONNECT_TIMEOUT_MS,
    keepAlive: true,
  };
  const base = { ...plain, types };
  const poolOf = (config: pg.PoolConfig) => new SessionPool({ ...config, Client: OwnSession });
  const reading = { ...base, ...withinMs(READ_TIMEOUT_MS, silenceMs), options: INDEX_WALKS };
  const pool = poolOf({ ...reading, max: POOL_SIZE });
  const ownPool = poolOf({ ...reading, max: OWN_POOL_SIZE });
  const apiPool = poolOf({ ...reading, max: API_POOL_SIZE });
  const limitsPool = poolOf({ ...reading, max: LIMITS_POOL_SIZE });
  const queryPool = (kind: QueryClass, options = INDEX_WALKS) => {
    const { size, timeoutMs } = QUERY_POOLS[kind];
    const opened = poolOf({ ...base, ...withinMs(timeoutMs, silenceMs), options, max: size });
    // Only for the embedded server: the processes of another one may be on another machine.
    if (kind !== 'light' && !('url' in target)) {
      opened.on('connect', (client: pg.PoolClient & { readonly processID?: number | null }) => {
        if (client.processID) void stepBack(client.processID);
      });
    }
    return opened;
  };
  const queryPools = {
    light: queryPool('light'),
    medium: queryPool('medium'),
    heavy: queryPool('heavy'),
    search: queryPool('search'),
  };
  const searchPool = queryPool('search', PLANNED_EACH_TIME);
  const pools = [pool, ...Object.values(queryPools), ownPool, apiPool, limitsPool, searchPool];
  return {
    pool,
    queryPools,
    ownPool,
    apiPool,
    limitsPool,
    searchPool,
    connect: async (options = {}) => {
      const client = new OwnSession({
        ...base,
        ...withinMs(options.statementTimeoutMs ?? STATEMENT_TIMEOUT_MS),
        lock_timeout: options.lockTimeoutMs ?? 0,
        idle_in_transaction_session_timeout: options.idleInTransactionTimeoutMs ?? 0,
        options: [options.indexWalks ? INDEX_WALKS : '', options.durable ? DURABLE : ''].join(' '),
        pipeline: options.pipelined !== undefined,
      });
      client.on('error', () => undefined);
      await client.connect().catch((error: unknown) => {
        throw asNoAnswer(error);
      });
      if (options.pipelined !== undefined) await client.groupStatements(options.pipelined.transactionMsMax);
      return client;
    },
    separatePool: (max, idleMsMax = IDLE_SESSION_MS) =>
      poolOf({ ...plain, ...withinMs(STATEMENT_TIMEOUT_MS), max, idleTimeoutMillis: idleMsMax }),
    patientPool: (max, statementTimeoutMs) => poolOf({ ...base, ...withinMs(statementTimeoutMs), max }),
    cut: () => {
      isCut = true;
      for (const session of open) session.cut();
    },
    close: async () => {
      for (const each of pools) await each.end();
    },
  };
}

/** What a pooler in between takes away, and what to do. */
export const POOLED =
  'DATABASE_URL leads to a pooler such as PgBouncer, which does not pass on the settings of a session. ' +
  'Minato needs sessions of its own (LISTEN, prepared statements, time-outs, advisory locks) and pools ' +
  'them itself: connect to PostgreSQL directly.';

/** A pooler refuses the settings of a session with this code. */
export const isPooled = (error: unknown) => errorCode(error) === SQLSTATE.protocolViolation;

/** Throws if the settings of a session do not reach the server. */
export async function checkSessions({ connect }: Pick<Database, 'connect'>): Promise<void> {
  const session = await connect({ indexWalks: true }).catch((error: unknown) => {
    throw isPooled(error) ? new Error(POOLED) : error;
  });
  try {
    const { rows } = await session.query<{ mode: string }>(
      "SELECT current_setting('plan_cache_mode') AS mode",
    );
    if (rows[0]!.mode !== 'force_generic_plan') throw new Error(POOLED);
  } finally {
    await session.end();
  }
}

/** Throws if the server is older than PostgreSQL 15, or its encoding is not UTF-8. */
export async function checkVersion(client: pg.ClientBase | pg.Pool): Promise<string> {
  const { rows } = await client.query<{ number: string; version: string; encoding: string }>(
    `SELECT current_setting('server_version_num') AS number, current_setting('server_version') AS version,
       pg_encoding_to_char(encoding) AS encoding FROM pg_database WHERE datname = current_database()`,
  );
  const { number, version, encoding } = rows[0]!;
  if (Number(number) < VERSION_MIN) {
    throw new Error(
      `PostgreSQL ${version} is too old: Minato needs version 15 or newer. Upgrade the server behind ` +
        'DATABASE_URL, or unset DATABASE_URL to use the embedded one.',
    );
  }
  if (encoding !== 'UTF8') {
    throw new Error(
      `The database has the encoding ${encoding}, which cannot store every event. Create one with: ` +
        "CREATE DATABASE minato ENCODING 'UTF8' TEMPLATE template0",
    );
  }
  return version;
}
