/** Checks the keys of the node and their secrets in the data folder. */
import { dirname } from 'node:path';
import type { Pool } from 'pg';
import { readCommunities } from '../communities/communities.sql.js';
import { DAY_MS } from '../events/rules/retention.js';
import { NodeKeys } from '../keys/keys.js';
import { listKeys } from '../keys/keys.sql.js';
import { type Finding, ok, warn } from './finding.js';
import { count } from './rules-text.js';

/** How long a key that the node has replaced is reported. */
const REPLACED_SHOWN_MS = 90 * DAY_MS;
const KEYS_SHOWN_MAX = 5;
/** Anything to sign with a key waits while the secret of that key is not on this machine. */
export async function* checkKeys(pool: Pool, dataDir: string): AsyncGenerator<Finding> {
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
