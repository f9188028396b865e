/** Connections to PostgreSQL, embedded or the operator's: one pool for reading, and sessions of their own for lane and listener. */
import pg from 'pg';
import type { EmbeddedConnection } from './embedded.js';
import { asNoAnswer, Session, SessionPool } from './session.js';

export type ConnectionTarget = { readonly url: string } | EmbeddedConnection;

export interface Database {
  /** For clients' queries. */
  readonly pool: pg.Pool;
  /** For the node's own reads (outbox, settings, readiness), which must not wait behind slow queries of clients. */
  readonly ownPool: pg.Pool;
  /** For the API, whose changes wait for one another: neither they nor slow queries of clients hold up the other. */
  readonly apiPool: pg.Pool;
  /** For rates and used credentials, which everyone waits for. */
  readonly limitsPool: pg.Pool;
  /** For searches, whose plans depend on how rare a word is. */
  readonly searchPool: pg.Pool;
  /** A session outside the pool, for work that holds state: the lane, LISTEN, migrations. */
  connect(options?: SessionOptions): Promise<pg.Client>;
  /** A small pool apart from the readers', with the server's own planner settings; its maker ends it. */
  separatePool(size: number): pg.Pool;
  /** For work in the background whose statements may take long. The caller ends it. */
  patientPool(size: number, statementTimeoutMs: number): pg.Pool;
  /**
   * Ends every connection at once, and each new one: a server that hangs must not hold up the end of this
   * process.
   */
  cut(): void;
  close(): Promise<void>;
}

export interface SessionOptions {
  /** A minute by default. */
  readonly statementTimeoutMs?: number;
  readonly lockTimeoutMs?: number;
  readonly idleInTransactionTimeoutMs?: number;
  /** Plans like those of the reading pool. */
  readonly indexWalks?: boolean;
  /** Statements are sent without waiting for the answers of those before; they still run one after another. */
  readonly pipelined?: boolean;
}

export const VERSION_MIN = 150_000;
const POOL_SIZE = 6;
const OWN_POOL_SIZE = 3;
const API_POOL_SIZE = 4;
const LIMITS_POOL_SIZE = 2;
const SEARCH_POOL_SIZE = 3;
const READ_TIMEOUT_MS = 10_000;
const CONNECT_TIMEOUT_MS = 10_000;
/**
 * A server that works ends a statement that takes too long by itself; one that hangs is given up so much
 * later.
 */
const SILENCE_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 60_000;

/**
 * Every read of a REQ and of the lane is a walk along an index. These keep the planner from guessing otherwise while a table
 * is small, and from keeping that guess in a prepared statement while it grows.
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

const PLANNED_EACH_TIME = '-c plan_cache_mode=force_custom_plan -c jit=off';

const types = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') => {
    // Sequence numbers and times stay far below 2^53, so an int8 is a plain number here.
    if (oid === pg.types.builtins.INT8 && format !== 'binary') return Number;
    return pg.types.getTypeParser(oid, format as 'text');
  }) as typeof pg.types.getTypeParser,
};

/** The server's own time-out, and that of this side for a server that hangs. */
const withinMs = (statementMs: number) => ({
  statement_timeout: statementMs,
  query_timeout: statementMs + SILENCE_MS,
});

export function openDatabase(target: ConnectionTarget): Database {
  const where = 'url' in target ? { connectionString: target.url } : target;
  const open = new Set<Session>();
  let isCut = false;
  class OwnSession extends Session {
    constructor(config: pg.ClientConfig = {}) {
      super(config);
      open.add(this);
      this.once('end', () => open.delete(this));
      // Not before it has begun to connect: then it fails as any other.
      if (isCut) setImmediate(() => this.cut());
    }
  }
  const plain = {
    ...where,
    application_name: 'minato',
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
  };
  const base = { ...plain, types };
  const poolOf = (config: pg.PoolConfig) => new SessionPool({ ...config, Client: OwnSession });
  const reading = { ...base, ...withinMs(READ_TIMEOUT_MS), options: INDEX_WALKS };
  const pool = poolOf({ ...reading, max: POOL_SIZE });
  const ownPool = poolOf({ ...reading, max: OWN_POOL_SIZE });
  const apiPool = poolOf({ ...reading, max: API_POOL_SIZE });
  const limitsPool = poolOf({ ...reading, max: LIMITS_POOL_SIZE });
  const searchPool = poolOf({ ...reading, options: PLANNED_EACH_TIME, max: SEARCH_POOL_SIZE });
  const pools = [pool, ownPool, apiPool, limitsPool, searchPool];
  return {
    pool,
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
        ...(options.indexWalks ? { options: INDEX_WALKS } : {}),
        pipeline: options.pipelined ?? false,
      });
      client.on('error', () => undefined);
      await client.connect().catch((error: unknown) => {
        throw asNoAnswer(error);
      });
      return client;
    },
    separatePool: (max) => poolOf({ ...plain, ...withinMs(STATEMENT_TIMEOUT_MS), max }),
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

/** PostgreSQL 15 or newer; an older one is refused with a sentence. */
export async function checkVersion(client: pg.ClientBase | pg.Pool): Promise<string> {
  const { rows } = await client.query<{ number: string; version: string; encoding: string }>(
    `SELECT current_setting('server_version_num') AS number, current_setting('server_version') AS version,
       pg_encoding_to_char(encoding) AS encoding FROM pg_database WHERE datname = current_database()`,
  );
  const { number, version, encoding } = rows[0]!;
  if (Number(number) < VERSION_MIN) {
    throw new Error(
      `PostgreSQL ${version} is too old: Minato needs version 15 or newer. Upgrade the server behind DATABASE_URL, or unset DATABASE_URL to use the embedded one.`,
    );
  }
  if (encoding !== 'UTF8') {
    throw new Error(
      `The database has the encoding ${encoding}, which cannot hold every event. Make one with: CREATE DATABASE minato ENCODING 'UTF8' TEMPLATE template0`,
    );
  }
  return version;
}
