/**
 * I12 with events in DynamoDB: a member is erased from every table, nobody else is, an interrupted erasure
 * is resumed, and what a restore brings back is erased again. Only this store has tables of its own, a log
 * that follows it, and backups apart from PostgreSQL.
 */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { readCertificate } from '../../src/erasure/certificates/certificates.sql.js';
import { readProofs } from '../../src/erasure/certificates/files.js';
import { certificateProblems } from '../../src/erasure/certificates/rules.js';
import { certificatesFile } from '../../src/erasure/certificates/sign.js';
import { reauditErasures } from '../../src/erasure/jobs-reaudit.js';
import { openAlarms } from '../../src/erasure/people.sql.js';
import { replayErasures } from '../../src/erasure/replay.js';
import { withRegistry } from '../../src/erasure/stores/registry.js';
import { Dynamodb, type Item } from '../../src/events/dynamodb/client.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { writePersonalFile } from '../../src/personal-data/file.js';
import { findPerson } from '../../src/personal-data/personal-data.sql.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { readZip, rowsOf } from '../support/clients/zip.js';
import { allItems, type TableItem } from '../support/domains/dynamodb-items.js';
import { askFor, countsOf, ERASED, jobContext, runErasures, stateOf } from '../support/domains/erasure.js';
import { type Author, type Draft, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { sharedDynamodb } from '../support/servers/dynamodb.js';

let relay: TestNode;
let client: RawClient;
let db: Dynamodb;

beforeAll(async () => {
  relay = await startTestNode({ store: 'dynamodb', jobs: [], upkeepMs: 200 });
  client = await RawClient.connect(relay.url);
  const { url } = await sharedDynamodb();
  const prefix = `${relay.test.connection.database}_`;
  db = new Dynamodb({ endpoint: url, region: 'us-east-1', prefix });
});
afterAll(async () => {
  await client?.close();
  await db?.close();
  await relay?.close();
});

const naming = async (...names: string[]) =>
  (await allItems(db)).filter(({ item }) => {
    const text = JSON.stringify(item);
    return names.some((name) => text.includes(name));
  });

const ids = (events: readonly NostrEvent[]) => events.map(({ id }) => id);
const isHead = ({ pk }: Item) => /^1\/head\//.test(String(pk));

const publish = async (author: Author, draft: Draft = {}) => {
  const event = sign(author, draft);
  expect(await client.publish(event)).toEqual([true, '']);
  return event;
};

/** Everything that a member can have here. Returns the events that are theirs or to them. */
async function fill(person: Author): Promise<NostrEvent[]> {
  const at = nowSeconds() - 100;
  const { store } = relay.node;
  const wrap: Draft = { kind: 1_059, tags: [['p', person.pubkey]] };
  const events = [
    await publish(person, {
      tags: [
        ['t', 'sea'],
        ['e', 'f'.repeat(64)],
      ],
    }),
    await publish(person, { kind: 0, created_at: at, content: '{"name":"old"}' }),
    await publish(person, { kind: 0, created_at: at + 1, content: '{"name":"new"}' }),
    await publish(person, { kind: 30_023, created_at: at, tags: [['d', 'a']] }),
    await publish(person, { kind: 30_023, created_at: at + 1, tags: [['d', 'a']] }),
    await publish(person, { content: 'regretted' }),
    await publish(person, { content: 'short', tags: [['expiration', `${nowSeconds() + 2}`]] }),
    await publish(person, { content: 'removed' }),
    await publish(newAuthor(), wrap),
    await publish(newAuthor(), { ...wrap, content: 'removed' }),
  ];
  const regretted = events.find(({ content }) => content === 'regretted')!;
  events.push(
    await publish(person, {
      kind: 5,
      tags: [
        ['e', regretted.id],
        ['a', `30023:${person.pubkey}:gone`],
      ],
    }),
  );
  const refs = events.filter(({ content }) => content === 'removed').map(({ id }) => ({ community: 1, id }));
  expect(await store.hide({ hidden: 'removed', purge: false, which: { by: 'ids', refs } })).toBe(2);
  const brief = events.find(({ content }) => content === 'short')!;
  await eventually('it expires', () => nowSeconds() >= Number(brief.tags[0]![1]) || undefined);
  await store.hide({ hidden: 'expired', purge: true, which: { by: 'expiration', limit: 10 } });
  await store.countSeen([{ community: 1, id: regretted.id, times: 2, lastSeenAt: Date.now() }]);
  return events;
}

/** What the node has signed about somebody, as trust and membership publish it. */
async function sayAbout({ pubkey }: Author): Promise<NostrEvent[]> {
  const { keys } = relay.node.erasing;
  const signer = await keys.pubkey(1, 'report-based');
  const template = { kind: 30_382, tags: [['d', pubkey]], content: '' };
  const events: NostrEvent[] = [];
  for (const created_at of [nowSeconds() - 5, nowSeconds()]) {
    const event = await keys.signAs(signer, 'report-based', { ...template, created_at });
    const payload = JSON.stringify(event);
    expect(await relay.node.store.submit({ community: 1, event, payload })).toBe('stored');
    events.push(event);
  }
  return events;
}

const counts = ({ pubkey }: Author) =>
  countsOf(relay.database, relay.node.erasing, { type: 'member', community: 1, pubkey });
const erase = () => runErasures(jobContext(relay));
const dynamodbOf = (all: Record<string, number>) =>
  Object.fromEntries(Object.entries(all).filter(([name]) => name.startsWith('dynamodb:event')));

describe('a member whose events are in DynamoDB', () => {
  const [alice, bob] = [newAuthor(), newAuthor()];
  let events: NostrEvent[];
  let said: NostrEvent[];
  let backup: TableItem[];

  beforeAll(async () => {
    events = await fill(alice);
    said = await sayAbout(alice);
    await fill(bob);
  });

  it('gets a file with what the tables hold about them', async () => {
    const reader = await relay.database.connect();
    const pieces: Buffer[] = [];
    await writePersonalFile(
      {
        client: reader,
        person: await findPerson(reader, 1, alice.pubkey),
        events: relay.node.store,
        community: { slug: 'default', name: 'default' },
        now: Date.now(),
        signal: new AbortController().signal,
      },
      async (piece) => void pieces.push(piece),
    );
    await reader.end();
    const files = await readZip(Buffer.concat(pieces));
    const lines = (name: string) => rowsOf(files, name);
    expect(lines('events')).toHaveLength(4);
    expect(lines('hidden-events')).toHaveLength(3);
    expect(lines('gift-wraps')).toHaveLength(2);
    expect(lines('event-ids')).toHaveLength(8);
    expect(lines('newest-versions')).toHaveLength(2);
    expect(lines('deletions')).toHaveLength(2);
    expect(lines('deletions-by-day')).toMatchObject([{ targets: 2 }]);
    expect([...files.values()].join()).not.toContain(bob.pubkey);
  });

  it('is in no table after the erasure, and nobody else is touched', async () => {
    const before = await counts(alice);
    expect(dynamodbOf(before)).toEqual({
      'dynamodb:events': 12,
      'dynamodb:event_state': expect.any(Number),
      'dynamodb:event_index': expect.any(Number),
    });
    const bobs = await naming(bob.pubkey);
    backup = await naming(alice.pubkey, ...ids([...events, ...said]));
    const erasure = await askFor(relay.database, { community: 1, pubkey: alice.pubkey });
    await erase();
    expect(await stateOf(relay.database, erasure)).toMatchObject({ stage: 'completed', failures: {} });
    expect(await naming(alice.pubkey, ...ids(events))).toEqual([]);
    // The head of an address of the node stays: it refuses what was erased.
    expect((await naming(...ids(said))).filter(({ item }) => !isHead(item))).toEqual([]);
    expect(await naming(bob.pubkey)).toEqual(bobs);
    const { event } = (await readCertificate(relay.database.pool, erasure.erasureId))!;
    const { problems, certificate } = certificateProblems(JSON.parse(event) as NostrEvent);
    expect(problems).toEqual([]);
    for (const [name, count] of Object.entries(dynamodbOf(before))) {
      const row = certificate!.stores.find((store) => store.name === name);
      expect(row, name).toMatchObject({ before: count, deleted: count, after: 0 });
    }
    const { rows } = await relay.database.pool.query(
      `SELECT 1 FROM events_outbox o WHERE strpos(o::text, $1) > 0`,
      [alice.pubkey],
    );
    expect(rows).toEqual([]);
  });

  it('cannot bring back what was erased, and may come back with newer events', async () => {
    for (const event of events.slice(0, 3))
      expect(await client.publish(event)).toEqual([false, expect.stringMatching(ERASED)]);
    const { rows } = await relay.database.pool.query<{ until: number }>('SELECT until FROM erasure_marks');
    const created_at = rows[0]!.until + 1;
    await eventually('the clock has passed the mark', () => nowSeconds() + 899 > created_at || undefined);
    await publish(alice, { created_at, content: 'back' });
    await runErasures(jobContext(relay), reauditErasures);
    expect(await openAlarms(relay.database.pool)).toEqual([]);
  });

  it('is erased again when a restore of the tables has brought the events back', async () => {
    await db.write(backup.map(({ table, item }) => ({ table, put: item })));
    await runErasures(jobContext(relay), reauditErasures);
    const alarms = await openAlarms(relay.database.pool);
    expect(alarms.map(({ store }) => store)).toEqual(expect.arrayContaining(['dynamodb:events']));
    const { proofs } = readProofs(await readFile(certificatesFile(relay.test.folder), 'utf8'));
    const { erasing } = relay.node;
    const replay = (all: boolean) =>
      withRegistry(erasing, relay.database, { now: Date.now, rows: 500 }, (opened) => {
        const { signal } = new AbortController();
        return replayErasures({ ...erasing, ...opened, signal, now: Date.now, all }, proofs);
      });
    expect((await replay(false)).again).toEqual([]);
    expect((await replay(true)).again).toHaveLength(1);
    await erase();
    expect(await naming(...ids(events))).toEqual([]);
    expect((await replay(true)).again).toEqual([]);
    const mine = await client.query({ authors: [alice.pubkey] });
    expect(mine.events).toMatchObject([{ content: 'back' }]);
    await runErasures(jobContext(relay), reauditErasures);
    expect(await openAlarms(relay.database.pool)).toEqual([]);
  });
});

describe('a request to vanish (NIP-62)', () => {
  it('erases up to its time, keeps the request for the operator, and newer events stay', async () => {
    const carol = newAuthor();
    const old = await publish(carol, { created_at: nowSeconds() - 50, tags: [['t', 'sea']] });
    const wrap = await publish(newAuthor(), { kind: 1_059, tags: [['p', carol.pubkey]] });
    const request = await publish(carol, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    const fresh = await publish(carol, { created_at: nowSeconds() + 5 });
    await erase();
    expect(await naming(old.id, wrap.id)).toEqual([]);
    const left = await naming(request.id);
    expect(left.filter(({ table }) => table === 'events')).toHaveLength(1);
    const { events } = await client.query({ authors: [carol.pubkey] });
    expect(events.map(({ id }) => id)).toEqual([fresh.id]);
    expect(await client.publish(old)).toEqual([false, expect.stringMatching(/vanish/)]);
    expect((await naming(carol.pubkey)).filter(({ item }) => item.pk === '1/marks')).toEqual([]);
  });

  it('of a key that has nothing here is settled without an erasure', async () => {
    const stranger = newAuthor();
    await publish(stranger, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    await erase();
    const { rows } = await relay.database.pool.query(
      `SELECT erased_at, (SELECT count(*)::int FROM erasures e WHERE e.pubkey = v.pubkey) AS erasures
       FROM vanish_marks v WHERE pubkey = $1`,
      [Buffer.from(stranger.pubkey, 'hex')],
    );
    expect(rows).toEqual([{ erased_at: expect.any(Number), erasures: 0 }]);
    expect((await naming(stranger.pubkey)).filter(({ item }) => item.pk === '1/marks')).toEqual([]);
  });
});

describe('a community whose events are in DynamoDB', () => {
  it('leaves no item in any table, and the others keep everything', async () => {
    const { pool } = relay.database;
    const art = await addCommunity(pool, 'art', undefined, Date.now());
    await writeSetting(pool, art, 'topic.mode', 'open', Date.now());
    await eventually('it is open', () => {
      const community = relay.node.communities.find(undefined, 'art');
      return community?.settings['topic.mode'] === 'open' || undefined;
    });
    const inArt = await RawClient.connect(`${relay.url}/c/art`);
    const [dan, eve] = [newAuthor(), newAuthor()];
    const sent = [
      sign(dan, { tags: [['t', 'sea']] }),
      sign(dan, { kind: 0, created_at: nowSeconds() - 5 }),
      sign(dan, { kind: 0, created_at: nowSeconds() - 4 }),
      sign(eve, { kind: 1_059, tags: [['p', dan.pubkey]] }),
      sign(eve, { content: 'removed' }),
    ];
    sent.push(sign(dan, { kind: 5, tags: [['e', sent[0]!.id]] }));
    sent.push(sign(eve, { kind: 62, tags: [['relay', 'ALL_RELAYS']] }));
    for (const event of sent.slice(0, -2)) expect(await inArt.publish(event)).toEqual([true, '']);
    const refs = [{ community: art, id: sent[4]!.id }];
    await relay.node.store.hide({ hidden: 'removed', purge: false, which: { by: 'ids', refs } });
    for (const event of sent.slice(-2)) expect(await inArt.publish(event)).toEqual([true, '']);
    // The request to vanish holds in every community.
    await erase();
    const of = (community: number, items: readonly TableItem[]) =>
      items.filter(({ item: { pk, id } }) => String(id ?? pk).startsWith(`${community}/`));
    const before = of(1, await allItems(db));
    expect(of(art, await allItems(db)).length).toBeGreaterThan(10);
    const erasure = await askFor(relay.database, { community: art, slug: 'art' });
    await erase();
    expect(await stateOf(relay.database, erasure)).toMatchObject({ stage: 'completed', failures: {} });
    const after = await allItems(db);
    expect(of(art, after)).toEqual([]);
    expect(of(1, after)).toEqual(before);
    await inArt.close();
  });
});
