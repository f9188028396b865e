/**
 * Reads the events of one topic that a changed policy would purge, oldest first, in one bounded transaction
 * that only reads (I14). What it counts is in events/rules/policy-preview.ts.
 */
import type { Pool } from 'pg';
import { inTransaction } from '../../postgres/transaction.js';
import { topicsOf } from '../../topics/rules.js';
import { type PolicyChange, PolicySums } from '../rules/policy-preview.js';
import type { BoundedPreview, PreviewedPolicy } from '../stored-events.js';
import { oldestPlacesOfTopic, takeOldest } from './capacity.js';
import type { TagHash } from './tag-hash.js';

/** Events of the topic that are looked at, and events of one query. */
const LOOKED_MAX = 100_000;
const BATCH_ROWS = 500;
/** No new query begins after this time. */
const MS_MAX = 5_000;
const BEGIN_READING = `BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY;
  SET LOCAL statement_timeout = '${MS_MAX}ms';
  SET LOCAL idle_in_transaction_session_timeout = '10s'`;
const ALL = { events: Number.POSITIVE_INFINITY, bytes: Number.POSITIVE_INFINITY };

export async function previewPolicy(
  pool: Pool,
  change: PolicyChange & { readonly community: number },
  tagHash: TagHash,
): Promise<PreviewedPolicy> {
  const began = performance.now();
  const { community, topic } = change;
  return inTransaction(pool, BEGIN_READING, async (db): Promise<BoundedPreview> => {
    const sums = new PolicySums(change);
    const places = await oldestPlacesOfTopic(db, { community, topic }, LOOKED_MAX + 1, tagHash);
    let complete = places.length <= LOOKED_MAX;
    for (let at = 0; at < Math.min(places.length, LOOKED_MAX); at += BATCH_ROWS) {
      if (performance.now() - began > MS_MAX) {
        complete = false;
        break;
      }
      const batch = places
        .slice(at, at + BATCH_ROWS)
        .filter(({ ingestedAt }) => ingestedAt < sums.since || sums.wantsMore());
      if (batch.length === 0) continue;
      const { rows } = await takeOldest(db, { community, topic }, ALL, batch);
      for (const { event, row, bytes } of rows)
        sums.add({ topics: topicsOf(event), ingestedAt: row.ingestedAt, bytes });
    }
    return { ...sums.result(), complete };
  });
}
