/** What was erased stays erased: after a restore from a backup, and on an instance that lacks the key of the erased. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readConfig } from '../src/config.js';
import type { NostrEvent } from '../src/core/event.js';
import { serializeEvent } from '../src/core/event.js';
import { isRefusal, words } from '../src/core/reply.js';
import { withRegistry } from '../src/erasure/all.js';
import { certificatesFile } from '../src/erasure/certificate.js';
import { readProofs } from '../src/erasure/proofs.js';
import { type Replayed, replayErasures } from '../src/erasure/replay.js';
import { erase } from '../src/jobs/erase.js';
import { BOUNDS } from '../src/jobs/job.js';
import { createLog } from '../src/log.js';
import { type Database, openDatabase } from '../src/postgres/database.js';
import { addCommunity } from '../src/store/communities.js';
import { startWriter, type Writer } from '../src/writer.js';
import { createTestDatabase, type TestDatabase } from './support/database.js';
import { askFor, countsOf, ERASED, runErasures, zeros } from './support/erasure.js';
import { unsigned } from './support/life.js';

const [ALICE, BOB] = ['a'.repeat(64), 'b'.repeat(64)];
const log = createLog('silent');

interface Place {
  readonly test: TestDatabase;
  readonly database: Database;
  readonly writer: Writer;
  close(): Promise<void>;
}

async function open(test: TestDatabase, folder: string): Promise<Place> {
  const database = openDatabase(test.connection);
  const config = readConfig({ MINATO_TOPIC_MODE: 'open', MINATO_DATA_DIR: folder });
  const writer = await startWriter({ database, config, log }).catch(async (error) => {
    await database.close();
    throw error;
  });
  return {
    test,
    database,
    writer,
    close: async () => {
      await writer.close();
      await database.close();
    },
  };
}

const submit = async ({ writer }: Place, event: NostrEvent, community = 1) => {
  const outcome = await writer.lane.submit({ community, event, payload: serializeEvent(event) });
  return isRefusal(outcome) ? words(outcome) : outcome;
};
const run = ({ database, writer }: Place) => {
  const { lane, communities, erasing } = writer;
  const { signal } = new AbortController();
  return runErasures({ database, lane, communities, erasing, now: Date.now, signal, bounds: BOUNDS }, erase);
};
const counts = ({ database, writer }: Place, pubkey: string) =>
  countsOf(database, writer.erasing, { type: 'member', community: 1, pubkey });

async function replay({ database, writer: { erasing } }: Place): Promise<Replayed> {
  const { proofs, problems } = readProofs(await readFile(certificatesFile(folder), 'utf8'));
  expect(problems).toEqual([]);
  const { signal } = new AbortController();
  const now = Date.now;
  return withRegistry(erasing, database, { now, rows: 500 }, (opened) =>
    replayErasures({ ...erasing, ...opened, signal, now }, proofs),
  );
}

let original: TestDatabase;
let backup: TestDatabase;
let folder: string;
const events = [ALICE, BOB].map((pubkey) => unsigned({ kind: 1, pubkey, created_at: 1_700_000_000 }));

beforeAll(async () => {
  original = await createTestDatabase();
  folder = original.folder;
  const first = await open(original, folder);
  await addCommunity(first.database.pool, 'art', undefined, Date.now());
  await first.close();
  const place = await open(original, folder);
  for (const event of events) {
    expect(await submit(place, event)).toBe('stored');
    expect(await submit(place, event, 2)).toBe('stored');
  }
  await place.close();
  backup = await createTestDatabase(original.connection.database);
});
afterAll(async () => {
  await backup?.drop();
  await original?.drop();
});

it('a restored database erases again who was erased since, and refuses them again', async () => {
  const before = await open(original, folder);
  await askFor(before.database, { community: 1, pubkey: ALICE });
  await askFor(before.database, { community: 2, slug: 'art' });
  await run(before);
  await before.close();

  const restored = await open(backup, folder);
  const bob = await counts(restored, BOB);
  expect((await counts(restored, ALICE))['postgres:events']).toBe(1);
  const first = await replay(restored);
  expect(first).toMatchObject({ known: 0, elsewhere: 0 });
  expect(first.again).toHaveLength(2);
  await run(restored);
  expect(await counts(restored, ALICE)).toEqual(zeros(bob));
  expect(await counts(restored, BOB)).toEqual(bob);
  expect(await submit(restored, events[0]!)).toMatch(ERASED);
  const { rows } = await restored.database.pool.query('SELECT slug FROM communities');
  expect(rows).toEqual([{ slug: 'default' }]);
  const again = await replay(restored);
  expect(again.again).toEqual([]);
  expect(again.known).toBeGreaterThanOrEqual(2);
  await restored.close();
});

it('an instance on another machine is handed the key, sealed, and takes events in again', async () => {
  const fresh = await createTestDatabase();
  const elsewhere = await open(fresh, join(folder, 'elsewhere'));
  const here = await open(fresh, join(folder, 'here'));
  await askFor(here.database, { community: 1, pubkey: ALICE });
  await run(here);
  expect(await submit(here, events[1]!)).toBe('stored');
  const other = unsigned({ kind: 1, pubkey: BOB, created_at: 1_700_000_001 });
  expect(await submit(elsewhere, other)).toBe('stored');
  expect(await submit(elsewhere, events[0]!)).toMatch(ERASED);
  const { print } = elsewhere.writer.erasing.subjectKey;
  expect(print).toBe(here.writer.erasing.subjectKey.print);
  const third = await open(fresh, join(folder, 'third'));
  expect(third.writer.erasing.subjectKey.print).toBe(print);
  // What lies in the database while they ask opens for nobody else.
  const { rows } = await here.database.pool.query('SELECT * FROM subject_key_requests');
  expect(JSON.stringify(rows)).not.toContain(here.writer.erasing.subjectKey.secret()!.toString('hex'));
  for (const place of [third, elsewhere, here]) await place.close();

  await expect(open(fresh, join(folder, 'alone'))).rejects.toThrow(/copy .*erasure\.key from the machine/);
  await fresh.drop();
});
