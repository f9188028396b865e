/**
 * Files under the data folder: the secrets of a community's own keys. Files of members are in the database.
 */
import { access, rm } from 'node:fs/promises';
import type { Pool } from 'pg';
import type { NodeKeys } from '../../keys/keys.js';
import { listKeys } from '../../keys/keys.sql.js';
import type { Deleter } from './deleter.js';

export function keyFilesDeleter({ pool, keys }: { readonly pool: Pool; readonly keys: NodeKeys }): Deleter {
  const pathsOf = async (community: number): Promise<string[]> => {
    const paths = (await listKeys(pool, community)).map(({ pubkey }) => keys.pathOf(pubkey));
    const there = await Promise.all(
      paths.map((path) =>
        access(path).then(
          () => true,
          () => false,
        ),
      ),
    );
    return paths.filter((_, at) => there[at]);
  };
  return {
    name: 'files:keys',
    holds: ['keys'],
    count: async (subject) => (subject.type === 'community' ? (await pathsOf(subject.community)).length : 0),
    delete: async (subject, progress) => {
      if (subject.type === 'member') return 0;
      const paths = await pathsOf(subject.community);
      for (const path of paths) await rm(path, { force: true });
      await progress(paths.length);
      return paths.length;
    },
  };
}
