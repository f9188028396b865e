/**
 * Clients that come back (docs/cursors.md), over sockets: the first cursor, changes in commit order, then
 * live ones, each once (I10); cursors that this relay cannot continue; and the hints of NIP-67.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { runJob } from '../../src/jobs/run.js';
import { trimOutboxRows } from '../../src/outbox/jobs.js';
import { eventually } from '../support/cli.js';
import { type Frame, RawClient } from '../support/clients/client.js';
import { Follower, SUB } from '../support/clients/follower.js';
import { jobContext } from '../support/domains/erasure.js';
import { type Author, newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const AGAIN = 'begin again with "cursor": ""';
const UNKNOWN = `invalid: this relay does not know the cursor; ${AGAIN}`;
const OTHER = `invalid: the cursor is of another query, or what you may see has changed; ${AGAIN}`;
const LOST = `error: changes after the cursor are no longer kept; ${AGAIN}`;

let relay: TestNode;
let writer: RawClient;
const open: Follower[] = [];

beforeAll(async () => {
  relay = await startTestNode({ jobs: [] });
  writer = await RawClient.connect(relay.url);
});
afterEach(async () => {
  for (const follower of open.splice(0)) await follower.leave();
});
afterAll(async () => {
  await writer.close();
  await relay.close();
});

const publish = async (author: Author, draft: Parameters<typeof sign>[1] = {}, by = writer) => {
  const event = sign(author, draft);
  expect(await by.publish(event)).toEqual([true, '']);
  return event;
};
const deleteOf = (author: Author, ...ids: string[]) =>
  publish(author, { kind: 5, tags: ids.map((id) => ['e', id]) });

function follow(...filters: object[]): Follower {
  const follower = new Follower(filters);
  open.push(follower);
  return follower;
}
/** Verb and id of what came, without EOSE. */
const shown = (frames: readonly Frame[]) =>
  frames
    .filter(([verb]) => verb !== 'EOSE')
    .map(([verb, , about]) => `${verb} ${(about as { id?: string }).id ?? String(about)}`);
const cursorOf = (frame: Frame | undefined) => frame?.[3];

async function arrives(follower: Follower, count: number): Promise<Frame[]> {
  const frames: Frame[] = [];
  await follower.client!.until(() => {
    frames.push(...follower.apply());
    return frames.length >= count;
  });
  return frames;
}

describe('an empty cursor', () => {
  it('gives stored events as usual, and EOSE carries the cursor to save', async () => {
    const author = newAuthor();
    const old = await publish(author, { created_at: nowSeconds() - 10 });
    const young = await publish(author);
    const follower = follow({ authors: [author.pubkey] });
    const end = await follower.connect(relay.url);
    expect(end).toEqual(['EOSE', SUB, ['finish'], expect.stringMatching(/^c1\./)]);
    const frames = follower.client!.frames;
    expect(shown(frames)).toEqual([`EVENT ${young.id}`, `EVENT ${old.id}`]);
    expect(frames.slice(0, 2).map(cursorOf)).toEqual([undefined, undefined]);
  });

  it('then gives new events and deletions, each with its cursor', async () => {
    const author = newAuthor();
    const first = await publish(author);
    const follower = follow({ authors: [author.pubkey], kinds: [1] });
    await follower.connect(relay.url);
    const second = await publish(author);
    await deleteOf(author, first.id);
    const frames = await arrives(follower, 2);
    expect(frames).toEqual([
      ['EVENT', SUB, second, expect.stringMatching(/^c1\./)],
      ['GONE', SUB, first.id, expect.stringMatching(/^c1\./)],
    ]);
    expect([...follower.held.keys()]).toEqual([second.id]);
  });

  it('with limit 0 gives the cursor of now and no stored event', async () => {
    const author = newAuthor();
    await publish(author);
    const follower = follow({ authors: [author.pubkey], limit: 0 });
    expect(await follower.connect(relay.url)).toEqual(['EOSE', SUB, [], expect.any(String)]);
    await follower.leave();
    const next = await publish(author);
    await follower.connect(relay.url);
    expect([...follower.held.keys()]).toEqual([next.id]);
  });
});

describe('a client without a cursor', () => {
  it('sees nothing new: no GONE, and events of three elements', async () => {
    const author = newAuthor();
    const first = await publish(author);
    const client = await RawClient.connect(relay.url);
    const follower = follow({ authors: [author.pubkey], kinds: [1] });
    await follower.connect(relay.url);
    client.send(['REQ', 'plain', { authors: [author.pubkey], kinds: [1] }]);
    await client.waitFor(([verb]) => verb === 'EOSE');
    await deleteOf(author, first.id);
    const last = await publish(author);
    await client.waitFor((frame) => frame[0] === 'EVENT' && (frame[2] as { id: string }).id === last.id);
    await arrives(follower, 2);
    expect(client.frames).toEqual([
      ['EVENT', 'plain', first],
      ['EOSE', 'plain'],
      ['EVENT', 'plain', last],
    ]);
    await client.close();
  });
});

describe('a client that comes back', () => {
  it('gets what it missed in commit order, whatever the times of the events, then live ones', async () => {
    const author = newAuthor();
    const kept = await publish(author);
    const profile = await publish(author, { kind: 0, created_at: nowSeconds() - 50 });
    const follower = follow({ authors: [author.pubkey], kinds: [0, 1] });
    await follower.connect(relay.url);
    await follower.leave();
    const late = await publish(author, { created_at: nowSeconds() - 1_000 });
    await deleteOf(author, kept.id);
    const next = await publish(author, { kind: 0 });
    const end = await follower.connect(relay.url);
    expect(end).toEqual(['EOSE', SUB, ['finish'], expect.any(String)]);
    expect(shown(follower.client!.frames)).toEqual([
      `EVENT ${late.id}`,
      `GONE ${kept.id}`,
      `GONE ${profile.id}`,
      `EVENT ${next.id}`,
    ]);
    const live = await publish(author);
    expect(shown(await arrives(follower, 1))).toEqual([`EVENT ${live.id}`]);
  });

  it('gets nothing again when nothing has changed', async () => {
    const author = newAuthor();
    await publish(author);
    const follower = follow({ authors: [author.pubkey] });
    await follower.connect(relay.url);
    for (let times = 0; times < 3; times += 1) {
      await follower.leave();
      await follower.connect(relay.url);
      expect(follower.client!.frames.map(([verb]) => verb)).toEqual(['EOSE']);
    }
  });

  it('does not hear of events that came and were deleted while it was away', async () => {
    const author = newAuthor();
    const follower = follow({ authors: [author.pubkey], kinds: [1, 0] });
    await follower.connect(relay.url);
    await follower.leave();
    const short = await publish(author);
    await deleteOf(author, short.id);
    await publish(author, { kind: 0, created_at: nowSeconds() - 5 });
    const profile = await publish(author, { kind: 0 });
    await follower.connect(relay.url);
    expect(shown(follower.client!.frames)).toEqual([`EVENT ${profile.id}`]);
  });

  it('can continue from the cursor of any frame', async () => {
    const author = newAuthor();
    const follower = follow({ authors: [author.pubkey], kinds: [1] });
    await follower.connect(relay.url);
    const notes: { id: string }[] = [];
    for (let at = 0; at < 4; at += 1) notes.push(await publish(author));
    await deleteOf(author, notes[1]!.id);
    await publish(author);
    const frames = await arrives(follower, 6);
    for (const [at, frame] of frames.entries()) {
      const returning = follow({ authors: [author.pubkey], kinds: [1] });
      returning.cursor = String(cursorOf(frame));
      await returning.connect(relay.url);
      // What was deleted since is not sent again, nor announced to one that has not received it.
      const rest = frames.slice(at + 1);
      const isPast = ([verb, , about]: Frame) =>
        verb === 'EVENT' ? (about as { id: string }).id === notes[1]!.id : at < 1;
      expect(shown(returning.client!.frames)).toEqual(shown(rest.filter((each) => !isPast(each))));
    }
  });

  it('gets each event once by several filters, and the filters may come in another order', async () => {
    const author = newAuthor();
    const [byAuthor, byTopic] = [{ authors: [author.pubkey] }, { '#t': ['several'] }];
    const follower = follow(byAuthor, byTopic);
    await follower.connect(relay.url);
    await follower.leave();
    const both = await publish(author, { tags: [['t', 'several']] });
    const other = await publish(newAuthor(), { tags: [['t', 'several']] });
    const returning = follow(byTopic, byAuthor);
    returning.cursor = follower.cursor;
    await returning.connect(relay.url);
    expect(shown(returning.client!.frames)).toEqual([`EVENT ${both.id}`, `EVENT ${other.id}`]);
  });

  it('after more changes than fit into a page, of several communities, gets all of its own', async () => {
    const [author, noise] = [newAuthor(), newAuthor()];
    const busy = await addCommunity(relay.database.pool, 'busy', undefined, Date.now());
    await writeSetting(relay.database.pool, busy, 'topic.mode', 'open', Date.now());
    const modeOf = () => relay.node.communities.get(busy)?.settings['topic.mode'];
    await eventually('the other community', () => modeOf() === 'open' || undefined);
    const follower = follow({ authors: [author.pubkey] });
    await follower.connect(relay.url);
    await follower.leave();
    const inBusy = await RawClient.connect(`${relay.url}/c/busy`);
    const accepted = () => [writer, inBusy].flatMap(({ frames }) => frames.filter(([verb]) => verb === 'OK'));
    const before = accepted().length;
    const mine: string[] = [];
    for (let at = 0; at < 1_200; at += 1) {
      const event = sign(at % 3 === 0 ? author : noise);
      (at % 3 === 2 ? inBusy : writer).send(['EVENT', event]);
      if (at % 3 === 0) mine.push(event.id);
    }
    await eventually('all are stored', () => accepted().length === before + 1_200 || undefined);
    expect(accepted().every((frame) => frame[2])).toBe(true);
    await follower.connect(relay.url);
    expect([...follower.held.keys()].sort()).toEqual([...mine].sort());
    expect(follower.doubles).toBe(0);
    await inBusy.close();
  });

  it('that read too slowly continues where it was', async () => {
    const author = newAuthor();
    const follower = follow({ authors: [author.pubkey] });
    await follower.connect(relay.url);
    const content = 'x'.repeat(60_000);
    follower.client!.ws.pause();
    const accepted = () => writer.frames.filter(([verb]) => verb === 'OK').length;
    const from = accepted();
    const sent: string[] = [];
    for (let at = 0; at < 400; at += 1) {
      const event = sign(author, { content: `${at}${content}` });
      writer.send(['EVENT', event]);
      sent.push(event.id);
    }
    await eventually('all are stored', () => accepted() === from + sent.length || undefined);
    follower.client!.ws.resume();
    await eventually('it is closed, or has read everything', () => {
      follower.apply();
      return follower.client!.closed !== undefined || follower.held.size === sent.length || undefined;
    });
    const before = follower.held.size;
    await follower.leave();
    await follower.connect(relay.url);
    expect([...follower.held.keys()].sort()).toEqual([...sent].sort());
    expect(before).toBeLessThan(sent.length);
  });
});

describe('a cursor that cannot be continued', () => {
  const filter = { kinds: [1] };
  async function given(by: object = filter): Promise<string> {
    const follower = follow(by);
    await follower.connect(relay.url);
    return follower.cursor;
  }
  const refused = async (
    cursor: unknown,
    by: object = filter,
    url = relay.url,
  ): Promise<string | undefined> => {
    const client = await RawClient.connect(url);
    const { closed, events } = await client.query({ ...by, cursor });
    expect(events).toEqual([]);
    await client.close();
    return closed;
  };

  it('because it is forged or malformed, is refused', async () => {
    const cursor = await given();
    const [version, sealed, query] = cursor.split('.');
    for (const forged of [
      'x',
      'c1..',
      `c2.${sealed}.${query}`,
      `${version}.${sealed!.slice(0, -4)}AAAA.${query}`,
      `${cursor}.x`,
      '0',
    ])
      expect(await refused(forged), forged).toBe(UNKNOWN);
    for (const odd of [3, null, ['x'], 'x'.repeat(257)])
      expect(await refused(odd)).toBe('invalid: cursor must be a string of at most 256 characters');
  });

  it('because it is of another community or node, is refused', async () => {
    // A kind that needs no topic, because a new community requires topics.
    const profiles = { kinds: [0] };
    const cursor = await given(profiles);
    await addCommunity(relay.database.pool, 'harbour', undefined, Date.now());
    await eventually('the community', () => relay.node.communities.find(undefined, 'harbour') && true);
    expect(await refused(cursor, profiles, `${relay.url}/c/harbour`)).toBe(UNKNOWN);
    const elsewhere = await startTestNode({ jobs: [] });
    expect(await refused(cursor, profiles, elsewhere.url)).toBe(UNKNOWN);
    await elsewhere.close();
  });

  it('because it is of other filters, is refused; another limit is the same query', async () => {
    const cursor = await given();
    expect(await refused(cursor, { kinds: [7] })).toBe(OTHER);
    expect(await refused(cursor, { ...filter, since: 1 })).toBe(OTHER);
    expect(await refused(cursor, { ...filter, limit: 3 })).toBeUndefined();
  });

  it('in COUNT, in a search, or twice in one REQ, is refused', async () => {
    const client = await RawClient.connect(relay.url);
    client.send(['COUNT', 'n', { ...filter, cursor: '' }]);
    expect(await client.waitFor(([verb]) => verb === 'CLOSED')).toEqual([
      'CLOSED',
      'n',
      'unsupported: filter field "cursor"',
    ]);
    expect((await client.query({ search: 'boats', cursor: '' })).closed).toBe(
      'unsupported: cursor together with search',
    );
    expect((await client.query({ ...filter, cursor: '' }, { kinds: [7], cursor: 'x' })).closed).toBe(
      'invalid: all filters of a REQ must have the same cursor',
    );
    await client.close();
  });
});

describe('on a node of its own', () => {
  let aheadMs = 0;
  const now = () => Date.now() + aheadMs;
  let own: TestNode;
  let client: RawClient;

  beforeAll(async () => {
    own = await startTestNode({ now, jobs: [] });
    client = await RawClient.connect(own.url);
  });
  afterAll(async () => {
    await client.close();
    await own.close();
  });

  const trim = () => runJob(trimOutboxRows, jobContext(own, { now }));
  const post = (author: Author, draft = {}) => publish(author, draft, client);

  it('an empty database gives a cursor that works', async () => {
    const author = newAuthor();
    const follower = follow({ authors: [author.pubkey] });
    await follower.connect(own.url);
    await follower.leave();
    const first = await post(author);
    await follower.connect(own.url);
    expect([...follower.held.keys()]).toEqual([first.id]);
  });

  it('a cursor older than the outbox is refused, one at its end is not; a new one has the view', async () => {
    const author = newAuthor();
    const old = await post(author);
    const [behind, atEnd] = [follow({ authors: [author.pubkey] }), follow({ authors: [author.pubkey] })];
    await behind.connect(own.url);
    await behind.leave();
    await post(author);
    await post(author);
    // Given when everything is already old: the outbox ends right there.
    aheadMs = 31 * DAY_MS;
    await atEnd.connect(own.url);
    await atEnd.leave();
    await trim();
    await atEnd.connect(own.url);
    expect(atEnd.isClosed).toBe(false);
    await atEnd.leave();
    const next = sign(author, { created_at: Math.floor(now() / 1_000) });
    expect(await client.publish(next)).toEqual([true, '']);
    expect(await behind.connect(own.url)).toEqual(['CLOSED', SUB, LOST]);
    await behind.beginAgain();
    expect(behind.held.has(next.id)).toBe(true);
    expect(behind.held.has(old.id)).toBe(false);
    await atEnd.connect(own.url);
    expect(shown(atEnd.client!.frames)).toEqual([`EVENT ${next.id}`]);
  });

  it('cursors from after a restored backup are refused, also when positions repeat', async () => {
    const author = newAuthor();
    const newEvent = () => sign(author, { created_at: Math.floor(now() / 1_000) });
    const stored = newEvent();
    await client.publish(stored);
    const [before, after] = [follow({ authors: [author.pubkey] }), follow({ authors: [author.pubkey] })];
    await before.connect(own.url);
    await before.leave();
    const { rows } = await own.database.pool.query<{ last_seq: number }>('SELECT last_seq FROM lane_state');
    const backup = rows[0]!.last_seq;
    for (let times = 0; times < 3; times += 1) await client.publish(newEvent());
    await after.connect(own.url);
    await after.leave();

    // The state of the backup, as a restore brings it.
    const again = own.test;
    await client.close();
    await own.node.close();
    for (const table of ['events_outbox', 'events', 'event_dedupe', 'event_tags'])
      await own.database.pool.query(`DELETE FROM ${table} WHERE seq > $1`, [backup]);
    await own.database.pool.query('UPDATE lane_state SET last_seq = $1', [backup]);
    const restored = await startTestNode({ on: again, now, jobs: [] });
    client = await RawClient.connect(restored.url);
    try {
      expect(await after.connect(restored.url)).toEqual(['CLOSED', SUB, LOST]);
      await after.client!.close();
      const other = Array.from({ length: 5 }, newEvent);
      for (const event of other) expect(await client.publish(event)).toEqual([true, '']);
      expect(await after.connect(restored.url)).toEqual(['CLOSED', SUB, LOST]);
      await after.beginAgain();
      const view = [stored, ...other].map(({ id }) => id).sort();
      expect([...after.held.keys()].sort()).toEqual(view);
      await before.connect(restored.url);
      expect(before.isClosed).toBe(false);
      expect([...before.held.keys()].sort()).toEqual(view);
      await before.leave();
      await after.leave();
    } finally {
      await client.close();
      await restored.close();
      own = await startTestNode({ on: again, now, jobs: [] });
      client = await RawClient.connect(own.url);
    }
  });
});

describe('EOSE says whether more is stored (NIP-67)', () => {
  const hintOf = async (...filters: object[]): Promise<unknown> => {
    const client = await RawClient.connect(relay.url);
    client.send(['REQ', 'hint', ...filters]);
    const end = await client.waitFor(([verb]) => verb === 'EOSE');
    await client.close();
    return end[2];
  };

  it('finish where all were sent, to clients with a cursor, and nothing where it cannot say', async () => {
    const author = newAuthor();
    const by = { authors: [author.pubkey], cursor: '' };
    const events = [];
    for (let at = 0; at < 4; at += 1) events.push(await publish(author));
    await publish(author, { kind: 0 });
    expect(await hintOf(by)).toEqual(['finish']);
    expect(await hintOf({ ...by, limit: 6 })).toEqual(['finish']);
    expect(await hintOf({ ...by, limit: 5 })).toEqual([]);
    expect(await hintOf({ ...by, limit: 2 })).toEqual([]);
    expect(await hintOf({ ...by, kinds: [0], limit: 1 })).toEqual(['finish']);
    // Without a cursor it is not sent: some clients take it for a malformed EOSE.
    expect(await hintOf({ authors: by.authors })).toBeUndefined();
    expect(await hintOf({ ids: [events[0]!.id], limit: 1 })).toBeUndefined();
  });

  it('more only if an event is left out that no other filter has brought', async () => {
    const author = newAuthor();
    const by = { authors: [author.pubkey] };
    const community = relay.node.communities.find(undefined, undefined)!;
    await writeSetting(relay.database.pool, community.id, 'limits.limitDefault', 3, Date.now());
    const limit = () => relay.node.communities.get(community.id)!.settings['limits.limitDefault'];
    await eventually('the limit', () => limit() === 3 || undefined);
    const events = [];
    for (let at = 0; at < 3; at += 1) events.push(await publish(author, { created_at: nowSeconds() - at }));
    expect(await hintOf(by)).toBeUndefined();
    const oldest = await publish(author, { created_at: nowSeconds() - 100 });
    expect(await hintOf(by)).toEqual(['more']);
    expect(await hintOf(by, { ids: [oldest.id] })).toBeUndefined();
    await writeSetting(relay.database.pool, community.id, 'limits.limitDefault', 500, Date.now());
    await eventually('the limit', () => limit() === 500 || undefined);
  });
});

it('NIP-11 names the extension and NIP-67', async () => {
  const answer = await fetch(relay.http, { headers: { accept: 'application/nostr+json' } });
  const document = (await answer.json()) as { supported_nips: number[]; cursor: unknown };
  expect(document.supported_nips).toContain(67);
  expect(document.cursor).toEqual({ version: 1, days: 30 });
});
