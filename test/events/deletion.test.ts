/**
 * Deletion, expiration and vanishing over real sockets. The numbers are the requirements 1.1 to 6.2 on
 * deletion. Rules that need no socket are tested in src/events/rules/deletion.test.ts.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import type { Database } from '../../src/postgres/database.js';
import { authenticate } from '../support/clients/auth.js';
import { RawClient } from '../support/clients/client.js';
import { type Author, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { openTestStore } from '../support/stores/store.js';

let relay: TestNode;
let client: RawClient;
let alice: Author;
let bob: Author;

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_PUBLIC_URL: 'wss://relay.test/' } });
  client = await RawClient.connect(relay.url);
});
afterAll(async () => {
  await client.close();
  await relay.close();
});
beforeEach(() => {
  alice = newAuthor();
  bob = newAuthor();
});

const served = async (filter: object) => (await client.query(filter)).events.map((event) => event.id);
const BLOCKED = [false, 'blocked: deleted by its author'];

const deletionOf = (author: Author, ...events: { id: string }[]) =>
  sign(author, { kind: 5, tags: events.map(({ id }) => ['e', id]) });

async function counted(filter: object): Promise<unknown> {
  const id = `c${Math.random().toString(36).slice(2)}`;
  client.send(['COUNT', id, filter]);
  return (await client.waitFor((frame) => frame[0] === 'COUNT' && frame[1] === id))[2];
}

/** Everything that the database holds about these events, as text. */
async function rowsWith(database: Database, content: string): Promise<number> {
  const { rows } = await database.pool.query<{ count: number }>(
    'SELECT count(*) AS count FROM events WHERE payload LIKE $1',
    [`%${content}%`],
  );
  return rows[0]!.count;
}

/** A node whose default community has these settings from the start. */
async function withSettings(
  settings: Partial<Record<SettingKey, unknown>>,
  work: (node: TestNode, client: RawClient) => Promise<void>,
): Promise<void> {
  const store = await openTestStore();
  const { rows } = await store.database.pool.query<{ id: number }>('SELECT id FROM communities');
  for (const [key, value] of Object.entries(settings)) {
    await writeSetting(store.database.pool, rows[0]!.id, key as SettingKey, value, Date.now());
  }
  const node = await startTestNode({ on: store.test });
  const own = await RawClient.connect(node.url);
  try {
    await work(node, own);
  } finally {
    await own.close();
    await node.close();
    await store.close();
  }
}

const expectBlocked = async (from: RawClient, event: { id: string }) =>
  expect(await from.publish(event)).toEqual(BLOCKED);

describe('a deletion request', () => {
  it('1.1, 1.5 is accepted with OK true, also when it deletes nothing', async () => {
    for (const tags of [
      [],
      [['e', newAuthor().pubkey]],
      [['e', 'malformed']],
      [['a', `30023:${bob.pubkey}:x`]],
      [['k', '1']],
    ]) {
      expect(await client.publish(sign(alice, { kind: 5, tags }))).toEqual([true, '']);
    }
  });

  it('1.4 with a wrong signature is refused, and deletes nothing', async () => {
    const note = sign(alice);
    await client.publish(note);
    const request = deletionOf(alice, note);
    const forged = { ...request, sig: deletionOf(bob, note).sig };
    expect(await client.publish(forged)).toEqual([false, 'invalid: signature verification failed']);
    expect(await served({ ids: [note.id, request.id] })).toEqual([note.id]);
    expect(await client.publish(request)).toEqual([true, '']);
    expect(await served({ ids: [note.id, request.id] })).toEqual([request.id]);
  });

  it('2.3, 2.4 skips events of others and unknown events, and still deletes the rest', async () => {
    const own = [sign(alice, { content: '1' }), sign(alice, { content: '2' })];
    const foreign = sign(bob);
    for (const event of [...own, foreign]) await client.publish(event);
    const request = deletionOf(alice, own[0]!, foreign, { id: newAuthor().pubkey }, own[1]!);
    expect(await client.publish(request)).toEqual([true, '']);
    expect(await served({ ids: [...own, foreign].map((event) => event.id) })).toEqual([foreign.id]);
    expect((await client.publish(foreign))[1]).toMatch(/^duplicate/);
  });

  it('4.1, 4.2 is stored once and served', async () => {
    const request = deletionOf(alice, sign(alice));
    await client.publish(request);
    expect(await served({ ids: [request.id] })).toEqual([request.id]);
    expect(await served({ kinds: [5], authors: [alice.pubkey] })).toEqual([request.id]);
    expect(await served({ '#e': [request.tags[0]![1]] })).toEqual([request.id]);
    expect((await client.publish(request))[1]).toMatch(/^duplicate/);
    expect(await served({ kinds: [5], authors: [alice.pubkey] })).toEqual([request.id]);
  });

  it('4.3, 6.2 is delivered live, and its target is never delivered after it', async () => {
    const reader = await RawClient.connect(relay.url);
    reader.send(['REQ', 'live', { authors: [alice.pubkey], limit: 0 }]);
    await reader.waitFor((frame) => frame[0] === 'EOSE');
    for (let round = 0; round < 15; round += 1) {
      const note = sign(alice, { content: `${round}` });
      const request = deletionOf(alice, note);
      for (const event of round % 2 === 0 ? [note, request] : [request, note]) client.send(['EVENT', event]);
      await client.waitFor((frame) => frame[0] === 'OK' && frame[1] === request.id);
      await client.waitFor((frame) => frame[0] === 'OK' && frame[1] === note.id);
      client.send(['EVENT', note]);
    }
    const last = sign(alice, { content: 'last' });
    await client.publish(last);
    await reader.waitFor((frame) => frame[0] === 'EVENT' && (frame[2] as { id: string }).id === last.id);
    const got = reader.frames.filter((f) => f[0] === 'EVENT').map((f) => f[2] as ReturnType<typeof sign>);
    const requests = got.filter((event) => event.kind === 5);
    expect(requests).toHaveLength(15);
    for (const request of requests) {
      const after = got.slice(got.indexOf(request)).map((event) => event.id);
      expect(after, 'its target after it').not.toContain(request.tags[0]![1]);
    }
    expect(new Set(got.map((event) => event.id)).size, 'each once').toBe(got.length);
    expect(await served({ authors: [alice.pubkey], kinds: [1] })).toEqual([last.id]);
    await reader.close();
  });

  it('6.1 hides its target from every kind of REQ, and from COUNT', async () => {
    const tags = [
      ['t', 'sea'],
      ['p', bob.pubkey],
    ];
    const [gone, stays] = [sign(alice, { tags, content: 'gone' }), sign(alice, { tags, content: 'stays' })];
    for (const event of [gone, stays]) await client.publish(event);
    const { pubkey } = alice;
    const shapes = [
      { ids: [gone.id, stays.id] },
      { authors: [pubkey], kinds: [1] },
      { '#t': ['sea'], authors: [pubkey] },
      { '#p': [bob.pubkey] },
      { '#p': [bob.pubkey], kinds: [1] },
      { kinds: [1], since: gone.created_at, authors: [pubkey] },
    ];
    for (const filter of shapes) expect(await counted(filter)).toEqual({ count: 2 });
    await client.publish(deletionOf(alice, gone));
    for (const filter of shapes) {
      expect(await served(filter), JSON.stringify(filter)).toEqual([stays.id]);
      expect(await counted(filter)).toEqual({ count: 1 });
    }
  });

  it.each(['target first', 'request first'])('sent together, %s: the target is not served', async (order) => {
    for (let round = 0; round < 15; round += 1) {
      const note = sign(alice, { content: `${order} ${round}` });
      const request = deletionOf(alice, note);
      const frames = order === 'target first' ? [note, request] : [request, note];
      for (const event of frames) client.send(['EVENT', event]);
      const ok = await client.waitFor((frame) => frame[0] === 'OK' && frame[1] === request.id);
      expect(ok).toEqual(['OK', request.id, true, '']);
      const [, , accepted, message] = await client.waitFor(
        (frame) => frame[0] === 'OK' && frame[1] === note.id,
      );
      // Depends on which one the lane got first.
      expect([
        [true, ''],
        [false, 'blocked: deleted by its author'],
      ]).toContainEqual([accepted, message]);
      expect(await served({ ids: [note.id] })).toEqual([]);
      await expectBlocked(client, note);
    }
  });

  it('does not make a page too short', async () => {
    const at = nowSeconds() - 100;
    const notes = Array.from({ length: 12 }, (_, second) => sign(alice, { created_at: at + second }));
    for (const note of notes) await client.publish(note);
    await client.publish(deletionOf(alice, ...notes.slice(6, 10)));
    const left = [...notes.slice(0, 6), ...notes.slice(10)].reverse().map((note) => note.id);
    expect(await served({ authors: [alice.pubkey], kinds: [1], limit: 5 })).toEqual(left.slice(0, 5));
  });

  it.each([
    ['empty', ''],
    ['colons', ':a::b:'],
    ['quotes', `'"; DROP TABLE events; --`],
    ['a backslash', '\\\\x\\'],
    ['wildcards', '%_*'],
    ['NUL', 'a\u0000b'],
    ['newlines', 'a\nb\r\n'],
    ['U+2028', '\u2028'],
    ['emoji', '🌊🏝️'],
    ['10 kB', 'x'.repeat(10_000)],
    ['10 kB that does not compress', Array.from({ length: 160 }, () => newAuthor().pubkey).join('')],
  ])('for an address whose d is hostile (%s): exactly that one goes, and stays out', async (_, d) => {
    const article = sign(alice, { kind: 30023, tags: [['d', d]] });
    const other = sign(alice, { kind: 30023, tags: [['d', `${d}x`]] });
    for (const event of [article, other]) expect(await client.publish(event)).toEqual([true, '']);
    const request = sign(alice, { kind: 5, tags: [['a', `30023:${alice.pubkey}:${d}`]] });
    expect(await client.publish(request)).toEqual([true, '']);
    expect(await served({ authors: [alice.pubkey], kinds: [30023] })).toEqual([other.id]);
    await expectBlocked(client, article);
  });

  it.each([':', ''])('3.1 for a replaceable kind, with its last colon as "%s"', async (colon) => {
    const list = sign(alice, { kind: 10002, tags: [['r', 'wss://relay.test']] });
    const profile = sign(alice, { kind: 0 });
    for (const event of [list, profile]) await client.publish(event);
    await client.publish(sign(alice, { kind: 5, tags: [['a', `10002:${alice.pubkey}${colon}`]] }));
    expect(await served({ authors: [alice.pubkey], kinds: [0, 10002] })).toEqual([profile.id]);
    await expectBlocked(client, list);
  });

  it('keeps the latest time for an address, in any order of two requests', async () => {
    const at = nowSeconds() - 100;
    const ask = (created_at: number) =>
      sign(alice, { kind: 5, created_at, tags: [['a', `30023:${alice.pubkey}:x`]] });
    await client.publish(ask(at + 10));
    await client.publish(ask(at));
    const version = (created_at: number) => sign(alice, { kind: 30023, created_at, tags: [['d', 'x']] });
    await expectBlocked(client, version(at + 10));
    const later = version(at + 11);
    expect(await client.publish(later)).toEqual([true, '']);
    await client.publish(ask(at + 5));
    expect(await served({ authors: [alice.pubkey], kinds: [30023] })).toEqual([later.id]);
  });

  it('soft: hides the row and keeps it for the audit; the outbox does not announce it again', async () => {
    const note = sign(alice, { content: `audit ${alice.pubkey}` });
    await client.publish(note);
    await client.publish(deletionOf(alice, note));
    await expectBlocked(client, note);
    const { rows } = await relay.database.pool.query(
      'SELECT hidden, hidden_at > 0 AS dated FROM events WHERE id = $1',
      [Buffer.from(note.id, 'hex')],
    );
    expect(rows).toEqual([{ hidden: 2, dated: true }]);
    const outbox = await relay.database.pool.query(
      'SELECT op, reason FROM events_outbox WHERE event_id = $1 ORDER BY seq',
      [Buffer.from(note.id, 'hex')],
    );
    expect(outbox.rows).toEqual([
      { op: 'upsert', reason: null },
      { op: 'delete', reason: 'nip09' },
    ]);
  });

  it('hides its target everywhere, and the target is refused from then on', async () => {
    const note = sign(alice, { tags: [['t', 'sea']] });
    await client.publish(note);
    const request = sign(alice, { kind: 5, tags: [['e', note.id]] });
    expect(await client.publish(request)).toEqual([true, '']);
    expect(await served({ ids: [note.id] })).toEqual([]);
    expect(await served({ authors: [alice.pubkey] })).toEqual([request.id]);
    expect(await served({ '#t': ['sea'], authors: [alice.pubkey] })).toEqual([]);
    await expectBlocked(client, note);
  });

  it('its target is refused as soon as it has its OK', async () => {
    for (let round = 0; round < 20; round += 1) {
      const note = sign(alice, { content: `${round}` });
      await client.publish(note);
      await client.publish(deletionOf(alice, note));
      expect(await client.publish(note), `round ${round}`).toEqual(BLOCKED);
    }
  });

  it('that arrives first makes the node refuse its target', async () => {
    const note = sign(alice);
    await client.publish(sign(alice, { kind: 5, tags: [['e', note.id]] }));
    await expectBlocked(client, note);
    expect(await served({ ids: [note.id] })).toEqual([]);
  });

  it('that arrives first applies later, by id, by address and by the recipient of a gift wrap', async () => {
    const appliedAt = async (author: Author) =>
      (
        await relay.database.pool.query<{ applied_at: number | null }>(
          'SELECT applied_at FROM deletion_tombstones WHERE author = $1 ORDER BY is_address',
          [Buffer.from(author.pubkey, 'hex')],
        )
      ).rows.map(({ applied_at }) => applied_at);
    const at = nowSeconds();
    const note = sign(alice, { created_at: at });
    const article = sign(alice, { kind: 30_023, created_at: at, tags: [['d', 'x']] });
    const tags = [
      ['e', note.id],
      ['a', `30023:${alice.pubkey}:x`],
    ];
    await client.publish(sign(alice, { kind: 5, created_at: at, tags }));
    expect(await appliedAt(alice), 'nothing was there').toEqual([null, null]);
    await expectBlocked(client, note);
    const [first] = await appliedAt(alice);
    expect(first).toBeGreaterThanOrEqual(at * 1_000);
    expect(await appliedAt(alice)).toEqual([first, null]);
    await expectBlocked(client, article);
    await expectBlocked(client, note);
    const [again, second] = await appliedAt(alice);
    expect(again, 'the first time counts').toBe(first);
    expect(second).toBeGreaterThanOrEqual(first!);

    const wrap = sign(newAuthor(), { kind: 1_059, tags: [['p', bob.pubkey]] });
    await client.publish(sign(bob, { kind: 5, tags: [['e', wrap.id]] }));
    expect(await client.publish(wrap)).toEqual(BLOCKED);
    expect(await appliedAt(bob)).toEqual([expect.any(Number)]);
  });

  it('of a stranger has no effect, before or after', async () => {
    const note = sign(alice);
    await client.publish(sign(bob, { kind: 5, tags: [['e', note.id]] }));
    expect(await client.publish(note)).toEqual([true, '']);
    await client.publish(sign(bob, { kind: 5, tags: [['e', note.id]], content: 'again' }));
    expect(await served({ ids: [note.id] })).toEqual([note.id]);
  });

  it('for an address deletes the versions up to its own time, and none later', async () => {
    const at = nowSeconds() - 100;
    const d = 'a:b:c';
    const old = sign(alice, { kind: 30023, created_at: at, tags: [['d', d]] });
    await client.publish(old);
    await client.publish(
      sign(alice, { kind: 5, created_at: at, tags: [['a', `30023:${alice.pubkey}:${d}`]] }),
    );
    expect(await served({ authors: [alice.pubkey], kinds: [30023] })).toEqual([]);
    await expectBlocked(client, old);
    const newer = sign(alice, { kind: 30023, created_at: at + 1, tags: [['d', d]] });
    expect(await client.publish(newer)).toEqual([true, '']);
    expect(await served({ authors: [alice.pubkey], kinds: [30023] })).toEqual([newer.id]);
  });

  it('of the newest version does not bring an older one back, in any order', async () => {
    const at = nowSeconds() - 100;
    const first = sign(alice, { kind: 0, created_at: at });
    const second = sign(alice, { kind: 0, created_at: at + 1 });
    const request = sign(alice, { kind: 5, tags: [['e', second.id]] });
    await client.publish(first);
    await client.publish(request);
    await expectBlocked(client, second);
    expect(await served({ authors: [alice.pubkey], kinds: [0] })).toEqual([]);
    expect((await client.publish(first))[0]).toBe(true);
    expect(await served({ authors: [alice.pubkey], kinds: [0] })).toEqual([]);
  });

  it('cannot be deleted, also when its deletion arrived first', async () => {
    const note = sign(alice);
    const request = sign(alice, { kind: 5, tags: [['e', note.id]] });
    await client.publish(sign(alice, { kind: 5, tags: [['e', request.id]] }));
    expect(await client.publish(request)).toEqual([true, '']);
    expect(await served({ ids: [request.id] })).toEqual([request.id]);
  });

  it('lets the recipient delete a gift wrap', async () => {
    const wrap = sign(newAuthor(), { kind: 1059, tags: [['p', alice.pubkey]] });
    const recipient = await RawClient.connect(relay.url);
    await authenticate(recipient, alice, 'wss://relay.test');
    await client.publish(wrap);
    await client.publish(sign(bob, { kind: 5, tags: [['e', wrap.id]] }));
    expect((await recipient.query({ ids: [wrap.id] })).events).toEqual([wrap]);
    await client.publish(sign(alice, { kind: 5, tags: [['e', wrap.id]] }));
    expect((await recipient.query({ ids: [wrap.id] })).events).toEqual([]);
    await expectBlocked(client, wrap);
    await recipient.close();
  });
});

describe('expiration', () => {
  it('in the past refuses the event', async () => {
    const note = sign(alice, { tags: [['expiration', String(nowSeconds() - 1)]] });
    expect(await client.publish(note)).toEqual([false, 'invalid: expired']);
  });

  it('hides the event from its expiration on', async () => {
    const note = sign(alice, { tags: [['expiration', String(nowSeconds() + 2)]] });
    expect(await client.publish(note)).toEqual([true, '']);
    expect(await served({ ids: [note.id] })).toEqual([note.id]);
    await new Promise((resolve) => setTimeout(resolve, 2_100));
    expect(await served({ ids: [note.id] })).toEqual([]);
    expect(await served({ authors: [alice.pubkey] })).toEqual([]);
  });
});

describe('a request to vanish', () => {
  it('hides everything up to its time at once, and refuses it again', async () => {
    const at = nowSeconds() - 50;
    const note = sign(alice, { created_at: at, tags: [['t', 'x']] });
    const wrap = sign(newAuthor(), { kind: 1059, created_at: at, tags: [['p', alice.pubkey]] });
    const other = sign(bob, { created_at: at });
    for (const event of [note, wrap, other]) await client.publish(event);
    const request = sign(alice, { kind: 62, tags: [['relay', 'WSS://Relay.test']] });
    expect(await client.publish(request)).toEqual([true, '']);
    expect(await served({ ids: [note.id, wrap.id, other.id, request.id] })).toEqual([other.id]);
    expect(await served({ authors: [alice.pubkey] })).toEqual([]);
    expect(await client.publish(note)).toEqual([false, 'blocked: its author asked to vanish']);
    expect(await client.publish(sign(alice, { created_at: nowSeconds() + 5 }))).toEqual([true, '']);
  });

  it.each(['this instance', 'another instance'])(
    'prevents live delivery of events just before it on %s',
    async (where) => {
      const other = await startTestNode({ on: relay.test });
      const reader = await RawClient.connect(where === 'this instance' ? relay.url : other.url);
      reader.send(['REQ', 'live', { authors: [alice.pubkey], limit: 0 }]);
      await reader.waitFor((frame) => frame[0] === 'EOSE');
      const note = sign(alice, { created_at: nowSeconds() - 50 });
      const mark = sign(alice, { kind: 62, created_at: nowSeconds() - 10, tags: [['relay', 'ALL_RELAYS']] });
      const later = sign(alice, { content: 'later' });
      // One batch: a reader that sees the event can see the mark.
      const outcomes = [note, mark, later].map((event) =>
        relay.node.store.submit({ community: 1, event, payload: JSON.stringify(event) }),
      );
      expect(await Promise.all(outcomes)).toEqual(['stored', 'stored', 'stored']);
      await reader.waitFor((frame) => frame[0] === 'EVENT');
      const got = reader.frames.filter((frame) => frame[0] === 'EVENT').map((frame) => frame[2]);
      expect(got).toEqual([later]);
      await reader.close();
      await other.close();
    },
  );

  it('that names another relay is refused', async () => {
    const [accepted] = await client.publish(
      sign(alice, { kind: 62, tags: [['relay', 'wss://elsewhere.test']] }),
    );
    expect(accepted).toBe(false);
  });
});

describe('deletion.mode=physical', () => {
  it('leaves no row with the content in any order, and the target stays refused', () =>
    withSettings({ 'deletion.mode': 'physical' }, async (node, own) => {
      const secret = `secret-${alice.pubkey}`;
      const stored = sign(alice, { content: `${secret} 1`, tags: [['t', 'sea']] });
      const article = sign(alice, { kind: 30023, content: `${secret} 2`, tags: [['d', 'x']] });
      const together = sign(alice, { content: `${secret} 3` });
      for (const event of [stored, article]) expect(await own.publish(event)).toEqual([true, '']);
      expect(await rowsWith(node.database, secret)).toBe(2);
      const request = deletionOf(alice, stored, together);
      own.send(['EVENT', together]);
      expect(await own.publish(request)).toEqual([true, '']);
      await own.publish(sign(alice, { kind: 5, tags: [['a', `30023:${alice.pubkey}:x`]] }));
      for (const event of [stored, article, together]) await expectBlocked(own, event);
      expect(await rowsWith(node.database, secret)).toBe(0);
      const { events } = await own.query({ authors: [alice.pubkey] });
      expect(events.map((event) => event.id)).toContain(request.id);
      expect(events).toHaveLength(2);
    }));
});

describe('deletion.targetsPerDayMax', () => {
  it('refuses a request beyond it with its name, and changes nothing', () =>
    withSettings({ 'deletion.targetsPerDayMax': 3 }, async (node, own) => {
      const notes = Array.from({ length: 5 }, (_, at) => sign(alice, { content: `${at}` }));
      for (const note of notes) await own.publish(note);
      expect(await own.publish(deletionOf(alice, ...notes.slice(0, 2)))).toEqual([true, '']);
      const beyond = deletionOf(alice, ...notes.slice(2, 4));
      expect(await own.publish(beyond)).toEqual([false, 'rate-limited: too many deletions today']);
      const left = async () => (await own.query({ kinds: [1] })).events.map((event) => event.id).sort();
      expect(await left()).toEqual(
        notes
          .slice(2)
          .map((note) => note.id)
          .sort(),
      );
      expect((await own.query({ ids: [beyond.id] })).events).toEqual([]);
      const { rows } = await node.database.pool.query('SELECT count(*) AS count FROM deletion_tombstones');
      expect(rows).toEqual([{ count: 2 }]);
      expect((await own.publish(notes[2]!))[1]).toMatch(/^duplicate/);
      // One is left for today; another author has the full number.
      expect(await own.publish(deletionOf(alice, notes[4]!))).toEqual([true, '']);
      expect(await own.publish(deletionOf(bob, ...notes.slice(2, 4)))).toEqual([true, '']);
      expect((await left()).length).toBe(2);
    }));
});

describe('the count of targets', () => {
  it('includes all events that a request names, also events of others', () =>
    withSettings({ 'deletion.targetsPerDayMax': 3 }, async (node, own) => {
      const foreign = [sign(bob, { content: '1' }), sign(bob, { content: '2' })];
      for (const event of foreign) await own.publish(event);
      expect(await own.publish(deletionOf(alice, ...foreign))).toEqual([true, '']);
      const { rows } = await node.database.pool.query('SELECT targets FROM deletion_quotas');
      expect(rows).toEqual([{ targets: 2 }]);
      const refused = [false, 'rate-limited: too many deletions today'];
      expect(await own.publish(deletionOf(alice, sign(alice), sign(bob)))).toEqual(refused);
      expect(await own.publish(deletionOf(alice, sign(alice)))).toEqual([true, '']);
    }));

  it('has one for a request without a target, which is kept for ever as well', () =>
    withSettings({ 'deletion.targetsPerDayMax': 2 }, async (_, own) => {
      for (const content of ['1', '2'])
        expect(await own.publish(sign(alice, { kind: 5, content }))).toEqual([true, '']);
      const refused = [false, 'rate-limited: too many deletions today'];
      expect(await own.publish(sign(alice, { kind: 5, content: '3' }))).toEqual(refused);
    }));
});

describe('a store that fails', () => {
  it('answers OK false, and no part of the request is applied', async () => {
    const { pool } = relay.database;
    const notes = [sign(alice, { content: '1' }), sign(alice, { content: '2' })];
    for (const note of notes) await client.publish(note);
    const ids = notes.map((note) => note.id).sort();
    await pool.query(`CREATE FUNCTION fail_tombstones() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '22000'; END $$`);
    await pool.query(`CREATE TRIGGER fail BEFORE INSERT ON deletion_tombstones
      FOR EACH STATEMENT EXECUTE FUNCTION fail_tombstones()`);
    const request = deletionOf(alice, ...notes);
    const state = () =>
      pool.query('SELECT (SELECT last_seq FROM lane_state), (SELECT count(*) FROM event_dedupe)');
    const before = (await state()).rows;
    try {
      expect(await client.publish(request)).toEqual([false, 'error: failed to store event']);
      expect((await served({ authors: [alice.pubkey] })).sort()).toEqual(ids);
      expect((await state()).rows).toEqual(before);
      expect(await client.publish(sign(bob))).toEqual([true, '']);
    } finally {
      await pool.query('DROP TRIGGER fail ON deletion_tombstones; DROP FUNCTION fail_tombstones');
    }
    expect(await client.publish(request)).toEqual([true, '']);
    expect(await served({ authors: [alice.pubkey] })).toEqual([request.id]);
  });
});

describe('a thousand targets', () => {
  it('in one request are all deleted, with the default settings', () =>
    withSettings({}, async (_, own) => {
      const notes = Array.from({ length: 1_000 }, (__, at) => sign(alice, { content: `${at}` }));
      for (const note of notes) own.send(['EVENT', note]);
      await own.until(() => own.frames.filter((frame) => frame[0] === 'OK').length === 1_000, 60_000);
      const stays = sign(alice, { content: 'stays' });
      await own.publish(stays);
      const tags = notes.map(({ id }) => ['e', id, 'wss://relay.test/']);
      expect(await own.publish(sign(alice, { kind: 5, tags }))).toEqual([true, '']);
      expect((await own.query({ authors: [alice.pubkey], kinds: [1] })).events).toEqual([stays]);
      await expectBlocked(own, notes[999]!);
    }));

  it('cost as many statements as two', async () => {
    const store = await openTestStore();
    const texts: string[] = [];
    const counting: Database = {
      ...store.database,
      connect: async (options) => {
        const session = await store.database.connect(options);
        const query = session.query.bind(session) as (...args: unknown[]) => unknown;
        const counted = (...args: unknown[]): unknown => {
          texts.push(typeof args[0] === 'string' ? args[0] : (args[0] as { text: string }).text);
          return query(...args);
        };
        return Object.assign(session, { query: counted });
      },
    };
    const lane = store.lane({ database: counting });
    const submit = (event: ReturnType<typeof sign>) =>
      lane.submit({ community: 1, event, payload: JSON.stringify(event) });
    const statementsFor = async (count: number): Promise<number> => {
      const author = newAuthor();
      const notes = Array.from({ length: count / 2 }, (_, at) => sign(author, { content: `${at}` }));
      const articles = Array.from({ length: count / 2 }, (_, at) =>
        sign(author, { kind: 30023, tags: [['d', `${at}`]] }),
      );
      await Promise.all([...notes, ...articles].map(submit));
      const tags = [
        ...notes.map(({ id }) => ['e', id]),
        ...articles.map((_, at) => ['a', `30023:${author.pubkey}:${at}`]),
      ];
      texts.length = 0;
      expect(await submit(sign(author, { kind: 5, tags }))).toBe('stored');
      const spent = texts.length;
      const { rows } = await store.database.pool.query<{ served: number; hidden: number }>(
        `SELECT count(*) FILTER (WHERE hidden IS NULL) AS served, count(*) FILTER (WHERE hidden = 2) AS hidden
         FROM events WHERE pubkey = $1`,
        [Buffer.from(author.pubkey, 'hex')],
      );
      expect(rows[0]).toEqual({ served: 1, hidden: count });
      return spent;
    };
    const forTwo = await statementsFor(2);
    expect(forTwo).toBeGreaterThan(3);
    expect(await statementsFor(1_000)).toBe(forTwo);
    await store.close();
  });
});
