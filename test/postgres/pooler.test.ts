/** A pooler between node and database would break sessions without a word, so it is refused with one. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { findOrCreateUser } from '../../src/postgres/system-user.js';
import { eventually, runCli, startCli } from '../support/cli.js';
import { environmentOf } from '../support/servers/debian-package.js';
import { freePort } from '../support/servers/free-port.js';
import { findPgbouncer } from '../support/servers/programs.js';
import { Replicated } from '../support/servers/replicated.js';

let servers: Replicated;
let folder: string;

beforeAll(async () => {
  servers = await Replicated.start();
  folder = await mkdtemp(join(tmpdir(), 'minato-pooler-'));
});
afterAll(async () => {
  await servers?.stop();
  await rm(folder, { recursive: true, force: true });
});

async function startPooler(settings: string): Promise<{ url: string; child: ChildProcess }> {
  const program = await findPgbouncer();
  const user = process.getuid?.() === 0 ? await findOrCreateUser(['postgres', 'minato']) : undefined;
  const port = await freePort();
  const file = join(folder, `${port}.ini`);
  const users = join(folder, 'users.txt');
  await writeFile(users, '"minato" ""\n');
  await writeFile(
    file,
    `[databases]\n* = host=127.0.0.1 port=${servers.primary.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n` +
      `listen_port = ${port}\nunix_socket_dir =\nauth_type = trust\nauth_file = ${users}\n${settings}\n`,
  );
  if (user !== undefined) for (const path of [folder, file, users]) await chown(path, user.uid, user.gid);
  const child = spawn(program.path, [file], { ...user, env: environmentOf(program), stdio: 'ignore' });
  await eventually('the pooler answers', async () => {
    const client = new pg.Client({ host: '127.0.0.1', port, user: 'minato', database: 'minato' });
    client.on('error', () => undefined);
    const isUp = await client.connect().then(
      () => true,
      () => undefined,
    );
    await client.end().catch(() => undefined);
    return isUp;
  });
  return { url: `postgres://minato@127.0.0.1:${port}/minato`, child };
}

it.each([
  ['in transaction mode', 'pool_mode = transaction'],
  [
    'that is set to ignore what it does not know',
    'pool_mode = transaction\nignore_startup_parameters = ' +
      'options,statement_timeout,lock_timeout,idle_in_transaction_session_timeout',
  ],
])('PgBouncer %s is refused by the start and by doctor', async (_, settings) => {
  const { url, child } = await startPooler(settings);
  try {
    const { code, stderr } = await startCli(['serve'], { DATABASE_URL: url, MINATO_PORT: '0' }).ended;
    expect(code).toBe(1);
    expect(stderr).toMatch(/^minato: DATABASE_URL leads to a pooler such as PgBouncer.*directly\.\n$/);
    const examined = await runCli(['doctor'], { DATABASE_URL: url });
    expect(examined.code).toBe(1);
    expect(examined.stdout).toMatch(/FAIL postgres:.* is a pooler\n.*connect to PostgreSQL directly/);
  } finally {
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await ended;
  }
});
