/**
 * Writes docs/schema.md from a temporary database, which it starts and migrates:
 *   npm run docs:schema
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { startEmbedded } from '../src/postgres/embedded.js';
import { migrate } from '../src/postgres/migrate.js';
import { schemaPage } from './schema-page.js';

const PAGE = fileURLToPath(new URL('../docs/schema.md', import.meta.url));
const quiet = { info: () => undefined, warn: () => undefined, error: console.error };

const folder = await mkdtemp(join(tmpdir(), 'minato-schema-'));
const server = await startEmbedded(folder, quiet);
try {
  const client = new pg.Client(server.connection);
  await client.connect();
  await migrate(client);
  await writeFile(PAGE, await schemaPage(client));
  await client.end();
} finally {
  await server.stop();
  await rm(folder, { recursive: true, force: true });
}
