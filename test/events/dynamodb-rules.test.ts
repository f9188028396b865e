/**
 * Moderation rules on arrival (I16) with events in DynamoDB: the event is in one store and its case in
 * another, so PostgreSQL's test of one transaction does not cover it.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Dynamodb } from '../../src/events/dynamodb/client.js';
import { startDynamodbStore } from '../../src/events/dynamodb/store.js';
import { createTagHash } from '../../src/events/postgres/tag-hash.js';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import { isRefusal, words } from '../../src/events/rules/reply.js';
import type { EventStore } from '../../src/events/store.js';
import { OnArrival } from '../../src/moderation/arrival/on-arrival.js';
import { createLog } from '../../src/node/log.js';
import { switchRule, writeRule } from '../support/domains/moderation.js';
import { openDynamodb } from '../support/stores/contract.js';
import { hash, type Life, openLife, unsigned } from '../support/stores/life.js';

const START = Date.UTC(2033, 5, 1);
let life: Life;
let db: Dynamodb;
let store: EventStore;
let community: number;
let made = 0;

beforeAll(async () => {
  life = await openLife(START, [{}]);
  community = life.communities[0]!;
  [db] = (await openDynamodb(1)) as [Dynamodb];
  const { communities } = life.writers[0]!;
  store = startDynamodbStore({
    db,
    tagHash: await createTagHash(1n),
    database: life.database,
    communities: () => [community],
    settingsOf: (id) => communities.get(id)!.settings,
    onArrival: new OnArrival(communities),
    log: createLog('silent'),
    now: () => life.now,
  });
});
afterAll(async () => {
  await store?.close();
  await db?.close();
  await life?.close();
});

const note = (content: string, kind = 1): NostrEvent => {
  made += 1;
  const draft = {
    kind,
    pubkey: hash(`author ${made}`),
    created_at: START / 1_000,
    content: `${content} ${made}`,
  };
  return unsigned(draft);
};
const submit = async (event: NostrEvent) => {
  const outcome = await store.submit({ community, event, payload: serializeEvent(event) });
  return isRefusal(outcome) ? words(outcome) : outcome;
};
const served = async () =>
  (await store.find({ community, filter: { tags: [] }, limit: 100, now: life.now }, 'light')).map(
    ({ id }) => id,
  );
const casesOf = async ({ id }: NostrEvent) =>
  (
    await life.client.query('SELECT status FROM moderation_cases WHERE target_event = $1', [
      Buffer.from(id, 'hex'),
    ])
  ).rows;

/** Not announced to the store: it finds the new version when it reads its facts. */
async function enable(rule: object): Promise<void> {
  made += 1;
  const at = { pool: life.database.apiPool, community, now: life.now };
  const { ruleId } = await writeRule(at, { name: `rule ${made}`, ...rule });
  await switchRule(at, ruleId, true);
}

describe('a rule', () => {
  it('holds an event out of view, with its case, until a moderator restores it', async () => {
    const before = note('a parrot');
    expect(await submit(before)).toBe('stored');
    await enable({ action: 'hold', conditions: { words: ['parrot'] } });
    const [held, other] = [note('another parrot'), note('a gull')];
    expect(await submit(held)).toBe('stored');
    expect(await submit(other)).toBe('stored');
    expect((await served()).sort()).toEqual([before.id, other.id].sort());
    expect(await casesOf(held)).toEqual([{ status: 'held' }]);
    expect(await casesOf(other)).toEqual([]);
    expect(await submit(held)).toBe('blocked: removed by a moderator');
    expect(await store.restore([{ community, id: held.id }])).toEqual(['stored']);
    expect(await served()).toContain(held.id);
  });

  it('never holds a deletion request', async () => {
    const target = note('a target');
    await submit(target);
    await enable({ action: 'hold', conditions: { kinds: [5] } });
    const { pubkey } = target;
    const request = unsigned({ kind: 5, pubkey, created_at: START / 1_000, tags: [['e', target.id]] });
    expect(await submit(request)).toBe('stored');
    expect(await served()).not.toContain(target.id);
    expect(await casesOf(request)).toEqual([]);
  });

  it('refuses an event', async () => {
    await enable({ action: 'refuse', conditions: { words: ['shark'] } });
    expect(await submit(note('a shark'))).toBe('blocked: refused by a rule of this community');
  });
});
