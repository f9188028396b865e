/** The secrets in the data folder of a node: the files of its keys. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ledger } from './ledger.js';

export async function keepNodeKeys(dataDir: string): Promise<void> {
  const folder = join(dataDir, 'keys');
  const names = await readdir(folder).catch(() => []);
  for (const name of names)
    ledger.keep('key of the node', (await readFile(join(folder, name), 'utf8')).trim());
}
