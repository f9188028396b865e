/**
 * I6: a node on a restored backup serves nobody who was erased since; on another database it does not start.
 */
import { cp, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { checkFiles } from '../../src/erasure/certificates/check.js';
import { certificatesFile } from '../../src/erasure/certificates/sign.js';
import { findForgotten } from '../../src/erasure/forgotten.js';
import { replayErasures } from '../../src/erasure/replay.js';
import { withRegistry } from '../../src/erasure/stores/registry.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { readConfig } from '../../src/node/config.js';
import { createLog } from '../../src/node/log.js';
import { startWriter } from '../../src/node/writer.js';
import { openDatabase } from '../../src/postgres/database.js';
import { runCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { askFor, ERASED, jobContext, runErasures } from '../support/domains/erasure.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';

const [alice, bob] = [newAuthor(), newAuthor()];
const posts = [alice, bob].map((author) => sign(author, { content: 'posted' }));
const databases: TestDatabase[] = [];
let original: TestDatabase;
let folder: string;

const nodeOn = (on: TestDatabase, place = folder): Promise<TestNode> =>
  startTestNode({ on, env: { MINATO_DATA_DIR: place } });
const copyOf = async (name?: string): Promise<TestDatabase> => {
  const made = await createTestDatabase(name);
  databases.push(made);
  return made;
};
/** Ids, in the order of the posts; nothing where the community is not there. */
async function served({ url }: TestNode, path = ''): Promise<string[]> {
  const client = await RawClient.connect(url + path);
  const { events } = await client.query({ authors: [alice.pubkey, bob.pubkey], kinds: [1] });
  await client.close();
  return posts.flatMap(({ id }) => (events.some((event) => event.id === id) ? [id] : []));
}
/** A data folder with what is kept apart from the dump. */
async function machine(name: string): Promise<string> {
  for (const kept of ['keys', 'certificates.jsonl'])
    await cp(join(folder, kept), join(folder, name, kept), { recursive: true });
  return join(folder, name);
}
const certificatesIn = async (place: string) =>
  (await readFile(certificatesFile(place), 'utf8')).split('\n').filter((line) => line !== '');

let backup: TestDatabase;
beforeAll(async () => {
  original = await copyOf();
  folder = original.folder;
  const setUp = openDatabase(original.connection);
  const config = readConfig({ MINATO_TOPIC_MODE: 'open', MINATO_DATA_DIR: folder });
  const log = createLog('silent');
  await (await startWriter({ database: setUp, config, log })).close();
  const art = await addCommunity(setUp.pool, 'art', undefined, Date.now());
  await writeSetting(setUp.pool, art, 'topic.mode', 'open', Date.now());
  await setUp.close();
  const first = await nodeOn(original);
  for (const path of ['', '/c/art']) {
    const client = await RawClient.connect(first.url + path);
    for (const post of posts) expect(await client.publish(post)).toEqual([true, '']);
    await client.close();
  }
  await first.node.erasing.keys.pubkey(1, 'erasure');
  await first.node.consumers!.drained();
  await first.close();
  backup = await copyOf(original.connection.database);
  const second = await nodeOn(original);
  await askFor(second.database, { community: 1, pubkey: alice.pubkey });
  await askFor(second.database, { community: art, slug: 'art' });
  await runErasures(jobContext(second));
  await second.close();
  expect(await certificatesIn(folder)).toHaveLength(2);
});
afterAll(async () => {
  for (const database of databases.reverse()) await database.drop();
});

it('a node on a restored backup erases again before its port opens, and doctor announces it', async () => {
  const restored = await copyOf(backup.connection.database);
  const place = await machine('restored');
  const env = { DATABASE_URL: restored.url, MINATO_DATA_DIR: place, MINATO_PORT: '0' };
  const before = await runCli(['doctor'], env);
  expect(before.code).toBe(1);
  expect(before.stdout).toContain(
    'FAIL the database was restored from a backup: it does not know 2 erasures\n',
  );
  const relay = await nodeOn(restored, place);
  expect(await served(relay)).toEqual([posts[1]!.id]);
  await expect(RawClient.connect(`${relay.url}/c/art`)).rejects.toThrow();
  const client = await RawClient.connect(relay.url);
  expect(await client.publish(posts[0]!)).toEqual([false, expect.stringMatching(ERASED)]);
  await client.close();
  await relay.close();
  // The chain goes on where it was.
  expect((await checkFiles([certificatesFile(place)], {})).problems).toEqual([]);
  expect(await certificatesIn(place)).toHaveLength(4);
  const again = await nodeOn(restored, place);
  expect(await served(again)).toEqual([posts[1]!.id]);
  await again.close();
  expect(await certificatesIn(place)).toHaveLength(4);
  expect((await runCli(['doctor'], env)).stdout).toMatch(
    /ok {3}4 certificates in .*, all known to the database\n/,
  );
});

it('a replay that was interrupted before a fence continues before the port opens', async () => {
  const restored = await copyOf(backup.connection.database);
  const database = openDatabase(restored.connection);
  const config = readConfig({ MINATO_TOPIC_MODE: 'open', MINATO_DATA_DIR: folder });
  const writer = await startWriter({ database, config, log: createLog('silent') });
  const { proofs } = await findForgotten(database.pool, folder);
  const { signal } = new AbortController();
  const now = Date.now;
  const { again } = await withRegistry(writer.erasing, database, { now, rows: 500 }, (opened) =>
    replayErasures({ ...writer.erasing, ...opened, signal, now }, proofs),
  );
  expect(again).toHaveLength(2);
  await writer.close();
  await database.close();
  const place = join(folder, 'cut-off');
  await cp(join(folder, 'keys'), join(place, 'keys'), { recursive: true });
  const relay = await nodeOn(restored, place);
  expect(await served(relay)).toEqual([posts[1]!.id]);
  await relay.close();
});

it('a node that is killed while it erases again serves nobody, and the next one ends it', async () => {
  const restored = await copyOf(backup.connection.database);
  const place = await machine('killed');
  const env = { DATABASE_URL: restored.url, MINATO_DATA_DIR: place, MINATO_PORT: '0' };
  const { child, ended } = startCli(['serve'], env);
  let said = '';
  await new Promise<void>((resolve) => {
    child.stdout!.on('data', (text: Buffer) => {
      said += text.toString();
      if (said.includes('erasures since then are applied again')) resolve();
    });
  });
  child.kill('SIGKILL');
  await ended;
  expect(said).not.toContain('"ready"');
  const relay = await nodeOn(restored, place);
  expect(await served(relay)).toEqual([posts[1]!.id]);
  await relay.close();
});

it('without the erasure key it does not start, and says what to do', async () => {
  const restored = await copyOf(backup.connection.database);
  const place = await machine('keyless');
  await rm(join(place, 'keys', 'erasure.key'));
  await expect(nodeOn(restored, place)).rejects.toThrow(/copy .*erasure\.key from the machine/);
});

it('on another database it does not start and erases nothing', async () => {
  const other = await copyOf();
  await expect(nodeOn(other)).rejects.toThrow(/not the database that they are of: they are older/);
  const own = await nodeOn(other, other.folder);
  const client = await RawClient.connect(own.url);
  expect(await client.publish(posts[0]!)).toEqual([true, '']);
  await client.close();
  await own.node.erasing.keys.pubkey(1, 'erasure');
  await own.close();
  await expect(nodeOn(other)).rejects.toThrow(/none of them is signed by a key of this database/);
  const env = { DATABASE_URL: other.url, MINATO_DATA_DIR: folder };
  const [doctor, replayed] = await Promise.all([runCli(['doctor'], env), runCli(['erase', 'replay'], env)]);
  expect(doctor.stdout).toMatch(/FAIL .*certificates\.jsonl belongs to another database/);
  expect(replayed).toMatchObject({ code: 1, stderr: expect.stringContaining('are of another database') });
  const again = await nodeOn(other, other.folder);
  expect(await served(again)).toEqual([posts[0]!.id]);
  const { rows } = await again.database.pool.query('SELECT 1 FROM erasure_marks');
  expect(rows).toEqual([]);
  await again.close();
});

it('a machine that is behind gets the certificates of the others at its start', async () => {
  const place = join(folder, 'behind');
  await cp(join(folder, 'keys'), join(place, 'keys'), { recursive: true });
  const relay = await nodeOn(original, place);
  expect((await certificatesIn(place)).sort()).toEqual((await certificatesIn(folder)).sort());
  await relay.close();
  const certificate = JSON.parse((await certificatesIn(place))[0]!) as NostrEvent;
  expect(certificate.kind).toBe(8_062);
});
