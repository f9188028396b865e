/** I12: a member is erased from every store, nobody else is, and what was erased does not come back. */
import { existsSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { changeConfig } from '../../src/communities/config-change.sql.js';
import { readCertificate } from '../../src/erasure/certificates/certificates.sql.js';
import { certificateProblems } from '../../src/erasure/certificates/rules.js';
import { reauditErasures } from '../../src/erasure/jobs-reaudit.js';
import { openAlarms } from '../../src/erasure/people.sql.js';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { putLabel, withdrawLabel } from '../../src/labels/labels.sql.js';
import { labelSchema } from '../../src/labels/rules.js';
import { readDirectory } from '../../src/topics/node-topics.sql.js';
import { RawClient } from '../support/clients/client.js';
import {
  askFor,
  countsOf,
  ERASED,
  jobContext,
  runErasures,
  stateOf,
  zeros,
} from '../support/domains/erasure.js';
import { fillEveryStore } from '../support/domains/person.js';
import { type Author, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

let relay: TestNode;
let art: number;
let aheadMs = 0;
const now = () => Date.now() + aheadMs;
const boss = newAuthor();
const [alice, bob] = [newAuthor(), newAuthor()];
const posted: NostrEvent[] = [];

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: boss.pubkey }, now, jobs: [] });
  const { pool } = relay.database;
  art = await addCommunity(pool, 'art', undefined, Date.now());
  await writeSetting(pool, art, 'topic.mode', 'open', Date.now());
  await vi.waitUntil(() => relay.node.communities.find(undefined, 'art')?.settings['topic.mode'] === 'open');
  const client = await RawClient.connect(relay.url);
  posted.push(
    ...['first', 'second'].map((content) => sign(alice, { content, tags: [['t', 'sea']] })),
    sign(newAuthor(), { kind: 1_059, content: 'sealed', tags: [['p', alice.pubkey]] }),
  );
  for (const event of posted) expect(await client.publish(event)).toEqual([true, '']);
  await client.close();
  for (const [community, path] of [
    [1, ''],
    [art, '/c/art'],
  ] as const)
    for (const [person, name] of [
      [alice, 'alice'],
      [bob, 'bob'],
    ] as const)
      await fillEveryStore({ pool, community, url: relay.url + path }, person, boss, `${name}${community}`);
  await pool.query(`DELETE FROM erasures`);
  await labelPosts();
  await makeTopicOf(alice);
  // A consumer that the test made up, and that nobody runs.
  await pool.query(`DELETE FROM consumer_dead_letters WHERE consumer = 'another' AND author <> $1`, [
    Buffer.from(alice.pubkey, 'hex'),
  ]);
  await pool.query(`UPDATE consumer_offsets SET last_seq = 1000000 WHERE consumer = 'another'`);
});
afterAll(() => relay?.close());

/**
 * One active label and one withdrawn label. The node publishes an event for each, and the address of that
 * event contains the id.
 */
async function labelPosts(): Promise<void> {
  const { pool } = relay.database;
  const spec = labelSchema.parse({ label: 'spam' });
  const targets = posted
    .slice(0, 2)
    .map(({ id }) => ({ community: 1, event: id, pubkey: alice.pubkey, topics: ['sea'] }));
  const settled = (column: string, count: number) =>
    vi.waitUntil(
      async () =>
        (await pool.query(`SELECT 1 FROM labels WHERE policy = '' AND ${column} IS NOT NULL`)).rowCount! >=
        count,
      { timeout: 100_000 },
    );
  await changeConfig(pool, { community: 1, now: Date.now() }, async ({ db }) => {
    for (const target of targets) await putLabel(db, target, spec, {}, Date.now());
  });
  await settled('label_address_event', 2);
  await changeConfig(pool, { community: 1, now: Date.now() }, ({ db }) =>
    withdrawLabel(db, targets[1]!, 'spam', Date.now()),
  );
  await settled('withdrawal_published_at', 1);
}

/** A topic about a person, which others use. */
async function makeTopicOf({ pubkey }: Author): Promise<void> {
  const { pool } = relay.database;
  const topic = `kukuri:user:${pubkey}`;
  const carols = [1, Buffer.from(newAuthor().pubkey, 'hex'), topic];
  await pool.query(
    'INSERT INTO members (community, pubkey, created_at, updated_at) VALUES ($1, $2, 1, 1)',
    carols.slice(0, 2),
  );
  await pool.query(
    `INSERT INTO node_subscriptions (community, topic, pinned, public, created_at, updated_at)
      VALUES (1, $1, true, true, 1, 1)`,
    [topic],
  );
  await pool.query('INSERT INTO blocked_topics (community, topic, created_at) VALUES (1, $1, 1)', [
    `old:user:${pubkey}`,
  ]);
  await pool.query(
    `WITH asked AS (INSERT INTO topic_subscription_requests (request_id, community, pubkey, topic, status,
      created_at)
       VALUES (gen_random_uuid(), $1, $2, $3, 'active', 1) RETURNING request_id)
     INSERT INTO topic_subscriptions (subscription_id, request_id, community, pubkey, topic, status,
       started_at, updated_at)
     SELECT gen_random_uuid(), request_id, $1, $2, $3, 'active', 1, 1 FROM asked`,
    carols,
  );
  await pool.query(
    `INSERT INTO invites (invite_id, community, code_hash, topic, created_by, created_at, expires_at)
     VALUES (gen_random_uuid(), $1, '\\x01', $3, $2, 1, 2)`,
    carols,
  );
}

const member = (community: number, { pubkey }: Author) => ({ type: 'member', community, pubkey }) as const;
const counts = (community: number, person: Author) =>
  countsOf(relay.database, relay.node.erasing, member(community, person));

describe('a member who is erased', () => {
  let before: Record<string, number>;
  let others: Record<string, number>[];

  it('is in no store any more, and everybody else keeps everything', async () => {
    const { database } = relay;
    await relay.node.consumers!.drained();
    others = [await counts(1, bob), await counts(art, alice), await counts(art, bob)];
    before = await counts(1, alice);
    expect(Object.values(before).filter((count) => count > 0).length).toBeGreaterThan(20);
    const erasure = await askFor(database, { community: 1, pubkey: alice.pubkey });
    await runErasures(jobContext(relay, { now }));
    const after = await counts(1, alice);
    expect(after).toEqual(zeros(before));
    const state = await stateOf(database, erasure);
    expect(state).toMatchObject({ stage: 'completed', pubkey: null, failures: {}, banned: true });
    // Their own request to vanish has become part of the fence.
    before['postgres:vanish_marks'] = 0;
    expect(state.counted).toEqual(before);
    expect([await counts(1, bob), await counts(art, alice), await counts(art, bob)]).toEqual(others);
    // Nothing in the whole database names them any more, but for what is of the other community.
    expect(await tablesNaming(alice.pubkey, art)).toEqual([]);
    // The number of a gift wrap that another signed stays: neither its id nor its key names anybody.
    for (const { id } of posted.slice(0, 2)) expect(await tablesNaming(id, art)).toEqual([]);
    const directory = await readDirectory(
      database.pool,
      { community: 1, publicOnly: true },
      { limit: 1_000 },
    );
    expect(JSON.stringify(directory)).not.toContain(':user:');
  });

  it('leaves a certificate with the counts and without a name', async () => {
    const { rows } = await relay.database.pool.query<{ id: string }>(
      `SELECT erasure_id AS id FROM erasures WHERE stage = 'completed'`,
    );
    const { event } = (await readCertificate(relay.database.pool, rows[0]!.id))!;
    const { problems, certificate } = certificateProblems(JSON.parse(event) as NostrEvent);
    expect(problems).toEqual([]);
    expect(certificate).toMatchObject({ community: 'default', cause: 'operator', previous: null });
    if (certificate?.version !== 2) throw new Error('a certificate of today has the second form');
    const told = Object.fromEntries(
      certificate.stores.map(({ name, before: all, added }) => [name, all - added]),
    );
    expect(told).toEqual(before);
    // A row that names them twice is one row, and the outbox has got a delete for each event.
    const row = (name: string) => certificate.stores.find((store) => store.name === `postgres:${name}`);
    expect(row('settings')).toMatchObject({ before: 1, added: 0, deleted: 1, otherwise: 0, after: 0 });
    expect(row('events_outbox')!.added).toBeGreaterThan(0);
    expect(event).not.toContain(alice.pubkey);
  });

  it('cannot bring back what was erased, and a ban outlives the erasure', async () => {
    await vi.waitUntil(() => {
      const { blocks, refused } = relay.node.communities.get(1)!;
      return !blocks.authors.has(alice.pubkey) && !refused.has(alice.pubkey);
    });
    const client = await RawClient.connect(relay.url);
    for (const event of posted)
      expect(await client.publish(event)).toEqual([false, expect.stringMatching(ERASED)]);
    aheadMs = 3_600_000;
    const later = sign(alice, { created_at: nowSeconds() + 3_600, content: 'back again' });
    expect(await client.publish(later)).toEqual([false, expect.stringMatching(ERASED)]);
    aheadMs = 0;
    await client.close();
  });

  it('is checked for every day, and an alarm is raised when rows of theirs are back', async () => {
    const { pool } = relay.database;
    const context = jobContext(relay, { now });
    await runErasures(context, reauditErasures);
    expect(await openAlarms(pool)).toEqual([]);
    const key = Buffer.from(alice.pubkey, 'hex');
    await pool.query('INSERT INTO trust_authors (community, first_seen_at, pubkey) VALUES (1, 1, $1)', [key]);
    await runErasures(context, reauditErasures);
    expect(await openAlarms(pool)).toMatchObject([{ community: 1, store: 'postgres:trust', found: 1 }]);
    await pool.query('DELETE FROM trust_authors WHERE community = 1 AND pubkey = $1', [key]);
    await runErasures(context, reauditErasures);
    expect(await openAlarms(pool)).toEqual([]);
  });
});

/** Tables with a row in which a key or an id stands anywhere, as bytes or as text; but for one community. */
async function tablesNaming(name: string, apart: number): Promise<string[]> {
  const { pool } = relay.database;
  const { rows: tables } = await pool.query<{ table: string; has: boolean }>(
    `SELECT c.relname AS table, EXISTS (SELECT 1 FROM pg_attribute a
      WHERE a.attrelid = c.oid AND a.attname = 'community') AS has
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1`,
  );
  const found: string[] = [];
  for (const { table, has } of tables) {
    const where = has ? `t.community <> ${apart}` : 'true';
    const { rows } = await pool.query<{ there: boolean }>(
      `SELECT EXISTS (SELECT 1 FROM ${table} t WHERE ${where} AND strpos(t::text, $1) > 0) AS there`,
      [name],
    );
    if (rows[0]!.there) found.push(table);
  }
  return found;
}

describe('the numbers of a certificate', () => {
  it('add up in every store, while consumers work and others go on writing', async () => {
    const { database, url } = relay;
    const { pool } = database;
    const client = await RawClient.connect(url);
    const people = Array.from({ length: 6 }, () => newAuthor());
    const [first, second, ...posters] = people as [Author, Author, ...Author[]];
    const posts: NostrEvent[] = [];
    const post = async (author: Author, draft: Parameters<typeof sign>[1]) => {
      const event = sign(author, draft);
      if ((await client.publish(event))[0]) posts.push(event);
    };
    for (const [at, person] of people.entries())
      for (let number = 0; number < 6; number += 1)
        await post(person, { content: `${at} says ${number}`, tags: [['t', 'sea']] });
    for (const [at, person] of [first, second].entries())
      await fillEveryStore({ pool, community: 1, url }, person, boss, `numbers${at}`);
    await pool.query(`DELETE FROM erasures WHERE stage = 'grace'`);
    for (const { pubkey } of [first, second, ...posters.slice(0, 2)])
      await askFor(database, { community: 1, pubkey });
    // Answers and reports about those who are being erased, all the while.
    let isOver = false;
    const others = (async () => {
      for (let at = 0; !isOver; at += 1) {
        const { id, pubkey } = posts[at % posts.length]!;
        const kind = at % 2 === 0 ? 1 : 1_984;
        const tags = [
          ['e', id, ...(kind === 1 ? [] : ['spam'])],
          ['p', pubkey],
        ];
        await client.publish(sign(newAuthor(), { kind, tags, content: 'about it' }));
      }
    })();
    for (const person of posters.slice(2)) await post(person, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    const before = await completed();
    await vi.waitUntil(
      async () => {
        await runErasures(jobContext(relay, { now }));
        return (await completed()) === before + people.length;
      },
      { timeout: 60_000 },
    );
    isOver = true;
    await others;
    await client.close();
    const { rows } = await pool.query<{ event: string }>(
      'SELECT event FROM erasure_certificates ORDER BY position DESC LIMIT $1',
      [people.length],
    );
    for (const { event } of rows) {
      const { problems, certificate } = certificateProblems(JSON.parse(event) as NostrEvent);
      expect(problems).toEqual([]);
      if (certificate?.version !== 2) throw new Error('a certificate of today has the second form');
      for (const { name, before: all, added, deleted, otherwise, after } of certificate.stores) {
        expect([name, all]).toEqual([name, deleted + otherwise + after]);
        expect(added, name).toBeLessThanOrEqual(all);
        // One row names them twice: it is counted once, and nobody else takes it.
        if (name === 'postgres:settings') expect([all, otherwise]).toEqual([deleted, 0]);
      }
    }
  });

  const completed = async () =>
    (await relay.database.pool.query(`SELECT 1 FROM erasures WHERE stage = 'completed'`)).rowCount ?? 0;
});

describe('a community that is erased', () => {
  it('is deleted as a whole, its sockets are closed, and the others keep everything', async () => {
    const { database, node } = relay;
    const { pool } = database;
    const inArt = await RawClient.connect(`${relay.url}/c/art`);
    const keyFile = node.erasing.keys.pathOf(await node.erasing.keys.pubkey(art, 'moderation'));
    expect(existsSync(keyFile)).toBe(true);
    await relay.node.consumers!.drained();
    const before = await counts(1, bob);
    const whole = await countsOf(database, node.erasing, { type: 'community', community: art });
    expect(Object.values(whole).filter((count) => count > 0).length).toBeGreaterThan(25);
    const erasure = await askFor(database, { community: art, slug: 'art' });
    await runErasures(jobContext(relay, { now }));
    expect(await stateOf(database, erasure)).toMatchObject({ stage: 'completed', failures: {} });
    expect(await countsOf(database, node.erasing, { type: 'community', community: art })).toEqual(
      zeros(whole),
    );
    expect(existsSync(keyFile)).toBe(false);
    await inArt.until(() => inArt.closed !== undefined);
    expect(await counts(1, bob)).toEqual(before);
    const { rows } = await pool.query('SELECT 1 FROM communities WHERE id = $1', [art]);
    expect(rows).toEqual([]);
    // What is left of it is the record of the erasure, the mark that refuses, and numbers without anything.
    expect(await tablesOf(art)).toEqual(['erasure_marks', 'erasures', 'events_outbox']);
    await expect(RawClient.connect(`${relay.url}/c/art`)).rejects.toThrow();
    const second = await pool.query<{ event: string; previous: Buffer }>(
      'SELECT event, previous FROM erasure_certificates ORDER BY position DESC LIMIT 1',
    );
    const { problems, certificate } = certificateProblems(JSON.parse(second.rows[0]!.event) as NostrEvent);
    expect(problems).toEqual([]);
    expect(certificate).toMatchObject({ subject: { type: 'community' }, community: 'art' });
    expect(certificate!.previous).toBe(second.rows[0]!.previous.toString('hex'));
    const kept = readFileSync(`${relay.test.folder}/certificates.jsonl`, 'utf8').trim().split(/\n+/);
    expect(kept.length).toBeGreaterThanOrEqual(2);
  });
});

/** Tables that have a row of the community. */
async function tablesOf(community: number): Promise<string[]> {
  const { rows } = await relay.database.pool.query<{ name: string }>(
    `SELECT c.relname AS name FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
      AND a.attname = 'community'
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
       ORDER BY 1`,
  );
  const found: string[] = [];
  for (const { name } of rows) {
    const some = await relay.database.pool.query(`SELECT 1 FROM ${name} WHERE community = $1 LIMIT 1`, [
      community,
    ]);
    if (some.rowCount !== 0) found.push(name);
  }
  return found;
}
