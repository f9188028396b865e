/** The part of `minato doctor` about the erasure certificates in the data folder. */
import type { Pool } from 'pg';
import { certificatesFile } from '../erasure/certificates/sign.js';
import { findForgotten, strangeOrigin } from '../erasure/forgotten.js';
import { unfencedReplays } from '../erasure/replay.sql.js';
import { type Finding, fail, ok, warn } from '../health/finding.js';
import { count } from './progress.js';

/** A restored database has data of members who were erased after the backup. They must be erased again. */
export async function* checkForgotten(pool: Pool, folder: string): AsyncGenerator<Finding> {
  const path = certificatesFile(folder);
  const { proofs, known, unreadable } = await findForgotten(pool, folder);
  if (unreadable > 0)
    yield warn(
      `${path}: ${count(unreadable)} lines cannot be read as certificates`,
      'A crash may have cut them off; the database has the certificates.',
    );
  const waiting = await unfencedReplays(pool);
  if (proofs.length === 0 && waiting.length === 0) {
    if (known > 0) yield ok(`${count(known)} certificates in ${path}, all known to the database`);
    return;
  }
  const why = await strangeOrigin(pool, { proofs, known });
  if (why !== undefined)
    yield fail(
      `${path} belongs to another database: ${why}`,
      'Check DATABASE_URL and MINATO_DATA_DIR; for a new node, move that file away. ' +
        'The node does not start with it.',
    );
  else
    yield fail(
      'the database was restored from a backup: ' +
        `it does not know ${count(proofs.length + waiting.length)} erasures`,
      'Start the node, which repeats these erasures before it serves anything, or run "minato erase replay".',
    );
}
