/**
 * Writes and reads the few parts of the tar format (POSIX ustar) that a backup needs: folders and files with
 * short names, so that any `tar` reads a backup too. Files that grow or shrink while they are read get the
 * size that they had when they were opened: PostgreSQL repairs them from its log.
 */
import { open } from 'node:fs/promises';
import { Damaged } from './sealing.js';

const BLOCK = 512;
const READ_BYTES = 1 << 18;
const NAME_BYTES_MAX = 100;
/** Eleven octal digits. PostgreSQL splits its tables into files of 1 GB. */
const SIZE_MAX = 8 ** 11 - 1;

export interface Entry {
  readonly name: string;
  readonly isFolder: boolean;
  readonly bytes: number;
}

function headerOf({ name, isFolder, bytes }: Entry): Buffer {
  const path = isFolder ? `${name}/` : name;
  if (Buffer.byteLength(path) > NAME_BYTES_MAX || bytes > SIZE_MAX)
    throw new Error(`${name} does not fit into a backup: its name or its size is too long`);
  const header = Buffer.alloc(BLOCK);
  header.write(path, 0);
  header.write(isFolder ? '0000700\0' : '0000600\0', 100);
  header.write('0000000\0', 108);
  header.write('0000000\0', 116);
  header.write(`${bytes.toString(8).padStart(11, '0')}\0`, 124);
  header.write('00000000000\0', 136);
  header.write('        ', 148);
  header.write(isFolder ? '5' : '0', 156);
  header.write('ustar\x0000', 257, 'latin1');
  header.write(`${checksumOf(header).toString(8).padStart(6, '0')}\0 `, 148);
  return header;
}

/** The field of the checksum itself counts as spaces. */
function checksumOf(header: Buffer): number {
  let sum = 0;
  for (let at = 0; at < BLOCK; at += 1) sum += at >= 148 && at < 156 ? 32 : header[at]!;
  return sum;
}

const padding = (bytes: number) => Buffer.alloc((BLOCK - (bytes % BLOCK)) % BLOCK);

export const folderEntry = (name: string) => headerOf({ name, isFolder: true, bytes: 0 });

export function textEntry(name: string, text: string): Buffer {
  const content = Buffer.from(text);
  const header = headerOf({ name, isFolder: false, bytes: content.length });
  return Buffer.concat([header, content, padding(content.length)]);
}

export const END = Buffer.alloc(2 * BLOCK);

/** Nothing if the file was deleted meanwhile. */
export async function* fileEntry(name: string, path: string): AsyncGenerator<Buffer> {
  const file = await open(path, 'r').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (file === undefined) return;
  try {
    const bytes = (await file.stat()).size;
    yield headerOf({ name, isFolder: false, bytes });
    for (let left = bytes; left > 0; ) {
      const buffer = Buffer.alloc(Math.min(READ_BYTES, left));
      const { bytesRead } = await file.read(buffer, 0, buffer.length, bytes - left);
      // It was truncated: the rest is zeros.
      yield bytesRead === 0 ? buffer : buffer.subarray(0, bytesRead);
      left -= bytesRead === 0 ? buffer.length : bytesRead;
    }
    yield padding(bytes);
  } finally {
    await file.close();
  }
}

/**
 * The entries in order, each with its content. The content of one must be read before the next is asked for.
 */
export async function* readTar(
  input: AsyncIterable<Buffer>,
): AsyncGenerator<Entry & { readonly content: AsyncGenerator<Buffer> }> {
  const bytes = new ByteReader(input);
  for (;;) {
    const header = await bytes.exactly(BLOCK);
    if (header.every((byte) => byte === 0)) return bytes.toEnd();
    const entry = entryOf(header);
    let left = entry.bytes;
    const content = async function* (): AsyncGenerator<Buffer> {
      while (left > 0) {
        const part = await bytes.atMost(left);
        left -= part.length;
        yield part;
      }
    };
    yield { ...entry, content: content() };
    if (left > 0) throw new Error(`${entry.name} was not read`);
    await bytes.exactly(padding(entry.bytes).length);
  }
}

function entryOf(header: Buffer): Entry {
  const text = (from: number, to: number) =>
    header.subarray(from, to).toString('utf8').replace(/\0.*$/s, '').trim();
  if (Number.parseInt(text(148, 156), 8) !== checksumOf(header))
    throw new Damaged('the file is no backup, or it is damaged');
  const name = text(0, 100).replace(/\/$/, '');
  // Nothing outside of the folder into which it is unpacked.
  if (!/^[\w.-]+(\/[\w.-]+)*$/.test(name) || name.split('/').some((part) => /^\.+$/.test(part)))
    throw new Damaged(`the backup has an entry with a bad name: ${JSON.stringify(name)}`);
  return { name, isFolder: text(156, 157) === '5', bytes: Number.parseInt(text(124, 136), 8) || 0 };
}

/** Reads a stream of buffers by number of bytes. */
class ByteReader {
  readonly #input: AsyncIterator<Buffer>;
  #pending: Buffer = Buffer.alloc(0);

  constructor(input: AsyncIterable<Buffer>) {
    this.#input = input[Symbol.asyncIterator]();
  }

  /** At least one byte. */
  async atMost(bytes: number): Promise<Buffer> {
    while (this.#pending.length === 0) {
      const { done, value } = await this.#input.next();
      if (done) throw new Damaged('the file ends too early');
      this.#pending = value;
    }
    const part = this.#pending.subarray(0, bytes);
    this.#pending = this.#pending.subarray(part.length);
    return part;
  }

  async exactly(bytes: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let left = bytes; left > 0; ) {
      const part = await this.atMost(left);
      parts.push(part);
      left -= part.length;
    }
    return Buffer.concat(parts);
  }

  /** Reads the rest, so that checksums at the end of the file are compared. */
  async toEnd(): Promise<void> {
    while (!(await this.#input.next()).done);
  }
}
