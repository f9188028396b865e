/**
 * The outbox: consumers get their `delete(erasure)` first; once all of them have passed it, the rows are scrubbed. While one has not,
 * this store fails, and is tried again, for a day; then that consumer has to begin anew.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Subject } from '../core/erasure.js';
import { DAY_MS } from '../core/retention.js';
import {
  consumersBehind,
  countOutbox,
  lastOutboxSeq,
  leaveBehind,
  scrubOutbox,
} from '../store/erasure-events.js';
import { type Deleter, inBatches } from './deleter.js';
import type { PostgresStores } from './postgres.js';

/** How long one try waits for consumers that are nearly there. */
const WAIT_MS_MAX = 2_000;
const LOOK_MS = 50;
/** One that has read nothing for so long is paused, or gone for good. */
const PATIENCE_MS = DAY_MS;

const NAME = 'postgres:events_outbox';

/** Times that whoever carries an erasure out by command lets them catch up. */
export const READER_WAITS_MAX = 10;
/** It stopped because somebody has not read the outbox yet. */
export const waitsForReaders = ({ failures }: { readonly failures: Readonly<Record<string, string>> }) =>
  NAME in failures;

const authorOf = (subject: Subject) =>
  subject.type === 'community'
    ? undefined
    : { pubkey: subject.pubkey, until: subject.until ?? Number.MAX_SAFE_INTEGER };

export function outboxDeleter({ client, rows, now }: PostgresStores): Deleter {
  return {
    name: NAME,
    holds: ['events_outbox'],
    count: (subject) => countOutbox(client, subject.community, authorOf(subject)),
    delete: async (subject, progress) => {
      const last = await lastOutboxSeq(client, subject.community, authorOf(subject));
      if (last === undefined) return 0;
      await passed(last, subject.fencedAt ?? now());
      return inBatches(() => scrubOutbox(client, subject.community, authorOf(subject), rows), progress);
    },
  };

  async function passed(seq: number, fencedAt: number): Promise<void> {
    for (let waited = 0; ; waited += LOOK_MS) {
      const behind = await consumersBehind(client, seq);
      if (behind.length === 0) return;
      if (now() - fencedAt > PATIENCE_MS) return leaveBehind(client, behind, now());
      if (waited >= WAIT_MS_MAX)
        throw new Error(
          `waits for ${behind.join(', ')} to read the outbox up to ${seq} ("minato consumers" shows how far they are)`,
        );
      await delay(LOOK_MS);
    }
  }
}
