/**
 * Reads lines of events from files and pipes, plain or gzip. I14: a line is kept in memory up to a maximum
 * length, and a file is never read as a whole.
 */
import { createReadStream } from 'node:fs';
import { pipeline, type Readable } from 'node:stream';
import { promisify } from 'node:util';
import { createGunzip, gzip as gzipCallback } from 'node:zlib';

const NEWLINE = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const CHUNK_BYTES = 256 * 1_024;
/** What is kept of a line that is too long, so that people can recognize it. */
const TOO_LONG_SHOWN_BYTES = 200;

export const gzip = promisify(gzipCallback);

export interface Line {
  /** From 1. */
  readonly number: number;
  /** Without the line ending; only the first bytes when it is too long. */
  readonly bytes: Buffer;
  readonly tooLong: boolean;
}

export interface Source {
  readonly stream: Readable;
  /** Bytes read from the file itself, compressed or not. */
  bytesRead(): number;
}

export function isGzipName(path: string): boolean {
  return path.endsWith('.gz');
}

export function isStandardStream(path: string | undefined): path is undefined | '-' {
  return path === undefined || path === '-';
}

export function openSource(path: string | undefined): Source {
  if (isStandardStream(path)) return { stream: process.stdin, bytesRead: () => 0 };
  const file = createReadStream(path, { highWaterMark: CHUNK_BYTES });
  // An error of the file destroys the other stream too, and is thrown to its reader.
  const stream = isGzipName(path)
    ? pipeline(file, createGunzip({ chunkSize: CHUNK_BYTES }), () => undefined)
    : file;
  return { stream, bytesRead: () => file.bytesRead };
}

/** The lines of each chunk together: one step of the event loop for many lines. */
export async function* readLines(
  source: AsyncIterable<Buffer>,
  lineBytesMax: number,
): AsyncGenerator<Line[]> {
  let held: Buffer[] = [];
  let heldBytes = 0;
  let number = 0;

  const hold = (part: Buffer): void => {
    heldBytes += part.length;
    if (heldBytes <= lineBytesMax) held.push(part);
    else held = [Buffer.concat([...held, part]).subarray(0, TOO_LONG_SHOWN_BYTES)];
  };
  const finish = (part: Buffer): Line => {
    if (part.length > 0) hold(part);
    const tooLong = heldBytes > lineBytesMax;
    const bytes = held.length === 1 ? held[0]! : Buffer.concat(held);
    held = [];
    heldBytes = 0;
    number += 1;
    return { number, bytes: tooLong ? bytes : withoutReturn(bytes), tooLong };
  };

  for await (const chunk of source) {
    const lines: Line[] = [];
    let from = 0;
    for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, from)) {
      lines.push(finish(chunk.subarray(from, at)));
      from = at + 1;
    }
    if (from < chunk.length) hold(chunk.subarray(from));
    if (lines.length > 0) yield lines;
  }
  if (heldBytes > 0) yield [finish(Buffer.alloc(0))];
}

function withoutReturn(bytes: Buffer): Buffer {
  return bytes.at(-1) === CARRIAGE_RETURN ? bytes.subarray(0, -1) : bytes;
}
