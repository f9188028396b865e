/**
 * The outbox: rows are scrubbed when every consumer has read the deletes (I17). While one is behind, this
 * store fails and is tried again, for a day; after that the consumer has to rebuild.
 */
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { DAY_MS } from '../../events/rules/retention.js';
import { storeBy } from '../all-tables.sql.js';
import { BESIDE_LANE, type Subject } from '../rules.js';
import { type Deleter, inBatches, type Progress } from './deleter.js';
import {
  type BehindConsumer,
  consumersBehind,
  countOutbox,
  lastOutboxSeq,
  leaveBehind,
  scrubOutbox,
} from './outbox.sql.js';
import type { PostgresStores } from './postgres.js';

/** How long one try waits for consumers that do not advance. */
const STANDSTILL_MS_MAX = 2_000;
/** How long one try waits for consumers that advance. */
const WAIT_MS_MAX = 60_000;
const LOOK_MS = 50;
/** A consumer that is still behind after this time is paused, or no longer exists. */
const PATIENCE_MS = DAY_MS;

const { name: NAME } = storeBy('outbox');

/** How often a command lets consumers catch up before it gives up. */
export const READER_WAITS_MAX = 10;
/** It stopped because a consumer has not read the outbox yet. */
export const waitsForReaders = ({ failures }: { readonly failures: Readonly<Record<string, string>> }) =>
  NAME in failures;

const authorOf = (subject: Subject) =>
  subject.type === 'community'
    ? undefined
    : { pubkey: subject.pubkey, until: subject.until ?? Number.MAX_SAFE_INTEGER };

export function outboxDeleter(table: Deleter, { client, rows, now }: PostgresStores): Deleter {
  return {
    ...table,
    count: (subject) => countOutbox(client, subject.community, authorOf(subject)),
    delete: async (subject, progress) => {
      const last = await lastOutboxSeq(client, subject.community, authorOf(subject));
      if (last === undefined) return 0;
      await passed(last, subject.fencedAt ?? now(), progress);
      const { community } = subject;
      const scrub = (limit: number) => scrubOutbox(client, community, authorOf(subject), limit);
      return inBatches(scrub, progress, rows, BESIDE_LANE);
    },
  };

  /** Reports its progress meanwhile: a stop of the node or a hold ends the wait. */
  async function passed(seq: number, fencedAt: number, progress: Progress): Promise<void> {
    const startMs = performance.now();
    let advancedMs = startMs;
    let before: readonly BehindConsumer[] = [];
    for (;;) {
      const behind = await consumersBehind(client, seq);
      if (behind.length === 0) return;
      const names = behind.map(({ consumer }) => consumer);
      if (now() - fencedAt > PATIENCE_MS) return leaveBehind(client, names, now());
      const nowMs = performance.now();
      if (!isDeepStrictEqual(behind, before)) advancedMs = nowMs;
      if (nowMs - advancedMs >= STANDSTILL_MS_MAX || nowMs - startMs >= WAIT_MS_MAX)
        throw new Error(
          `waits for ${names.join(', ')} to read the outbox up to ${seq} ` +
            '("minato consumers" shows how far they are)',
        );
      before = behind;
      await delay(LOOK_MS);
      await progress(0);
    }
  }
}
