/** Jobs and search documents: documents are purged with their events and erased with their author. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { erase } from '../../src/erasure/jobs.js';
import { purgeDeletedEvents } from '../../src/events/jobs/purge-deleted.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { BOUNDS, type Job } from '../../src/jobs/job.js';
import { dryRunJob, runJob } from '../../src/jobs/run.js';
import { purgeDocumentsOfDeleted } from '../../src/search/jobs.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

let relay: TestNode;
let client: RawClient;
let ahead = 0;
let written = 0;
const author = newAuthor();

beforeAll(async () => {
  relay = await startTestNode({ jobs: [], now: () => Date.now() + ahead });
  client = await RawClient.connect(relay.url);
});
afterAll(async () => {
  await client.close();
  await relay.close();
});

function contextOf(bounds = BOUNDS) {
  const { store, communities, erasing } = relay.node;
  const { signal } = new AbortController();
  return {
    database: relay.database,
    store,
    communities,
    erasing,
    now: () => Date.now() + ahead,
    signal,
    bounds,
  };
}
async function run(job: Job, bounds?: typeof BOUNDS): Promise<number> {
  let changed = 0;
  for (;;) {
    const result = await runJob(job, contextOf(bounds));
    if (result === 'busy') continue;
    changed += result.changed;
    if (!result.more) return changed;
  }
}

async function post(draft: Draft = {}, by: Author = author): Promise<NostrEvent> {
  written += 1;
  const event = sign(by, { content: `harbour ${written}`, ...draft });
  expect(await client.publish(event)).toEqual([true, '']);
  return event;
}
const remove = (...events: NostrEvent[]) => post({ kind: 5, tags: events.map(({ id }) => ['e', id]) });
const drained = () => relay.node.consumers!.drained();

/** Whether each document exists and is marked as deleted. */
async function documents(of: Author = author): Promise<Map<string, boolean>> {
  const { rows } = await relay.database.pool.query<{ id: string; deleted: boolean }>(
    `SELECT encode(event_id, 'hex') AS id, deleted_at IS NOT NULL AS deleted FROM post_search_documents
     WHERE author = $1`,
    [Buffer.from(of.pubkey, 'hex')],
  );
  return new Map(rows.map(({ id, deleted }) => [id, deleted]));
}

describe('the documents of deleted posts', () => {
  it('are kept as long as their events, and purged with them', async () => {
    const [kept, ...deleted] = [await post(), await post(), await post(), await post()];
    await drained();
    await remove(...deleted);
    await drained();
    expect([...(await documents()).values()].sort()).toEqual([false, true, true, true]);
    ahead = 29 * DAY_MS;
    expect(await run(purgeDocumentsOfDeleted)).toBe(0);
    ahead = 31 * DAY_MS;
    expect(await run(purgeDocumentsOfDeleted), 'their events are still there').toBe(0);
    await run(purgeDeletedEvents);
    expect(await dryRunJob(purgeDocumentsOfDeleted, contextOf())).toEqual([
      { reason: 'deleted', class: 'document', rows: 3 },
    ]);
    expect(await run(purgeDocumentsOfDeleted, { rows: 2, batches: 1 })).toBe(3);
    expect(await documents()).toEqual(new Map([[kept!.id, false]]));
    ahead = 0;
  });
});

describe('a member who vanishes', () => {
  it('loses all search documents, deleted or not, and the failed changes of consumers', async () => {
    const leaving = newAuthor();
    const at = nowSeconds() - 10;
    const [said, regretted] = [
      await post({ created_at: at }, leaving),
      await post({ created_at: at }, leaving),
    ];
    await drained();
    const request = sign(leaving, { kind: 5, tags: [['e', regretted.id]], created_at: at });
    expect(await client.publish(request)).toEqual([true, '']);
    await drained();
    expect(await documents(leaving)).toEqual(
      new Map([
        [said.id, false],
        [regretted.id, true],
      ]),
    );
    const letter = `INSERT INTO consumer_dead_letters (consumer, generation, seq, ingested_at, created_at,
      failed_at, community, kind, attempts, op, error, event_id, author, topics)
        VALUES ('search', 1, 1, 1, $2, 1, 1, 1, 5, 'upsert', 'x', $1, $1, '{}')`;
    await relay.database.pool.query(letter, [Buffer.from(leaving.pubkey, 'hex'), at]);
    const newer = await post({ created_at: at + 20 }, leaving);
    const vanish = sign(leaving, { kind: 62, tags: [['relay', 'ALL_RELAYS']], created_at: at + 1 });
    expect(await client.publish(vanish)).toEqual([true, '']);
    await run(erase);
    await drained();
    expect(await documents(leaving)).toEqual(new Map([[newer.id, false]]));
    const left = 'SELECT 1 FROM consumer_dead_letters WHERE author = $1';
    expect((await relay.database.pool.query(left, [Buffer.from(leaving.pubkey, 'hex')])).rows).toEqual([]);
  });
});
