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
  readonly others: readonly Deleter[];
}

export function openRegistry(
  erasing: Erasing,
  { client, now, rows }: { readonly client: Client; readonly now: () => number; readonly rows: number },
): DeletionRegistry {
  const { lane, tagHash, pool, keys, others } = erasing;
  return new DeletionRegistry().register(
    ...others,
    keyFilesDeleter({ pool, keys }),
    ...postgresDeleters({ client, lane, tagHash, now, rows }),
  );
}
