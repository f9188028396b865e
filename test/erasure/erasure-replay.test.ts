/**
 * What was erased stays erased: after a restore from a backup, and on an instance that lacks the key of the
 * erased.
 */
import { readdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { npubEncode } from 'nostr-tools/nip19';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { listCertificates } from '../../src/erasure/certificates/certificates.sql.js';
import { readProofs } from '../../src/erasure/certificates/files.js';
import { certificatesFile } from '../../src/erasure/certificates/sign.js';
import { erase } from '../../src/erasure/jobs.js';
import { type Replayed, replayErasures } from '../../src/erasure/replay.js';
import { withRegistry } from '../../src/erasure/stores/registry.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { serializeEvent } from '../../src/events/rules/event.js';
import { isRefusal, words } from '../../src/events/rules/reply.js';
import { BOUNDS } from '../../src/jobs/job.js';
import { KEY_PURPOSES, listKeys } from '../../src/keys/keys.sql.js';
import { readConfig } from '../../src/node/config.js';
import { createLog } from '../../src/node/log.js';
import { startWriter, type Writer, type WriterHooks } from '../../src/node/writer.js';
import { type Database, openDatabase } from '../../src/postgres/database.js';
import { runCli } from '../support/cli.js';
import { askFor, countsOf, ERASED, runErasures, stateOf, zeros } from '../support/domains/erasure.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { unsigned } from '../support/stores/life.js';

const [ALICE, BOB] = ['a'.repeat(64), 'b'.repeat(64)];
const log = createLog('silent');
const TEMPLATE = { kind: 1, created_at: 1_900_000_000, tags: [], content: 'signed' };

interface Place {
  readonly test: TestDatabase;
  readonly database: Database;
  readonly writer: Writer;
  close(): Promise<void>;
}

async function open(
  test: TestDatabase,
  folder: string,
  hooks: WriterHooks = {},
  env: Record<string, string> = {},
): Promise<Place> {
  const database = openDatabase(test.connection);
  const config = readConfig({ MINATO_TOPIC_MODE: 'open', MINATO_DATA_DIR: folder, ...env });
  const writer = await startWriter({ database, config, log }, hooks).catch(async (error) => {
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
  const outcome = await writer.store.submit({ community, event, payload: serializeEvent(event) });
  return isRefusal(outcome) ? words(outcome) : outcome;
};
const run = ({ database, writer }: Place) => {
  const { store, communities, erasing } = writer;
  const { signal } = new AbortController();
  return runErasures({ database, store, communities, erasing, now: Date.now, signal, bounds: BOUNDS }, erase);
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
  const { fingerprint } = elsewhere.writer.erasing.subjectKey;
  expect(fingerprint).toBe(here.writer.erasing.subjectKey.fingerprint);
  const third = await open(fresh, join(folder, 'third'));
  expect(third.writer.erasing.subjectKey.fingerprint).toBe(fingerprint);
  // What lies in the database while they ask opens for nobody else.
  const { rows } = await here.database.pool.query('SELECT * FROM subject_key_requests');
  expect(JSON.stringify(rows)).not.toContain(here.writer.erasing.subjectKey.secret()!.toString('hex'));
  for (const place of [third, elsewhere, here]) await place.close();

  await expect(open(fresh, join(folder, 'alone'))).rejects.toThrow(/copy .*erasure\.key from the machine/);
  await fresh.drop();
});

describe('a machine that did not make the key of the certificates', () => {
  let fresh: TestDatabase;
  const machine = (name: string) => join(folder, name);
  const signersOf = async ({ database }: Place) =>
    (await listCertificates(database.pool, { after: 0, limit: 100 })).map(
      ({ event }) => (JSON.parse(event) as NostrEvent).pubkey,
    );
  const erasePerson = async (place: Place, pubkey: string) => {
    const erasure = await askFor(place.database, { community: 1, pubkey });
    await run(place);
    expect(await stateOf(place.database, erasure)).toMatchObject({ stage: 'completed', failures: {} });
  };
  beforeAll(async () => {
    fresh = await createTestDatabase();
  });
  afterAll(() => fresh?.drop());

  it('completes an erasure with the key that another one shares, sealed', async () => {
    const first = await open(fresh, machine('first'));
    const pubkey = await first.writer.keys.pubkey(1, 'erasure');
    const second = await open(fresh, machine('second'));
    await erasePerson(second, ALICE);
    expect(await signersOf(second)).toEqual([pubkey]);
    expect(await second.writer.keys.isHere(pubkey)).toBe(true);
    const path = second.writer.keys.pathOf(pubkey);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    const { rows } = await first.database.pool.query('SELECT * FROM subject_key_requests');
    expect(JSON.stringify(rows)).not.toContain((await readFile(path, 'utf8')).trim());
    // The second one made the key that erased members are known by; the tests below need it at the first.
    await vi.waitUntil(() => first.writer.erasing.subjectKey.secret() !== undefined, { timeout: 60_000 });
    for (const place of [second, first]) await place.close();
  });

  it('has every current key before the other one is gone, where it has a worker', async () => {
    const first = await open(fresh, machine('first'));
    const made = await Promise.all(KEY_PURPOSES.map((purpose) => first.writer.keys.pubkey(1, purpose)));
    const worker = await open(fresh, machine('worker'), { signs: true });
    const relay = await open(fresh, machine('relay'));
    await vi.waitUntil(async () => (await worker.writer.keys.files()).length === made.length, {
      timeout: 100_000,
    });
    for (const purpose of KEY_PURPOSES)
      expect((await worker.writer.keys.sign(1, purpose, TEMPLATE)).pubkey).toBe(
        await first.writer.keys.pubkey(1, purpose),
      );
    expect(await relay.writer.keys.files(), 'nobody signs there').toEqual([]);
    // Whoever is to sign all the same gets it then.
    await expect(relay.writer.keys.sign(1, 'moderation', TEMPLATE)).rejects.toThrow('is not at');
    await vi.waitUntil(async () => (await relay.writer.keys.files()).length === 1, { timeout: 100_000 });
    expect((await relay.writer.keys.sign(1, 'moderation', TEMPLATE)).pubkey).toBe(
      await first.writer.keys.pubkey(1, 'moderation'),
    );
    // A name that is no key reads no file; nobody answers it, and it holds up nobody else.
    await relay.database.pool.query(
      `INSERT INTO subject_key_requests (request_id, requested_at, asked_with, wanted)
       VALUES (gen_random_uuid(), 1, $1, '../keys/erasure')`,
      [Buffer.alloc(32, 9)],
    );
    for (const place of [relay, worker, first]) await place.close();
  });

  it('goes on with a key of its own where the other one is gone, and both are known afterwards', async () => {
    const before = await open(fresh, machine('second'));
    const erasureKey = before.writer.erasing.subjectKey.secret()!;
    await before.close();
    for (const name of ['first', 'second', 'worker', 'relay']) await rm(machine(name), { recursive: true });
    const given = { MINATO_ERASURE_KEY: erasureKey.toString('hex') };
    const last = await open(fresh, machine('last'), {}, given);
    await erasePerson(last, BOB);
    const signers = await signersOf(last);
    expect(new Set(signers).size).toBe(2);
    const keys = (await listKeys(last.database.pool, 1)).filter(({ purpose }) => purpose === 'erasure');
    expect(keys.find(({ pubkey }) => pubkey === signers[1])).toMatchObject({
      retiredAt: null,
      reason: 'no machine that answered had its secret',
    });
    const { rows } = await last.database.pool.query(
      `SELECT actor, details FROM audit_log WHERE action = 'key.change'`,
    );
    expect(rows).toEqual([{ actor: null, details: expect.objectContaining({ before: signers[0] }) }]);
    await last.close();

    const minato = (...args: string[]) =>
      runCli(args, { DATABASE_URL: fresh.url, MINATO_DATA_DIR: machine('last'), ...given });
    const path = certificatesFile(machine('last'));
    const both = signers.flatMap((signer) => ['--key', npubEncode(signer)]);
    const [verified, one, subject, doctor, replayed] = await Promise.all([
      minato('certificate', 'verify', path, ...both),
      minato('certificate', 'verify', path, '--key', npubEncode(signers[1]!)),
      minato('certificate', 'verify', path, '--subject', npubEncode(BOB)),
      minato('doctor'),
      minato('erase', 'replay'),
    ]);
    expect(verified).toMatchObject({ code: 0, stderr: '' });
    expect(verified.stdout).toContain('all 2 certificates hold, none is missing between them\n');
    expect(one).toMatchObject({ code: 1, stderr: expect.stringContaining('it is signed by') });
    expect(subject).toMatchObject({ code: 0, stdout: expect.stringContaining('about this key') });
    expect(doctor.stdout).toContain('warn community default: the node replaced the erasure key on ');
    expect(replayed).toMatchObject({ code: 0, stdout: expect.stringContaining('2 known here') });
  });
});

it('a key shared by another machine tells whom a certificate is about, whatever its file name', async () => {
  const fresh = await createTestDatabase();
  const first = await open(fresh, join(folder, 'subject-first'));
  await askFor(first.database, { community: 1, pubkey: ALICE });
  await run(first);
  const second = await open(fresh, join(folder, 'subject-second'));
  for (const place of [second, first]) await place.close();
  const verify = (env: Record<string, string>) =>
    runCli(
      [
        'certificate',
        'verify',
        certificatesFile(join(folder, 'subject-first')),
        '--subject',
        npubEncode(ALICE),
      ],
      env,
    );
  const about = { code: 0, stdout: expect.stringContaining('about this key') };
  const [name] = await readdir(join(folder, 'subject-second', 'keys'));
  expect(name).toMatch(/^erasure-[0-9a-f]{16}\.key$/);
  expect(await verify({ MINATO_DATA_DIR: join(folder, 'subject-second') })).toMatchObject(about);
  const given = (await readFile(join(folder, 'subject-second', 'keys', name!), 'utf8')).trim();
  expect(await verify({ MINATO_DATA_DIR: join(folder, 'nowhere'), MINATO_ERASURE_KEY: given })).toMatchObject(
    about,
  );
  expect(await verify({ MINATO_DATA_DIR: join(folder, 'nowhere') })).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('--subject needs the erasure key'),
  });
  await fresh.drop();
});
