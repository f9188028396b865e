/** The part of `minato doctor` about the keys and the erasure certificates in the data folder. */
import { dirname } from 'node:path';
import type { Pool } from 'pg';
import { readCommunities } from '../communities/communities.sql.js';
import { certificatesFile } from '../erasure/certificates/sign.js';
import { findForgotten, strangeOrigin } from '../erasure/forgotten.js';
import { unfencedReplays } from '../erasure/replay.sql.js';
import { DAY_MS } from '../events/rules/retention.js';
import { NodeKeys } from '../keys/keys.js';
import { listKeys } from '../keys/keys.sql.js';
import type { Database } from '../postgres/database.js';
import { type Finding, fail, ok, warn } from './finding.js';
import { count } from './progress.js';

/** How long a key that the node has replaced is reported. */
const REPLACED_SHOWN_MS = 90 * DAY_MS;
const KEYS_SHOWN_MAX = 5;
/** Anything to sign with a key waits while the secret of that key is not on this machine. */
export async function* checkKeys({ pool }: Database, dataDir: string): AsyncGenerator<Finding> {
  const keys = new NodeKeys({ folder: dataDir, pool, now: Date.now });
  let here = 0;
  const known = new Set<string>();
  for (const { id, slug } of await readCommunities(pool)) {
    for (const { purpose, pubkey, createdAt, retiredAt, reason } of await listKeys(pool, id)) {
      known.add(pubkey);
      if (retiredAt !== null) continue;
      if (reason !== null && Date.now() - createdAt < REPLACED_SHOWN_MS)
        yield warn(
          `community ${slug}: the node replaced the ${purpose} key ` +
            `on ${new Date(createdAt).toISOString().slice(0, 10)}: ${reason}`,
          'Give the new public key to everybody who verifies its signatures ("minato keys" shows both).',
        );
      if (await keys.isHere(pubkey)) here += 1;
      else
        yield warn(
          `community ${slug}: the secret of the ${purpose} key is not at ${keys.pathOf(pubkey)}`,
          'A node with a worker gets it from another node that has it while both run. If no node has it, ' +
            `copy the file there, or make a new key: minato keys rotate ${purpose} -c ${slug}`,
        );
    }
  }
  const unknown = (await keys.files()).filter((pubkey) => !known.has(pubkey));
  if (unknown.length > 0)
    yield warn(
      `${count(unknown.length)} secrets in ${dirname(keys.pathOf(''))} belong to keys that the database ` +
        `does not know: ${unknown.slice(0, KEYS_SHOWN_MAX).join(', ')}`,
      'Keep them after a restore: they may have signed certificates. If their community was erased, ' +
        'delete the files (<public key>.key).',
    );
  if (here > 0) yield ok(`secrets of ${count(here)} signing ${here === 1 ? 'key' : 'keys'} are here`);
}

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
