/**
 * Registers the deleter of every store of a node (I12). Where Redis or DynamoDB is not configured, the data
 * is in PostgreSQL, and the deleter of that table is registered instead. The event store has its own.
 */
import type { Client, Pool } from 'pg';
import type { EventStore } from '../../events/store.js';
import type { NodeKeys } from '../../keys/keys.js';
import type { SubjectKey } from '../../keys/subject-key.js';
import type { Database } from '../../postgres/database.js';
import type { Certificates } from '../certificates/sign.js';
import type { Deleter } from './deleter.js';
import { DeletionRegistry } from './deletion-registry.js';
import { keyFilesDeleter } from './files.js';
import { postgresDeleters } from './postgres.js';

/** What erasures need of a node. */
export interface Erasing {
  readonly pool: Pool;
  readonly store: EventStore;
  readonly subjectKey: SubjectKey;
  readonly keys: NodeKeys;
  readonly certificates: Certificates;
  /** How far ahead of the clock an event may be signed, in seconds. */
  readonly aheadSeconds: (community: number) => number;
  /** Deleters of sessions, limits and the audit log, in whichever store they are. */
  readonly others: (pool: Pool) => readonly Deleter[];
}

/** Counting a large table may take minutes. */
const STATEMENT_MS_MAX = 600_000;

export interface OpenedRegistry {
  readonly registry: DeletionRegistry;
  readonly client: Client;
}

interface RegistryBounds {
  readonly now: () => number;
  /** Rows of one batch. */
  readonly rows: number;
  readonly statementMsMax?: number;
}

/** Uses database sessions of its own, whose statements may take longer than those of clients. */
export async function withRegistry<T>(
  erasing: Erasing,
  database: Database,
  { now, rows, statementMsMax = STATEMENT_MS_MAX }: RegistryBounds,
  work: (opened: OpenedRegistry) => Promise<T>,
): Promise<T> {
  const client = await database.connect({ statementTimeoutMs: statementMsMax });
  const pool = database.patientPool(1, statementMsMax);
  try {
    return await work({ client, registry: registryOf(erasing, { client, pool, now, rows }) });
  } finally {
    await client.end().catch(() => undefined);
    await pool.end().catch(() => undefined);
  }
}

interface Sessions {
  readonly client: Client;
  readonly pool: Pool;
  readonly now: () => number;
  /** Rows of one batch. */
  readonly rows: number;
}

export function registryOf(erasing: Erasing, { client, pool, now, rows }: Sessions): DeletionRegistry {
  const { store, keys, others } = erasing;
  return new DeletionRegistry().register(
    ...others(pool),
    keyFilesDeleter({ pool, keys }),
    ...postgresDeleters({ client, store, now, rows }),
  );
}
