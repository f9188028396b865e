/** The files of a backup: whatever happens to one is found before it is used. */
import { randomBytes } from 'node:crypto';
import { createWriteStream, existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import {
  folderSalt,
  readBackupFile,
  withoutSpace,
  writeBackupFile,
  writeSealed,
} from '../../src/backup/files.js';
import {
  type FolderKey,
  HEADER_BYTES,
  keyOf,
  readHeader,
  readPassphrase,
  Seal,
  Unseal,
} from '../../src/backup/sealing.js';
import { END, fileEntry, folderEntry, readTar, textEntry } from '../../src/backup/tar.js';

const PART = 65_536;
let folder: string;
let key: FolderKey;
let other: FolderKey;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-backup-files-'));
  const salt = await folderSalt(folder);
  expect(await folderSalt(folder)).toEqual(salt);
  [key, other] = await Promise.all([keyOf('a long passphrase', salt), keyOf('another passphrase', salt)]);
});
afterAll(() => rm(folder, { recursive: true }));

async function collect(input: AsyncIterable<Buffer>): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of input) parts.push(part);
  return Buffer.concat(parts);
}
const seal = async (content: Buffer) => collect(Readable.from([content]).pipe(new Seal(key)));
async function unseal(sealed: Buffer, by = key): Promise<Buffer> {
  const stream = new Unseal(by, readHeader(sealed)!, 'the file');
  const parts: Buffer[] = [];
  await pipeline(
    Readable.from([sealed.subarray(HEADER_BYTES)]),
    stream,
    async (input: AsyncIterable<Buffer>) => {
      for await (const part of input) parts.push(part);
    },
  );
  return Buffer.concat(parts);
}

it.each([0, 1, PART - 1, PART, PART + 1, 3 * PART + 7])(
  '%i bytes are sealed and come back',
  async (bytes) => {
    const content = randomBytes(bytes);
    const sealed = await seal(content);
    expect(sealed.includes(content) && bytes > 1).toBe(false);
    expect((await unseal(sealed)).equals(content)).toBe(true);
  },
);

it('a changed, cut, reordered or extended file is refused, and so is another passphrase', async () => {
  const sealed = await seal(randomBytes(3 * PART));
  const changed = (at: number) => {
    const copy = Buffer.from(sealed);
    copy[at]! ^= 1;
    return copy;
  };
  for (const at of [HEADER_BYTES, HEADER_BYTES + PART + 20, sealed.length - 1])
    await expect(unseal(changed(at))).rejects.toThrow('changed or cut off');
  const end = HEADER_BYTES + PART + 16;
  for (const bytes of [HEADER_BYTES, HEADER_BYTES + 5, end, sealed.length - 1])
    await expect(unseal(sealed.subarray(0, bytes))).rejects.toThrow('cut off');
  const [first, second] = [sealed.subarray(HEADER_BYTES, end), sealed.subarray(end, end + PART + 16)];
  const swapped = Buffer.concat([
    sealed.subarray(0, HEADER_BYTES),
    second,
    first,
    sealed.subarray(end + PART + 16),
  ]);
  await expect(unseal(swapped)).rejects.toThrow('changed');
  await expect(unseal(Buffer.concat([sealed, randomBytes(40)]))).rejects.toThrow('changed');
  await expect(unseal(sealed, other)).rejects.toThrow('the passphrase is not the one');
});

it('a file is complete or not there, and a full disk is named', async () => {
  const path = join(folder, 'one.gz');
  async function* failing(): AsyncGenerator<Buffer> {
    yield Buffer.from('begun');
    throw new Error('the server has ended');
  }
  await expect(writeBackupFile(path, failing(), key)).rejects.toThrow('the server has ended');
  expect((await readdir(folder)).filter((name) => name.startsWith('one'))).toEqual([]);
  await writeBackupFile(path, Readable.from([Buffer.from('all of it')]), undefined);
  expect(await collect(readBackupFile(path, () => undefined))).toEqual(Buffer.from('all of it'));
  const bytes = await readFile(path);
  await writeFile(path, bytes.subarray(0, bytes.length - 4));
  await expect(collect(readBackupFile(path, () => undefined))).rejects.toThrow('is damaged or was cut off');
  await writeFile(path, 'a text');
  await expect(collect(readBackupFile(path, () => undefined))).rejects.toThrow('is no backup of Minato');
});

it.runIf(existsSync('/dev/full'))('a disk without space gives a sentence', async () => {
  const full = createWriteStream('/dev/full');
  const content = Readable.from([randomBytes(1_000_000)]);
  const failure = await writeSealed(full, content, undefined).catch((error: unknown) => error);
  expect((withoutSpace(failure, '/backups') as Error).message).toBe(
    'there is no space left on the disk of /backups; the unfinished file was deleted',
  );
});

it('a passphrase is read from its file, without the line end, and a short one is refused', async () => {
  const path = join(folder, 'passphrase');
  await writeFile(path, 'sixteen letters!\n');
  expect(await readPassphrase(path)).toBe('sixteen letters!');
  await writeFile(path, 'short\n');
  await expect(readPassphrase(path)).rejects.toThrow('shorter than 16 characters');
  await expect(readPassphrase(join(folder, 'none'))).rejects.toThrow('cannot be read (ENOENT)');
});

it('an archive gives back its entries, and leaves its folder by no name', async () => {
  const path = join(folder, 'file');
  const content = randomBytes(300_001);
  await writeFile(path, content);
  const archive = Buffer.concat([
    folderEntry('base'),
    textEntry('base/text', 'words'),
    await collect(fileEntry('base/file', path)),
    await collect(fileEntry('base/gone', join(folder, 'gone'))),
    END,
  ]);
  const found: [string, Buffer][] = [];
  for await (const entry of readTar(Readable.from([archive.subarray(0, 700), archive.subarray(700)])))
    found.push([entry.name, await collect(entry.content)]);
  expect(found).toEqual([
    ['base', Buffer.alloc(0)],
    ['base/text', Buffer.from('words')],
    ['base/file', expect.any(Buffer)],
  ]);
  expect(found[2]![1].equals(content)).toBe(true);
  const read = async (bytes: Buffer) => {
    for await (const entry of readTar(Readable.from([bytes]))) await collect(entry.content);
  };
  for (const name of ['../out', 'a/../../out', '/etc/passwd', 'a\nb'])
    await expect(read(Buffer.concat([textEntry(name, 'x'), END])), name).rejects.toThrow('bad name');
  await expect(read(archive.subarray(0, 2_000))).rejects.toThrow('ends too early');
  await expect(read(randomBytes(1_024))).rejects.toThrow('damaged');
});
