/**
 * The corpus: made once for a seed and a size, kept as JSON lines in bench/.cache, and read as bytes plus the
 * few columns that the checks need. The first line of the file is its header. It holds the time that the
 * events are dated from: relays refuse events that are too old or too far in the future, and another date
 * would give other ids.
 */
import { type ChildProcess, fork } from 'node:child_process';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Range } from './corpus-signer.js';
import { type CorpusSpec, isReplaceable } from './generate.js';
import type { BenchEvent } from './sign.js';

/** Raised whenever the generated events change. */
const FORMAT = 2;
const AGE_SECONDS_MAX = 20 * 86_400;
const RANGE_EVENTS = 5_000;
const HEADER_BYTES_MAX = 512;
const SIGNER = fileURLToPath(new URL('corpus-signer.ts', import.meta.url));
const CACHE = fileURLToPath(new URL('.cache/', import.meta.url));

interface Header extends CorpusSpec {
  readonly format: number;
}

/** One event to send. Its frame is made before the clock starts. */
export interface Outgoing {
  readonly id: string;
  readonly frame: Buffer;
  /** A newer version on another connection may have superseded it. */
  readonly replaceable: boolean;
}

export class Corpus {
  readonly ids: string[] = [];
  readonly pubkeys: string[] = [];
  readonly kinds: number[] = [];
  readonly createdAt: number[] = [];
  readonly topics: string[][] = [];
  readonly byAuthor = new Map<string, number[]>();
  readonly byTopic = new Map<string, number[]>();
  readonly indexOf = new Map<string, number>();
  readonly #bytes: Buffer;
  readonly #starts: number[] = [];

  constructor(file: string) {
    this.#bytes = readFileSync(file);
    let start = this.#bytes.indexOf(0x0a) + 1;
    while (start < this.#bytes.length) {
      this.#starts.push(start);
      const end = this.#bytes.indexOf(0x0a, start);
      this.#add(JSON.parse(this.#bytes.toString('utf8', start, end)) as BenchEvent);
      start = end + 1;
    }
    this.#starts.push(start);
  }

  get size(): number {
    return this.ids.length;
  }

  /** One event's JSON, without the newline. */
  line(index: number): Buffer {
    return this.#bytes.subarray(this.#starts[index]!, this.#starts[index + 1]! - 1);
  }

  event(index: number): BenchEvent {
    return JSON.parse(this.line(index).toString()) as BenchEvent;
  }

  /** JSON lines of [from, to), as `minato import` reads them. */
  lines(from: number, to: number): Buffer {
    return this.#bytes.subarray(this.#starts[from]!, this.#starts[to]!);
  }

  outgoing(from: number, to: number): Outgoing[] {
    const events: Outgoing[] = [];
    for (let index = from; index < to; index++) {
      events.push({
        id: this.ids[index]!,
        frame: eventFrame(this.line(index)),
        replaceable: isReplaceable(this.kinds[index]!),
      });
    }
    return events;
  }

  #add(event: BenchEvent): void {
    const index = this.ids.length;
    const topics = event.tags.filter((tag) => tag[0] === 't').map((tag) => tag[1]!);
    this.ids.push(event.id);
    this.pubkeys.push(event.pubkey);
    this.kinds.push(event.kind);
    this.createdAt.push(event.created_at);
    this.topics.push(topics);
    this.indexOf.set(event.id, index);
    append(this.byAuthor, event.pubkey, index);
    for (const topic of topics) append(this.byTopic, topic, index);
  }
}

const EVENT_OPEN = Buffer.from('["EVENT",');
const EVENT_CLOSE = Buffer.from(']');

export function eventFrame(json: Buffer): Buffer {
  return Buffer.concat([EVENT_OPEN, json, EVENT_CLOSE]);
}

function append(index: Map<string, number[]>, key: string, value: number): void {
  const list = index.get(key);
  if (list === undefined) index.set(key, [value]);
  else list.push(value);
}

export async function loadCorpus(
  seed: number,
  size: number,
  say: (text: string) => void,
): Promise<{ corpus: Corpus; spec: CorpusSpec }> {
  const nowSeconds = Math.floor(Date.now() / 1000);
  const file = join(CACHE, `corpus-seed${seed}-${size}.jsonl`);
  let header = readHeader(file);
  if (header?.format !== FORMAT || nowSeconds - header.baseSeconds > AGE_SECONDS_MAX) {
    header = { format: FORMAT, seed, size, baseSeconds: roundDown(nowSeconds, 3_600) };
    mkdirSync(CACHE, { recursive: true });
    await writeCorpus(file, header, say);
  }
  say(`corpus: reading ${size.toLocaleString('en')} events`);
  return { corpus: new Corpus(file), spec: header };
}

function readHeader(file: string): Header | undefined {
  if (!existsSync(file)) return undefined;
  const start = Buffer.alloc(HEADER_BYTES_MAX);
  const descriptor = openSync(file, 'r');
  const read = readSync(descriptor, start);
  closeSync(descriptor);
  return JSON.parse(start.toString('utf8', 0, read).split('\n')[0]!) as Header;
}

/** Writes a temporary file and renames it, so that an interrupted run leaves no incomplete corpus. */
async function writeCorpus(file: string, header: Header, say: (text: string) => void): Promise<void> {
  const part = `${file}.${process.pid}.part`;
  const out = await open(part, 'w');
  try {
    await out.write(`${JSON.stringify(header)}\n`);
    for await (const { lines, to } of signInParallel(header)) {
      await out.write(lines);
      say(`corpus: signed ${to.toLocaleString('en')} of ${header.size.toLocaleString('en')} events`);
    }
    await out.close();
    renameSync(part, file);
  } finally {
    rmSync(part, { force: true });
  }
}

/** Yields the ranges in order; each signer works on one range, so memory holds only a few ranges. */
async function* signInParallel(spec: CorpusSpec): AsyncGenerator<{ lines: string; to: number }> {
  const ranges = splitRanges(spec.size);
  const count = Math.min(availableParallelism(), ranges.length);
  const signers = Array.from({ length: count }, () => fork(SIGNER, [JSON.stringify(spec)]));
  const sign = (range: number): Promise<string> => signRange(signers[range % count]!, ranges[range]!);
  try {
    const atWork = signers.map((_, range) => sign(range));
    for (const [done, range] of ranges.entries()) {
      const lines = await atWork[done]!;
      if (done + count < ranges.length) atWork.push(sign(done + count));
      yield { lines, to: range.to };
    }
  } finally {
    for (const signer of signers) signer.kill();
  }
}

function splitRanges(size: number): Range[] {
  const ranges: Range[] = [];
  for (let from = 0; from < size; from += RANGE_EVENTS) {
    ranges.push({ from, to: Math.min(from + RANGE_EVENTS, size) });
  }
  return ranges;
}

function signRange(signer: ChildProcess, range: Range): Promise<string> {
  return new Promise((resolve, reject) => {
    signer.removeAllListeners();
    signer.once('message', (lines) => resolve(lines as string));
    signer.once('error', reject);
    signer.once('exit', (code) => reject(new Error(`a signer ended with ${code}`)));
    signer.send(range);
  });
}

function roundDown(value: number, step: number): number {
  return value - (value % step);
}
