/**
 * I10: a subscription gets each matching event exactly once, with no gap and no double between stored and
 * live. Two nodes are written to all the time while subscriptions come and go; the second node reads through
 * a proxy that holds back its queries or their answers, so that events overtake the query and the query
 * overtakes the events.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { VerifiedEvent } from 'nostr-tools/pure';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type NostrEvent, serializeEvent } from '../../src/events/rules/event.js';
import type { Submission } from '../../src/events/rules/facts.js';
import { parseFilters } from '../../src/events/rules/filter.js';
import { isRefusal } from '../../src/events/rules/reply.js';
import type { LiveReader } from '../../src/relay/fanout.js';
import { type Frame, RawClient } from '../support/clients/client.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode, useWindow } from '../support/node.js';
import { FaultProxy, type Message } from '../support/servers/fault-proxy.js';

const TOPICS = ['sea', 'sky', 'land', 'fire'];
const KINDS = [1, 7, 1_111];
const EVENTS_PER_WRITER = 700;
/** The writers wait for the readers where those are slow: a third of these subscriptions stays open. */
const SUBSCRIPTIONS_LEAST = 90;
const authors = Array.from({ length: 3 }, newAuthor);
const start = nowSeconds() - 10_000;

interface Filter {
  kinds?: number[];
  authors?: string[];
  '#t'?: string[];
  since?: number;
  limit?: number;
}

/** What a filter means, without index, SQL or cache. */
function matches(filter: Filter, event: NostrEvent): boolean {
  const topics = event.tags.filter(([name]) => name === 't').map(([, value]) => value!);
  return (
    (filter.kinds?.includes(event.kind) ?? true) &&
    (filter.authors?.includes(event.pubkey) ?? true) &&
    (filter['#t']?.some((topic) => topics.includes(topic)) ?? true) &&
    event.created_at >= (filter.since ?? 0)
  );
}

/** Every way in which the store walks, each with an answer that fits its limit. */
const SHAPES: Filter[][] = [
  [{ limit: 5_000 }],
  [{ kinds: [1], limit: 5_000 }],
  [{ '#t': ['sea'], limit: 5_000 }],
  [{ '#t': ['sea', 'sky'], kinds: [7, 1_111], limit: 5_000 }],
  [{ authors: [authors[0]!.pubkey], limit: 5_000 }],
  [{ authors: [authors[1]!.pubkey, authors[2]!.pubkey], kinds: [1, 7], limit: 5_000 }],
  [{ since: start + 300, limit: 5_000 }],
  // Several filters that overlap.
  [
    { kinds: [1], limit: 5_000 },
    { '#t': ['sea'], limit: 5_000 },
    { authors: [authors[0]!.pubkey], limit: 5_000 },
  ],
  // Only what is new.
  [{ limit: 0 }],
  [
    { '#t': ['land'], limit: 0 },
    { kinds: [7], limit: 0 },
  ],
  // The newest few and then what is new.
  [{ limit: 40 }],
  [{ '#t': ['fire'], limit: 30 }],
];

interface Watched {
  readonly client: RawClient;
  readonly id: string;
  readonly filters: Filter[];
  open: boolean;
}

const eventsOf = ({ client, id }: Watched) =>
  client.frames
    .filter((frame) => frame[0] === 'EVENT' && frame[1] === id)
    .map((frame) => frame[2] as NostrEvent);

function storedPart({ client, id }: Watched): NostrEvent[] {
  const mine = client.frames.filter(
    (frame) => (frame[0] === 'EVENT' || frame[0] === 'EOSE') && frame[1] === id,
  );
  const end = mine.findIndex((frame) => frame[0] === 'EOSE');
  return mine.slice(0, end === -1 ? mine.length : end).map((frame) => frame[2] as NostrEvent);
}

/** So many that slices end amid their events, between which subscriptions come and go. */
const CROWD = 300;
const NOTE_MS = 0.002;

/** Readers of everything, beside whom the clients' subscriptions are. */
function addCrowd({ node }: TestNode): void {
  const everything = parseFilters([{}], { 'limits.filterValuesMax': 10, 'limits.filtersMax': 1 });
  if (isRefusal(everything)) throw new Error('a wrong filter');
  const index = node.fanout.index(1);
  for (let count = 0; count < CROWD; count++) {
    const reader: LiveReader = { deliver: () => NOTE_MS };
    index.add(reader, everything);
  }
}

const isEose = (id: string) => (frame: Frame) => frame[0] === 'EOSE' && frame[1] === id;

/**
 * Where answers come from, the budget of memory for that, the statements of the second node that are held
 * back, at least how many, and who causes them.
 */
const WAYS = [
  { from: 'memory', megabytes: 256, statement: /^\0outbox\0/, share: 1, least: 5, by: 'writers' },
  // A pooled statement's name begins with q: the queries of REQs. The reader of the outbox is left alone.
  { from: 'the database', megabytes: 0, statement: /^\0q\d+\0/, share: 0.5, least: 20, by: 'readers' },
];

describe.each(WAYS)('answers from $from', ({ megabytes, statement, share, least, by }) => {
  let first: TestNode;
  let second: TestNode;
  let proxy: FaultProxy;

  beforeAll(async () => {
    first = await startTestNode();
    proxy = await FaultProxy.start(first.test.connection);
    second = await startTestNode({ on: { ...first.test, connection: proxy.connection } });
    for (const node of [first, second]) {
      await useWindow(node, megabytes);
      addCrowd(node);
    }
  });
  afterAll(async () => {
    await second.close();
    await proxy.stop();
    await first.close();
  });

  describe('while two nodes are written to all the time', () => {
    it('every subscription gets each matching event once, whenever it was opened', async () => {
      const random = seeded(7_447);
      const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
      const make = (place: number): VerifiedEvent =>
        sign(pick(authors), {
          kind: pick(KINDS),
          created_at: start + place,
          content: `${place}`,
          tags: [...new Set([pick(TOPICS), pick(TOPICS)])].map((topic) => ['t', topic]),
        });
      const plans = [0, 1].map((writer) =>
        Array.from({ length: EVENTS_PER_WRITER }, (_, place) => make(place * 2 + writer)),
      );

      const isHeldBack = ({ type, body }: Message) =>
        type === 'B' && statement.test(body.toString('latin1', 0, 8)) && random() < share;
      let heldBack = 0;
      void proxy.when(
        isHeldBack,
        () => {
          heldBack += 1;
          return random() < 0.5 ? { kind: 'delay', ms: 120 } : { kind: 'delay-answer', ms: 120 };
        },
        Number.POSITIVE_INFINITY,
      );

      const nodes = [first, second];
      const writers = await Promise.all(nodes.map((node) => RawClient.connect(node.url)));
      const readers = await Promise.all(
        [...nodes, ...nodes, ...nodes].map((node) => RawClient.connect(node.url)),
      );
      let writing = true;

      const watched: Watched[] = [];
      const haveReadersDone = (part: number) =>
        watched.length >= SUBSCRIPTIONS_LEAST * part && (by !== 'readers' || heldBack > least * part);
      const write = async (writer: RawClient, events: VerifiedEvent[]) => {
        for (let at = 0; at < events.length; at += 8) {
          for (const event of events.slice(at, at + 8)) writer.send(['EVENT', event]);
          do await delay(20);
          while (!haveReadersDone(at / events.length));
        }
        await writer.until(
          () => writer.frames.filter((frame) => frame[0] === 'OK').length === events.length,
          30_000,
        );
        expect(writer.frames.every((frame) => frame[2] === true && frame[3] === '')).toBe(true);
      };

      const read = async (client: RawClient, number: number) => {
        for (let round = 0; writing; round++) {
          const sub: Watched = {
            client,
            id: `s${number}-${round}`,
            filters: SHAPES[(number * 5 + round) % SHAPES.length]!,
            open: true,
          };
          watched.push(sub);
          const from = client.frames.length;
          client.send(['REQ', sub.id, ...sub.filters]);
          // Some are closed while they load, some soon after, some stay.
          const fate = round % 3;
          if (fate === 0) await delay(random() * 60);
          else await client.waitFor(isEose(sub.id), from, 30_000);
          if (fate === 1) await delay(random() * 150);
          if (fate === 2 && round < 45) continue;
          client.send(['CLOSE', sub.id]);
          sub.open = false;
        }
      };

      const reading = Promise.all(readers.map(read));
      await Promise.all(writers.map((writer, place) => write(writer, plans[place]!))).finally(() => {
        writing = false;
      });
      await reading;

      // Between them they match every filter, so whoever has its last one has all that came before.
      const last = authors.map((author, place) =>
        sign(author, {
          kind: KINDS[place]!,
          created_at: start + 9_000,
          content: 'last',
          tags: TOPICS.map((topic) => ['t', topic]),
        }),
      );
      for (const event of last) expect(await writers[0]!.publish(event)).toEqual([true, '']);
      const all = await everythingInOrder(first);
      expect(all).toHaveLength(2 * EVENTS_PER_WRITER + last.length);
      const place = new Map(all.map((event, at) => [event.id, at]));

      for (const sub of watched) {
        const wanted = all.filter((event) => sub.filters.some((filter) => matches(filter, event)));
        if (sub.open) {
          const end = wanted.at(-1)!.id;
          await sub.client.until(() => eventsOf(sub).some(({ id }) => id === end), 30_000);
        }
        const got = eventsOf(sub).map(({ id }) => id);
        const about = `${sub.id} ${JSON.stringify(sub.filters)} ${sub.open ? 'open' : 'closed'}`;
        expect(new Set(got).size, `no double: ${about}`).toBe(got.length);
        expect(
          got.filter((id) => !wanted.some((event) => event.id === id)),
          `no stranger: ${about}`,
        ).toEqual([]);

        // From where it has to be whole: all of it, or after the newest of an answer that its limit cut.
        const places = got.map((id) => place.get(id)!);
        const [limit] = sub.filters.map((filter) => filter.limit!);
        const stored = storedPart(sub).map(({ id }) => place.get(id)!);
        const from = limit === 5_000 ? 0 : limit === 0 ? Math.min(...places) : Math.max(-1, ...stored) + 1;
        const loaded = sub.client.frames.some(isEose(sub.id));
        // Each of several filters is asked a moment after the one before, so a union is whole only when it is
        // live.
        const until = sub.open
          ? all.length
          : loaded && sub.filters.length === 1
            ? Math.max(...places) + 1
            : from;
        // A writer that was late may have stored events, before the answer, that are older than all of it:
        // the limit cut them.
        const isCut = limit! > 0 && stored.length >= limit!;
        const cut = isCut ? Math.min(...storedPart(sub).map(({ created_at }) => created_at)) : 0;
        const whole = wanted.filter(
          ({ id, created_at }) => place.get(id)! >= from && place.get(id)! < until && created_at >= cut,
        );
        const missing = whole.filter(({ id }) => !got.includes(id)).map(({ id }) => place.get(id));
        expect(missing, `no gap: ${about}`).toEqual([]);
      }

      // The races that this test is about did happen.
      expect(heldBack).toBeGreaterThanOrEqual(least);
      const open = watched.filter((sub) => sub.open);
      expect(open.length).toBeGreaterThan(20);
      expect(watched.length - open.length).toBeGreaterThan(40);
      const both = open.filter((sub) => {
        const stored = storedPart(sub).length;
        return stored > 0 && stored < eventsOf(sub).length;
      });
      expect(both.length).toBeGreaterThan(10);
      for (const client of [...writers, ...readers]) await client.close();
    });
  });

  describe('a reader of the outbox that is held up', () => {
    it('still gives rows of an answer and the same events on their way live once', async () => {
      const reader = await RawClient.connect(first.url);
      const writer = await RawClient.connect(first.url);
      const author = newAuthor();
      const events = Array.from({ length: 60 }, (_, place) => sign(author, { content: `${place}` }));
      // All of the node's reading connections are busy: the fan-out stands still while the lane goes on.
      const busy = await occupy(first);
      for (const event of events.slice(0, 40)) expect(await writer.publish(event)).toEqual([true, '']);
      reader.send(['REQ', 'ahead', { authors: [author.pubkey] }]);
      await delay(100);
      for (const event of events.slice(40)) expect(await writer.publish(event)).toEqual([true, '']);
      for (const client of busy) client.release();
      const received = () =>
        reader.frames.filter((frame) => frame[0] === 'EVENT').map((frame) => frame[2] as NostrEvent);
      await reader.until(() => received().length >= events.length);
      const last = sign(author, { content: 'last' });
      expect(await writer.publish(last)).toEqual([true, '']);
      await reader.until(() => received().some(({ id }) => id === last.id));
      expect(
        received()
          .map(({ id }) => id)
          .sort(),
      ).toEqual([...events, last].map(({ id }) => id).sort());
      await writer.close();
      await reader.close();
    });

    it('for thousands of events loses none of them', async () => {
      const reader = await RawClient.connect(first.url);
      const pubkey = randomBytes(32).toString('hex');
      reader.send(['REQ', 'far', { authors: [pubkey], limit: 0 }]);
      await reader.waitFor(isEose('far'));
      const submit = (count: number) =>
        Promise.all(Array.from({ length: count }, () => first.node.store.submit(unsigned(pubkey))));

      const busy = await occupy(first);
      // More than the node keeps at hand between commit and delivery: the oldest have to be read from the
      // store.
      await submit(5_200);
      // The fan-out gets one connection, reads the next rows of the outbox, and finds the pool busy again.
      const again = occupy(first);
      await delay(1_500);
      busy.shift()!.release();
      await delay(300);
      await submit(400);
      for (const client of busy) client.release();
      for (const client of await again) client.release();

      const received = () => reader.frames.filter((frame) => frame[0] === 'EVENT').length;
      const last = unsigned(pubkey);
      expect(await first.node.store.submit(last)).toBe('stored');
      await reader.waitFor(
        (frame) => frame[0] === 'EVENT' && (frame[2] as NostrEvent).id === last.event.id,
        0,
        30_000,
      );
      expect(received()).toBe(5_601);
      await reader.close();
    });

    /** Takes every connection of the node's pool; they come as the node gives them back. */
    function occupy(node: TestNode) {
      const pool = node.database.ownPool;
      return Promise.all(Array.from({ length: pool.options.max }, () => pool.connect()));
    }
  });
});

function unsigned(pubkey: string): Submission {
  const event = {
    id: randomBytes(32).toString('hex'),
    pubkey,
    created_at: start,
    kind: 1,
    tags: [],
    content: '',
    sig: '0'.repeat(128),
  };
  return { community: 1, event, payload: serializeEvent(event) };
}

/** All events in the order of the outbox. */
async function everythingInOrder(node: TestNode): Promise<NostrEvent[]> {
  const { rows } = await node.database.pool.query<{ payload: string }>(
    'SELECT e.payload FROM events_outbox o JOIN events e USING (seq) ORDER BY o.seq',
  );
  return rows.map(({ payload }) => JSON.parse(payload) as NostrEvent);
}

/** Mulberry32: the same choices in every run. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}
