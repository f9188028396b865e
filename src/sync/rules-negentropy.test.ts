import fc from 'fast-check';
import { nip77 } from 'nostr-tools';
import { describe, expect, it } from 'vitest';
import { Digest, type ReadPage, smallDigest } from './digest.js';
import {
  BadMessage,
  type Bound,
  fromHex,
  openingMessage,
  placeOf,
  RECORD_BYTES,
  type Records,
  reconcile,
  recordAt,
  respond,
  toHex,
} from './rules-negentropy.js';

interface Item {
  readonly createdAt: number;
  readonly id: string;
}

interface Found {
  readonly have: string[];
  readonly need: string[];
  readonly rounds: number;
  readonly largest: number;
}

const ROUNDS_MAX = 10_000;

async function ours(client: Records, server: Records, clientMax: number, serverMax: number): Promise<Found> {
  const have: string[] = [];
  const need: string[] = [];
  let message: Uint8Array | undefined = await openingMessage(client);
  let rounds = 0;
  let largest = 0;
  for (; message !== undefined && rounds < ROUNDS_MAX; rounds += 1) {
    const answer = await respond(message, server, serverMax);
    largest = Math.max(largest, answer.length);
    message = await reconcile(answer, client, clientMax, {
      have: async (ids) => void have.push(...ids),
      need: async (ids) => void need.push(...ids),
    });
    largest = Math.max(largest, message?.length ?? 0);
  }
  return { have, need, rounds, largest };
}

async function theirs(client: readonly Item[], server: Records, bytesMax: number): Promise<Found> {
  const storage = new nip77.NegentropyStorageVector();
  for (const { createdAt, id } of client) storage.insert(createdAt, id);
  storage.seal();
  const negentropy = new nip77.Negentropy(storage, 4_096);
  const have: string[] = [];
  const need: string[] = [];
  let message: string | null = negentropy.initiate();
  let rounds = 0;
  for (; message !== null && rounds < ROUNDS_MAX; rounds += 1) {
    const answer = await respond(fromHex(message), server, bytesMax);
    message = negentropy.reconcile(
      toHex(answer),
      (id) => have.push(id),
      (id) => need.push(id),
    );
  }
  return { have, need, rounds, largest: 0 };
}

/** A set in memory that is read in small pages, with small blocks, as a large one is from the database. */
async function paged(items: readonly Item[], pageRecords: number): Promise<Digest> {
  const bytes = Buffer.alloc(items.length * RECORD_BYTES);
  [...items]
    .sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1))
    .forEach(({ createdAt, id }, at) => {
      bytes.writeBigUInt64BE(BigInt(createdAt), at * RECORD_BYTES);
      bytes.write(id, at * RECORD_BYTES + 8, 'hex');
    });
  const read: ReadPage = async (lower, upper) => {
    const from = placeOf(bytes, lower);
    const end = placeOf(bytes, upper);
    const to = Math.min(end, from + pageRecords);
    return {
      records: Buffer.from(bytes.subarray(from * RECORD_BYTES, to * RECORD_BYTES)),
      next: to < end ? recordAt(bytes, to) : undefined,
    };
  };
  return (await Digest.build(read, Number.MAX_SAFE_INTEGER, { blockRecords: 7, blocksMax: 40 }))!;
}

/** Few different times, and ids that share their beginnings: bounds within a second are the hard ones. */
const sets = fc
  .record({
    seed: fc.integer({ min: 1, max: 2 ** 31 }),
    common: fc.integer({ min: 0, max: 700 }),
    mine: fc.oneof(fc.integer({ min: 0, max: 5 }), fc.integer({ min: 0, max: 300 })),
    other: fc.oneof(fc.integer({ min: 0, max: 5 }), fc.integer({ min: 0, max: 300 })),
    seconds: fc.constantFrom(1, 3, 1_000, 2 ** 33),
    shared: fc.constantFrom(0, 0, 40, 60),
  })
  .map(({ seed, common, mine, other, seconds, shared }) => {
    const random = generator(seed);
    const make = (count: number): Item[] =>
      Array.from({ length: count }, () => ({
        createdAt: Math.floor(random() * seconds),
        id: `${'0'.repeat(shared)}${hexOf(random, 64 - shared)}`,
      }));
    const unique = [...new Map(make(common + mine + other).map((one) => [one.id, one])).values()];
    const own = unique.slice(common, common + mine);
    const foreign = unique.slice(common + mine);
    const both = unique.slice(0, common);
    return { client: [...both, ...own], server: [...both, ...foreign], own, foreign };
  });

function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 0x2c1b_3c6d);
    mixed = Math.imul(mixed ^ (mixed >>> 12), 0x297a_2d39);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
  };
}

function hexOf(random: () => number, length: number): string {
  return Array.from({ length }, () => Math.floor(random() * 16).toString(16)).join('');
}

/** Each once: with small frames a difference may be found again. */
const sorted = (ids: readonly string[]) => [...new Set(ids)].sort();
const idsOf = (items: readonly Item[]) => sorted(items.map(({ id }) => id));

describe('two sets', () => {
  it('are compared exactly, whatever their records, pages and frames', async () => {
    await fc.assert(
      fc.asyncProperty(
        sets,
        fc.integer({ min: 1, max: 50 }),
        fc.constantFrom(4_096, 10_000, 60_000),
        fc.constantFrom(4_096, 10_000, 60_000),
        async ({ client, server, own, foreign }, page, clientMax, serverMax) => {
          const found = await ours(
            await paged(client, page),
            await paged(server, page),
            clientMax,
            serverMax,
          );
          expect(sorted(found.need)).toEqual(idsOf(foreign));
          expect(sorted(found.have)).toEqual(idsOf(own));
          // Everything fits into large frames, so nothing is asked for again.
          if (Math.min(clientMax, serverMax) === 60_000)
            expect([found.need.length, found.have.length]).toEqual([foreign.length, own.length]);
          expect(found.rounds).toBeLessThan(400);
          expect(found.largest).toBeLessThanOrEqual(Math.max(clientMax, serverMax));
        },
      ),
      { numRuns: 60 },
    );
  });

  it('are compared exactly by nostr-tools as a client', async () => {
    await fc.assert(
      fc.asyncProperty(
        sets.filter(({ client, server }) =>
          // The library calculates with 32 bits.
          [...client, ...server].every(({ createdAt }) => createdAt < 2 ** 31),
        ),
        fc.integer({ min: 1, max: 50 }),
        async ({ client, server, own, foreign }, page) => {
          const found = await theirs(client, await paged(server, page), 4_096);
          expect(sorted([...new Set(found.need)])).toEqual(idsOf(foreign));
          expect(sorted([...new Set(found.have)])).toEqual(idsOf(own));
        },
      ),
      { numRuns: 40 },
    );
  });

  it('that are equal need one message each way', async () => {
    const random = generator(1);
    const items = Array.from({ length: 5_000 }, (_, at) => ({ createdAt: at, id: hexOf(random, 64) }));
    const found = await ours((await smallDigest(items))!, (await smallDigest(items))!, 60_000, 60_000);
    expect(found).toMatchObject({ have: [], need: [], rounds: 1 });
  });
});

describe('a digest', () => {
  it('gives the sum and the ids of any range as if it had read it', async () => {
    const random = generator(7);
    const items = Array.from({ length: 3_000 }, () => ({
      createdAt: Math.floor(random() * 50),
      id: hexOf(random, 64),
    }));
    const digest = await paged(items, 10);
    expect(digest.count).toBe(3_000);
    const bound = (): Bound => ({
      time: Math.floor(random() * 52),
      id: fromHex(hexOf(random, 2 * Math.floor(random() * 3))),
    });
    const isBelow = (one: Item, { time, id }: Bound) =>
      one.createdAt < time || (one.createdAt === time && one.id < toHex(id));
    for (let tries = 0; tries < 200; tries += 1) {
      const [one, other] = [bound(), bound()];
      const isFirst = one.time < other.time || (one.time === other.time && toHex(one.id) <= toHex(other.id));
      const [lower, upper] = isFirst ? [one, other] : [other, one];
      const inside = items.filter((item) => !isBelow(item, lower) && isBelow(item, upper));
      const expected = await (await smallDigest(inside))!.sum({ time: 0, id: new Uint8Array() }, END);
      const sum = await digest.sum(lower, upper);
      expect(sum.count).toBe(inside.length);
      expect(toHex(sum.fingerprint())).toBe(toHex(expected.fingerprint()));
      const { ids, next } = await digest.ids(lower, upper, 100_000);
      expect(next).toBeUndefined();
      expect(toHex(ids).match(/.{64}/g)?.sort() ?? []).toEqual(idsOf(inside));
    }
  });

  it('refuses a set with too many records', async () => {
    const random = generator(3);
    const items = Array.from({ length: 50 }, (_, at) => ({ createdAt: at, id: hexOf(random, 64) }));
    const bytes = await paged(items, 10);
    expect(bytes.count).toBe(50);
    const read: ReadPage = async () => ({ records: new Uint8Array(51 * RECORD_BYTES), next: undefined });
    expect(await Digest.build(read, 50)).toBeUndefined();
  });
});

const END: Bound = { time: Number.POSITIVE_INFINITY, id: new Uint8Array() };

describe('a message', () => {
  it('of random bytes is refused or answered, and nothing else happens', async () => {
    const random = generator(5);
    const items = Array.from({ length: 500 }, (_, at) => ({ createdAt: at, id: hexOf(random, 64) }));
    const records = (await smallDigest(items))!;
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), fc.boolean(), async (bytes, isVersion) => {
        const message = isVersion ? Uint8Array.of(0x61, ...bytes) : bytes;
        const answer = await respond(message, records, 4_096).catch((error: unknown) => error);
        if (answer instanceof Uint8Array) expect(answer.length).toBeLessThanOrEqual(4_096);
        else expect(answer).toBeInstanceOf(BadMessage);
      }),
      { numRuns: 300 },
    );
  });

  it('of another version is answered with the version that is known', async () => {
    const records = (await smallDigest([]))!;
    expect(toHex(await respond(Uint8Array.of(0x62), records, 4_096))).toBe('61');
    await expect(respond(Uint8Array.of(0x12), records, 4_096)).rejects.toBeInstanceOf(BadMessage);
  });

  it('that promises more ids than it has is refused', async () => {
    const records = (await smallDigest([]))!;
    // An infinite bound, the mode of ids, and 2^49 of them.
    const message = Uint8Array.of(0x61, 0, 0, 2, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0);
    await expect(respond(message, records, 4_096)).rejects.toBeInstanceOf(BadMessage);
  });

  it('in hex may be upper case, and nothing else', () => {
    expect(toHex(fromHex('61AB'))).toBe('61ab');
    for (const text of ['6', '6g', ' 61', '0x61']) expect(() => fromHex(text)).toThrow(BadMessage);
  });
});
