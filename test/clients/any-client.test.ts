/**
 * Ten client libraries against a real node, in the modes that any client can use. Each posts, asks many
 * things at once, reads along, answers a challenge and comes back after a restart.
 */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { EarlyPort } from '../../src/port/early-port.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { LIBRARIES, type Library, type LibraryClient, NDK_WITHOUT_POLICY } from './libraries.js';

vi.mock('isomorphic-ws', async () => ({ default: (await import('./libraries.js')).BrowserSocket }));

const WAIT = { timeout: 30_000, interval: 100 };

describe.each(['default', 'open'])('in %s mode', (mode) => {
  let relay: TestNode;
  const clients = new Map<Library, LibraryClient>();
  const [author, reader, friend] = [newAuthor(), newAuthor(), newAuthor()];
  const first = () => clients.get(LIBRARIES[0]!)!;

  beforeAll(async () => {
    relay = await startTestNode({ env: { MINATO_TOPIC_MODE: mode } });
    for (const library of LIBRARIES) clients.set(library, await library.open(relay.url, reader));
  });
  afterAll(async () => {
    for (const client of clients.values()) await client.close();
    await relay.close();
  });

  describe.each(LIBRARIES)('$name', (library) => {
    const client = () => clients.get(library)!;

    it('posts a note with a hashtag, and finds it', async () => {
      const note = sign(author, { content: `from ${library.name}`, tags: [['t', 'nostr']] });
      await (client().publish ?? first().publish)!(note);
      await expect.poll(() => client().fetch({ ids: [note.id] }), WAIT).toEqual([note.id]);
      await expect.poll(() => client().fetch({ kinds: [1], '#t': ['nostr'] }), WAIT).toContain(note.id);
    });

    it('asks thirty things at once, and each is answered', async () => {
      const notes = Array.from({ length: 30 }, (_, at) => sign(newAuthor(), { content: `${at}` }));
      await Promise.all(notes.map((note) => first().publish!(note)));
      const answers = await Promise.all(
        notes.map(({ pubkey }) => client().fetch({ kinds: [1], authors: [pubkey], limit: 5 })),
      );
      expect(answers).toEqual(notes.map(({ id }) => [id]));
    });

    it.runIf(library.authenticates)('answers a challenge, and gets what is for it alone', async () => {
      const wrap = sign(friend, { kind: 1_059, content: library.name, tags: [['p', reader.pubkey]] });
      await first().publish!(wrap);
      await expect
        .poll(() => client().fetch({ kinds: [1_059], '#p': [reader.pubkey] }), WAIT)
        .toContain(wrap.id);
    });
  });
});

describe('where clients must authenticate', () => {
  let relay: TestNode;
  const member = newAuthor();
  beforeAll(async () => {
    relay = await startTestNode({ env: { MINATO_AUTH_MODE: 'required' } });
  });
  afterAll(() => relay.close());

  // rust-nostr misses the challenge that comes with the handshake, and answers the one before its refusal.
  it.each(LIBRARIES.filter(({ authenticates }) => authenticates))(
    '$name posts and reads',
    async (library) => {
      const client = await library.open(relay.url, member);
      const note = sign(member, { content: `by ${library.name}` });
      const publish = () => client.publish!(note).then(() => true, String);
      await expect.poll(publish, WAIT).toBe(true);
      await expect.poll(() => client.fetch({ ids: [note.id] }), WAIT).toEqual([note.id]);
      await client.close();
    },
  );
});

describe('after a restart on the same port', () => {
  // Those that come back by themselves. NDK tries once, a second after it was cut off: a failed try starts no
  // other. snort tries once after four seconds. nostr-tools leaves its failed try unhandled.
  const returning = ['NDK', 'welshman', 'applesauce', 'rx-nostr', 'snort', 'nostrify'];
  const readers = [...LIBRARIES.filter(({ name }) => returning.includes(name)), NDK_WITHOUT_POLICY];
  const reader = newAuthor();
  const author = newAuthor();

  it('clients that were cut off come back and get what is new, live or by asking again', async () => {
    const before = await startTestNode({ env: { MINATO_TOPIC_MODE: 'default' } });
    const clients = new Map<Library, LibraryClient>();
    const seen = new Map<Library, Set<string>>(readers.map((library) => [library, new Set()]));
    for (const library of readers) {
      const client = await library.open(before.url, reader);
      client.subscribe!({ kinds: [1], authors: [author.pubkey] }, (id) => seen.get(library)!.add(id));
      clients.set(library, client);
    }
    const writer = () => clients.get(readers.find(({ name }) => name === 'welshman')!)!;
    const early = sign(author, { content: 'before' });
    await writer().publish!(early);
    const have = (id: string) => () => readers.filter((each) => !seen.get(each)!.has(id)).map(nameOf);
    await expect.poll(have(early.id), WAIT).toEqual([]);

    const { port } = before.node;
    await before.node.close();
    // As `serve` does it: the port is open again at once, and the node starts when all of them wait there, as
    // if it took so long.
    const open = await EarlyPort.open('127.0.0.1', port);
    expect(open).toBeDefined();
    await expect.poll(() => open!.size, WAIT).toBeGreaterThanOrEqual(readers.length);
    const after = await startTestNode({
      on: before.test,
      early: open!,
      env: { MINATO_TOPIC_MODE: 'default', MINATO_PORT: `${port}` },
    });
    const late = sign(author, { content: 'after' });
    await expect.poll(() => writer().publish!(late).then(() => true, String), WAIT).toBe(true);
    const asked = { kinds: [1], authors: [author.pubkey], limit: 9 };
    const isBack = async (library: Library): Promise<boolean> => {
      if (seen.get(library)!.has(late.id)) return true;
      const found = await clients
        .get(library)!
        .fetch(asked)
        .catch((): string[] => []);
      return found.includes(late.id);
    };
    for (const library of readers)
      await expect.poll(() => isBack(library), { ...WAIT, message: library.name }).toBe(true);
    for (const client of clients.values()) await client.close();
    await after.close();
    await before.close();
  });
});

const nameOf = ({ name }: Library) => name;
