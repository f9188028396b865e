/** A set of any size is compared with the memory of a few pages. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import { Digest, type ReadPage, smallDigest, WALK_RECORDS } from '../../src/sync/digest.js';
import { type Bound, openingMessage, RECORD_BYTES, respond } from '../../src/sync/rules-negentropy.js';
import { eventually } from '../support/cli.js';

const RECORDS = 400_000;

/** Record n is at second n; its id follows from n, so that nothing is kept anywhere. */
function pageAt(from: number, to: number): Buffer {
  const page = Buffer.alloc((to - from) * RECORD_BYTES);
  for (let n = from; n < to; n += 1) {
    const at = (n - from) * RECORD_BYTES;
    page.writeUInt32BE(n, at + 4);
    for (let word = 0; word < 8; word += 1)
      page.writeUInt32LE(Math.imul(n + 1, 2_654_435_761 + 2 * word) >>> 0, at + 8 + 4 * word);
  }
  return page;
}

const first = ({ time, id }: Bound) => Math.min(RECORDS, id.length === 0 ? time : time + 1);
let reads = 0;
const read: ReadPage = async (lower, upper, limit) => {
  reads += 1;
  const from = first(lower);
  const to = Math.min(first(upper), from + limit);
  const next = to < first(upper) ? { time: to, id: new Uint8Array() } : undefined;
  return { records: pageAt(from, Math.max(from, to)), next };
};

it(`${RECORDS} records take a twentieth of their size, and later rounds read few pages`, async () => {
  setFlagsFromString('--expose_gc');
  const collect = runInNewContext('gc') as () => void;
  const used = () => {
    collect();
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  };
  // What is compiled once does not count.
  await respond(await openingMessage((await Digest.build(read, RECORDS))!), (await smallDigest([]))!, 60_000);
  reads = 0;
  const before = used();
  const digest = (await Digest.build(read, RECORDS))!;
  expect(digest.count).toBe(RECORDS);
  // Pages that were freed are given back in the background, a little after a collection.
  await eventually(
    'the pages are freed',
    () => used() - before < (RECORDS * RECORD_BYTES) / 20 || undefined,
    20_000,
  );
  expect(reads).toBe(Math.ceil(RECORDS / WALK_RECORDS));
  reads = 0;
  // Sixteen fingerprints or more of the whole set, which all agree.
  const message = await openingMessage(digest);
  expect(await respond(message, digest, 60_000)).toEqual(Uint8Array.of(0x61));
  expect(reads).toBeLessThan(40);
  expect(digest.count).toBe(RECORDS);
});
