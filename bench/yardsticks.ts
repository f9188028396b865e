/**
 * The limits of this machine, measured in the same run. Figures of different machines are comparable only as
 * ratios to these.
 */
import { fork } from 'node:child_process';
import { closeSync, fdatasyncSync, openSync, writeSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Connection, untilSettled, withConnections } from './client.js';
import type { Corpus } from './corpus.js';
import { portOf } from './node.js';
import { hashEvent, nativeSchnorr } from './sign.js';

export interface Yardsticks {
  /** Undefined when bcrypto was not built here. */
  readonly verificationsPerSecond: number | undefined;
  readonly framesPerSecond: number;
  readonly flushesPerSecond: number;
  readonly notes: readonly string[];
}

const VERIFY_EVENTS = 1_000;
const FRAME_CLIENTS = 16;
const ANSWER_FRAMES = 500;
const FRAME_BYTES = 1_100;
const PAGE_BYTES = 4_096;
const FLUSH_FILE_PAGES = 4_096;
const TMPFS = 0x01021994;

export async function measureYardsticks(
  corpus: Corpus,
  folder: string,
  seconds: number,
): Promise<Yardsticks> {
  const notes: string[] = [];
  const verificationsPerSecond = verifications(corpus, seconds);
  if (verificationsPerSecond === undefined) {
    notes.push(
      'bcrypto was not built here: no ratio to native verification, and the node verifies more slowly',
    );
  }
  if ((await statfs(folder)).type === TMPFS) {
    notes.push(`${folder} is in memory (tmpfs): a flush costs nothing there; choose a disk with --temp`);
  }
  return {
    verificationsPerSecond,
    framesPerSecond: await pushedFrames(seconds),
    flushesPerSecond: flushes(folder, seconds),
    notes,
  };
}

/** Signatures only; the hash of the id is not part of it. */
function verifications(corpus: Corpus, seconds: number): number | undefined {
  const schnorr = nativeSchnorr();
  if (schnorr === undefined) return undefined;
  const prepared = Array.from({ length: Math.min(VERIFY_EVENTS, corpus.size) }, (_, index) => {
    const event = corpus.event(index);
    const sig = Buffer.from(event.sig, 'hex');
    return { id: hashEvent(event, event.pubkey), sig, pubkey: Buffer.from(event.pubkey, 'hex') };
  });
  return rate(seconds, (round) => {
    const { id, sig, pubkey } = prepared[round % prepared.length]!;
    if (!schnorr.verify(id, sig, pubkey))
      throw new Error(`corpus event ${id.toString('hex')} does not verify`);
  });
}

/**
 * One page written and flushed at a time into a file that already has its size, as a write-ahead log does.
 */
function flushes(folder: string, seconds: number): number {
  const descriptor = openSync(join(folder, 'flush.yardstick'), 'w');
  const page = Buffer.alloc(PAGE_BYTES, 1);
  writeSync(descriptor, Buffer.alloc(PAGE_BYTES * FLUSH_FILE_PAGES));
  fdatasyncSync(descriptor);
  const perSecond = rate(seconds, (round) => {
    writeSync(descriptor, page, 0, PAGE_BYTES, (round % FLUSH_FILE_PAGES) * PAGE_BYTES);
    fdatasyncSync(descriptor);
  });
  closeSync(descriptor);
  return perSecond;
}

function rate(seconds: number, work: (round: number) => void): number {
  const startMs = performance.now();
  let turns = 0;
  while (performance.now() - startMs < seconds * 1000) work(turns++);
  return turns / ((performance.now() - startMs) / 1000);
}

async function pushedFrames(seconds: number): Promise<number> {
  const program = fileURLToPath(new URL('frame-server.ts', import.meta.url));
  const server = fork(program, [String(ANSWER_FRAMES), String(FRAME_BYTES)]);
  try {
    const port = await portOf(server);
    return await withConnections(`ws://127.0.0.1:${port}`, FRAME_CLIENTS, (connections) =>
      countFrames(connections, seconds),
    );
  } finally {
    server.kill();
  }
}

async function countFrames(connections: readonly Connection[], seconds: number): Promise<number> {
  const startMs = performance.now();
  const endMs = startMs + seconds * 1000;
  let frames = 0;
  await untilSettled((progress, reject) => {
    const askAgain = (connection: Connection): Promise<void> =>
      new Promise((resolve) => {
        let due = ANSWER_FRAMES;
        connection.onLost = reject;
        connection.onFrame = () => {
          frames++;
          if (--due > 0) return;
          progress();
          if (performance.now() >= endMs) return resolve();
          due = ANSWER_FRAMES;
          connection.send('more');
        };
        connection.send('more');
      });
    return Promise.all(connections.map(askAgain));
  }, 'measuring frames/s of a bare server');
  return frames / ((performance.now() - startMs) / 1000);
}
