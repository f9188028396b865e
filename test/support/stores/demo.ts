/** A database and a data folder that `minato demo` has filled: once for all test files, which get copies. */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { cp, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { getPublicKey } from 'nostr-tools/pure';
import { expect, inject } from 'vitest';
import { runCli } from '../cli.js';
import type { Author } from '../events.js';
import { asAdmin, createTestDatabase, type TestDatabase } from '../servers/database.js';

const DEMO = ['--members', '16', '--weeks', '2', '--events', '260'];
const DATABASE = 'minato_demo';
/** Test files that need the first copy at the same moment wait for each other. */
const LOCK = 77_002;

const secret = createHash('sha256').update('the operator of the demo').digest();
/** The operator of the demo, by MINATO_ADMIN_PUBKEYS. */
export const demoBoss: Author = { secret, pubkey: getPublicKey(secret) };

export async function createDemoDatabase(): Promise<TestDatabase> {
  const folder = join(inject('scratch'), 'demo');
  await asAdmin(async (admin) => {
    await admin.query('SELECT pg_advisory_lock($1)', [LOCK]);
    if (existsSync(folder)) return;
    const made = await makeDemo();
    await admin.query(`ALTER DATABASE ${made.connection.database} RENAME TO ${DATABASE}`);
    await rename(made.folder, folder);
  });
  const copy = await createTestDatabase(DATABASE);
  await cp(folder, copy.folder, { recursive: true });
  return copy;
}

async function makeDemo(): Promise<TestDatabase> {
  const test = await createTestDatabase();
  const { code, stderr } = await runCli(['demo', ...DEMO], {
    DATABASE_URL: test.url,
    MINATO_PORT: '0',
    MINATO_DATA_DIR: test.folder,
    MINATO_ADMIN_PUBKEYS: demoBoss.pubkey,
    MINATO_TOPIC_MODE: 'default',
  });
  expect({ code, stderr: code === 0 ? '' : stderr }).toEqual({ code: 0, stderr: '' });
  return test;
}
