/** The part of the contract that erasures and files of personal data use (I12). */
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { leftEventsDeleter } from '../../../erasure/stores/events.js';
import type { TagHash } from '../../postgres/tag-hash.js';
import type { EventErasing } from '../../store.js';
import { isServedItem } from '../items.js';
import { endMark } from '../marks.js';
import { itemsByRef } from '../selections.js';
import { dynamodbDeleters } from './deleters.js';
import { Eraser, type ErasingOptions } from './eraser.js';
import { authorEntry, type Found } from './found.js';
import { personalRows } from './personal.js';
import { heldOf, newestOf, strangersAmong } from './reads.js';
import { forgetMark } from './state.js';

const SETTLED_MS_MAX = 10_000;
const LOOK_MS = 100;

export function startErasing(options: ErasingOptions, tagHash: TagHash): EventErasing {
  const { db, isLogRead } = options;
  return {
    deleters: (session) => [...dynamodbDeleters(options), leftEventsDeleter({ ...session, tagHash })],
    purge: async (refs, hidden) => {
      const items = await itemsByRef(db, refs);
      const eraser = new Eraser(options, hidden, async () => undefined);
      await eraser.take(
        [...items.values()].map(
          (item): Found =>
            isServedItem(item) ? { type: 'served', item, by: authorEntry(item) } : { type: 'hidden', item },
        ),
      );
      await eraser.finish();
    },
    held: (refs) => heldOf(db, refs),
    strangersAmong: (keys) => strangersAmong(db, keys),
    newestOf: (owned, fence) => newestOf(db, owned, fence),
    endMark: (mark, { forget }) => (forget ? forgetMark(db, mark) : endMark(db, mark)),
    settled: async () => {
      for (const startMs = performance.now(); performance.now() - startMs < SETTLED_MS_MAX; ) {
        if (isLogRead === undefined || (await isLogRead())) return true;
        await delay(LOOK_MS);
      }
      return false;
    },
    personal: (file, owner) => personalRows(db, file, owner),
  };
}
