/** Every store of a node, registered. What is not configured is in PostgreSQL, and its deleter is registered instead. */
import type { Client, Pool } from 'pg';
import type { NodeKeys } from '../keys.js';
import type { Lane } from '../lane.js';
import type { TagHash } from '../store/tag-hash.js';
import type { SubjectKey } from '../subject-key.js';
import type { Certificates } from './certificate.js';
import type { Deleter } from './deleter.js';
import { DeletionRegistry } from './deletion-registry.js';
import { keyFilesDeleter } from './files.js';
import { postgresDeleters } from './postgres.js';

/** What erasures need of a node. */
export interface Erasing {
  readonly pool: Pool;
  readonly lane: Lane;
  readonly tagHash: TagHash;
  readonly subjectKey: SubjectKey;
  readonly keys: NodeKeys;
  readonly certificates: Certificates;
  /** How far ahead of the clock an event may be signed, in seconds. */
  readonly aheadSeconds: (community: number) => number;
  /** Sessions, limits and the audit log, wherever they are. */
  readonly others: (pool: Pool) => readonly Deleter[];
}

export interface SessionOf {
  readonly client: Client;
  /** With statements that may take longer than those of clients; the API's own unless told. */
  readonly pool?: Pool;
  readonly now: () => number;
  readonly rows: number;
}

export function openRegistry(erasing: Erasing, { client, pool, now, rows }: SessionOf): DeletionRegistry {
  const { lane, tagHash, keys, others } = erasing;
  return new DeletionRegistry().register(
    ...others(pool ?? erasing.pool),
    keyFilesDeleter({ pool: erasing.pool, keys }),
    ...postgresDeleters({ client, lane, tagHash, now, rows }),
  );
}
