/** Negentropy (NIP-77): both sides of a round with any message. */
import type { Dice } from '../../../src/demo/rules-dice.js';
import { smallDigest } from '../../../src/sync/digest.js';
import { BadMessage, type Records, reconcile, respond } from '../../../src/sync/rules-negentropy.js';
import { makeNegentropy } from '../make/negentropy.js';
import { must, type PureTarget } from '../target.js';

const BYTES_MAX = 4_096;
let records: Promise<Records | undefined> | undefined;

const readRecords = () =>
  smallDigest(
    Array.from({ length: 300 }, (_, at) => ({ createdAt: at % 7, id: at.toString(16).padStart(64, '0') })),
  );

async function unlessBad(work: () => Promise<Uint8Array | undefined>): Promise<Uint8Array | undefined> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof BadMessage) return undefined;
    throw error;
  }
}

export const negentropy: PureTarget = {
  name: 'negentropy',
  corpus: [],
  make: (dice: Dice) => makeNegentropy(dice),
  run: async (input) => {
    records ??= readRecords();
    const known = (await records)!;
    const message = Buffer.from(input, 'latin1');
    const answer = await unlessBad(() => respond(message, known, BYTES_MAX));
    must(answer === undefined || (answer.length > 0 && answer.length <= BYTES_MAX), 'the answer is bounded');
    if (answer !== undefined) await respond(answer, known, BYTES_MAX);
    const found = { have: async () => undefined, need: async () => undefined };
    const next = await unlessBad(() => reconcile(message, known, BYTES_MAX, found));
    must(next === undefined || next.length <= BYTES_MAX, 'the next message is bounded');
  },
};
