/** Brings the search index up to date when a test calls it. */
import type { Communities } from '../../../src/communities/communities.js';
import { readChanges } from '../../../src/outbox/changes.sql.js';
import {
  readLease,
  registerConsumer,
  saveProgress,
  takeLease,
} from '../../../src/outbox/consumers/consumers.sql.js';
import type { Database } from '../../../src/postgres/database.js';
import { searchConsumer } from '../../../src/search/consumer.js';

const HOLDER = '00000000-0000-4000-8000-000000000001';
const BATCH = 500;

/** Applies everything that is in the outbox. */
export async function indexAll(
  database: Database,
  communities: Pick<Communities, 'all' | 'get'>,
  now = Date.now(),
): Promise<void> {
  const consumer = searchConsumer({ communities });
  const client = await database.connect();
  try {
    if (await registerConsumer(client, consumer.name, now)) await consumer.open?.(client, 1);
    for (;;) {
      const turn = (await readLease(client, consumer.name))!;
      if (turn.holder !== HOLDER) await takeLease(client, consumer.name, turn, HOLDER);
      const { changes, upTo } = await readChanges(client, { after: turn.lastSeq, limit: BATCH });
      await client.query('BEGIN');
      await consumer.apply(changes, client, turn.generation);
      const progress = { from: turn.lastSeq, to: upTo, rows: changes.length, rowsPerSecond: 0, now };
      const saved = await saveProgress(client, {
        consumer: consumer.name,
        holder: HOLDER,
        generation: turn.generation,
        ...progress,
      });
      await client.query(saved ? 'COMMIT' : 'ROLLBACK');
      if (!saved) throw new Error('another instance took the lease of the search consumer');
      if (changes.length < BATCH) return;
    }
  } finally {
    await client.end();
  }
}
