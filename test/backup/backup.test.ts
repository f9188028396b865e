/**
 * I6, I1: a backup that is made while clients post has everything that was acknowledged before it. With the
 * archived log it is restored to any moment, and erased members stay erased.
 */
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { npubEncode } from 'nostr-tools/nip19';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { MANIFEST } from '../../src/backup/base.js';
import { writeBackupFile } from '../../src/backup/files.js';
import { END, textEntry } from '../../src/backup/tar.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { runningEmbedded } from '../../src/postgres/embedded.js';
import { type Ended, eventually, type RunningCli, runCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, newAuthor, sign } from '../support/events.js';

const [alice, bob] = [newAuthor(), newAuthor()];
const acknowledged: { event: NostrEvent; at: number }[] = [];
let folder: string;
let backups: string;
let base: string;
let moment: number;
let relay: RunningCli;

const place = (name: string) => join(folder, name);
const env = (dataDir: string, more: Record<string, string> = {}) => ({
  MINATO_DATA_DIR: place(dataDir),
  MINATO_PORT: '0',
  MINATO_BACKUP_PASSPHRASE_FILE: place('passphrase'),
  ...more,
});
const archiving = () => env('data', { MINATO_BACKUP_DIR: backups });

async function startNode(): Promise<string> {
  relay = startCli(['serve'], archiving());
  let heard = '';
  relay.child.stdout!.on('data', (chunk: Buffer) => (heard += String(chunk)));
  return eventually('the node is ready', () => {
    if (relay.child.exitCode !== null) throw new Error(heard);
    return /"address":"(ws:[^"]+)".*"msg":"ready"/.exec(heard)?.[1];
  });
}

async function post(client: RawClient, author: Author): Promise<void> {
  const event = sign(author);
  expect(await client.publish(event)).toEqual([true, '']);
  acknowledged.push({ event, at: Date.now() });
}

/** Everything that was written so far is in the archive. */
async function archiveNow(): Promise<void> {
  const client = new pg.Client({ ...(await runningEmbedded(place('data')))! });
  await client.connect();
  const { rows } = await client.query<{ name: string }>('SELECT pg_walfile_name(pg_switch_wal()) AS name');
  const name = `${rows[0]!.name}.gz.sealed`;
  await eventually('the log is archived', async () =>
    (await readdir(join(backups, 'wal'))).includes(name) ? true : undefined,
  );
  await client.end();
}

const idsOf = (events: Iterable<NostrEvent>) => [...events].map(({ id }) => id).sort();

/** Every event of the database with all its fields. */
async function exported(dataDir: string): Promise<NostrEvent[]> {
  const { code, stdout, stderr } = await runCli(['export'], env(dataDir));
  expect({ code, stderr }).toEqual({ code: 0, stderr: expect.not.stringContaining('minato:') });
  return stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as NostrEvent);
}

const restore = (dataDir: string, file: string, ...args: string[]): Promise<Ended> =>
  runCli(['restore', file, ...args], env(dataDir));

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-backup-'));
  backups = place("back'ups 100%");
  await writeFile(place('passphrase'), 'correct-horse-battery-staple\n');
  const url = await startNode();
  const client = await RawClient.connect(url);
  for (const author of [alice, bob]) for (let posts = 0; posts < 20; posts += 1) await post(client, author);
  const backup = startCli(['backup'], archiving());
  let isDone = false;
  void backup.ended.then(() => {
    isDone = true;
  });
  while (!isDone) for (const author of [alice, bob]) await post(client, author);
  const { code, stdout, stderr } = await backup.ended;
  expect({ code, stderr: stderr.replace(/^\d+ %, .*\n/gm, '') }).toEqual({ code: 0, stderr: '' });
  base = stdout.split(': ')[0]!;
  for (const author of [alice, bob]) await post(client, author);
  await new Promise((resolve) => setTimeout(resolve, 1_100));
  moment = Date.now();
  await new Promise((resolve) => setTimeout(resolve, 1_100));
  await post(client, bob);
  await client.close();
  const erased = await runCli(['erase', 'member', npubEncode(alice.pubkey), '--yes'], archiving());
  expect(erased).toMatchObject({ code: 0 });
  await archiveNow();
  relay.child.kill('SIGTERM');
  await relay.ended;
});
afterAll(async () => {
  if (relay.child.exitCode === null && relay.child.signalCode === null) {
    relay.child.kill('SIGKILL');
    await once(relay.child, 'exit');
  }
  await rm(folder, { recursive: true, force: true });
});

it('restored to a moment before an erasure, the replay erases again and keeps everything else', async () => {
  const restored = await restore('then', base, '--until', new Date(moment).toISOString());
  expect(restored).toMatchObject({ code: 0, stdout: expect.stringContaining('and its log up to') });
  const before = acknowledged.filter(({ at }) => at <= moment).map(({ event }) => event);
  expect(before.length).toBeLessThan(acknowledged.length);
  expect(idsOf(await exported('then'))).toEqual(idsOf(before));
  for (const kept of ['keys', 'certificates.jsonl'])
    await cp(join(place('data'), kept), join(place('then'), kept), { recursive: true });
  const replayed = await runCli(['erase', 'replay'], env('then'));
  expect(replayed).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/1 to erase again\n(.*\n)?\S+ {2}completed\n$/),
  });
  const bobs = before.filter(({ pubkey }) => pubkey === bob.pubkey);
  const byId = (events: readonly NostrEvent[]) => new Map(events.map((event) => [event.id, event]));
  // Every field, so also the hash and the signature.
  expect(byId(await exported('then'))).toEqual(byId(bobs));
});

it('without a time everything that was archived is restored, the erasure too', async () => {
  // The keys are there first, as on a machine that lost its database only.
  await mkdir(place('now'));
  for (const kept of ['keys', 'certificates.jsonl'])
    await cp(join(place('data'), kept), join(place('now'), kept), { recursive: true });
  expect(await restore('now', base)).toMatchObject({ code: 0 });
  const bobs = acknowledged.map(({ event }) => event).filter(({ pubkey }) => pubkey === bob.pubkey);
  expect(idsOf(await exported('now'))).toEqual(idsOf(bobs));
  expect((await readdir(place('now'))).includes('restoring')).toBe(false);
});

it('a backup that cannot be restored leaves the folder as it was, and says why', async () => {
  const copy = async (name: string, change: (path: string) => Promise<unknown>) => {
    await cp(base, place(name));
    await change(place(name));
    return place(name);
  };
  const { length } = await readFile(base);
  const cut = await copy('cut.sealed', (path) => truncate(path, length - 1_000));
  const flipped = await copy('flipped.sealed', async (path) => {
    const bytes = await readFile(path);
    bytes[Math.floor(length / 2)]! ^= 1;
    await writeFile(path, bytes);
  });
  const huge = place('huge.tar.gz');
  const manifest = { format: 1, segment: '000000010000000000000001', bytes: 1e18 };
  await writeBackupFile(huge, Readable.from([textEntry(MANIFEST, JSON.stringify(manifest)), END]), undefined);
  await writeFile(place('other'), 'another-passphrase-of-ours');
  const gap = place('gap');
  await cp(join(backups, 'wal'), gap, { recursive: true });
  const segments = (await readdir(gap)).filter((name) => /^[0-9A-F]{24}\.gz/.test(name)).sort();
  await rm(join(gap, segments.at(-2)!));
  const full = (dataDir: string) => runCli(['restore', base], env(dataDir));
  const refused = await Promise.all([
    restore('new', cut, '--no-wal'),
    restore('new2', flipped, '--no-wal'),
    restore('new3', huge),
    runCli(['restore', base], env('new4', { MINATO_BACKUP_PASSPHRASE_FILE: place('other') })),
    runCli(['restore', base], env('new5', { MINATO_BACKUP_PASSPHRASE_FILE: '' })),
    restore('new6', base, '--wal', gap),
    restore('new7', place('none')),
    restore('new10', base, '--until', '2026-11-01T00:00:00Z'),
    restore('new8', place('passphrase')),
    full('data'),
    runCli(['restore', base], env('new9', { DATABASE_URL: 'postgres://localhost/none' })),
    runCli(['backup'], env('data', { DATABASE_URL: 'postgres://localhost/none' })),
    runCli(['backup'], env('data')),
  ]);
  expect(refused.map(({ code, stdout }) => ({ code, stdout }))).toEqual(
    refused.map(() => ({ code: 1, stdout: '' })),
  );
  expect(
    refused.map(({ stderr }) =>
      stderr
        .replaceAll(folder, '')
        .replace(/^\d+ %, .*\n/gm, '')
        .trim(),
    ),
  ).toEqual([
    expect.stringMatching(/^minato: \/cut\.sealed: the encrypted file was changed or cut off$/),
    expect.stringMatching(/^minato: \/flipped\.sealed: the encrypted file was changed or cut off$/),
    expect.stringMatching(
      /^minato: the backup needs 1000000000000 MB on the disk of \/new3, and \d+ MB are free; nothing/,
    ),
    expect.stringMatching(/^minato: the passphrase is not the one with which .* was encrypted$/),
    expect.stringMatching(/^minato: .* is encrypted; set MINATO_BACKUP_PASSPHRASE_FILE/),
    expect.stringMatching(
      /^minato: the segment [0-9A-F]{24} of the log is missing in \/gap, and nothing was done/,
    ),
    expect.stringMatching(/^minato: \/none cannot be read \(ENOENT\)$/),
    expect.stringMatching(/^minato: this backup can be restored to \S+Z and later; .* Nothing was done$/),
    expect.stringMatching(/^minato: \/passphrase is no backup of Minato$/),
    expect.stringMatching(/^minato: \/data is not empty \(it has .*postgres.*\), and nothing was done/),
    expect.stringMatching(/^minato: DATABASE_URL is a server of your own: restore it with its tools/),
    expect.stringMatching(/^minato: DATABASE_URL is a server of your own: use its tools/),
    expect.stringMatching(/^minato: name the folder: minato backup FOLDER/),
  ]);
  for (const name of await readdir(folder))
    if (name.startsWith('new')) expect(await readdir(place(name)), name).toEqual([]);
});

it('without a running node, --keep deletes older backups and the log before them', async () => {
  const { code, stdout } = await runCli(['backup', '--keep', '1'], archiving());
  expect({ code, stdout }).toEqual({
    code: 0,
    stdout: expect.stringMatching(/, encrypted\ndeleted 1 older backups and \d+ files of the log\n$/),
  });
  const bases = (await readdir(backups)).filter((name) => name.startsWith('base-'));
  expect(bases).toHaveLength(1);
  expect(await restore('kept', join(backups, bases[0]!))).toMatchObject({ code: 0 });
  const doctor = await runCli(['doctor'], archiving());
  expect(doctor.stdout).toMatch(/ok .*the newest backup is of 20\d\d/i);
  expect(doctor.stdout).toMatch(/ok .*the log is archived to /i);
});
