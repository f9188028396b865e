/**
 * Ten client libraries from an address that is not exempt from the rates, with the shipped defaults. All ten
 * share one address and its rates. What a client of today asks at once is answered, and nothing is refused.
 */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { LIBRARIES, type Library, type LibraryClient } from './libraries.js';

vi.mock('isomorphic-ws', async () => ({ default: (await import('./libraries.js')).BrowserSocket }));

const WAIT = { timeout: 60_000, interval: 100 };
const AT_ONCE = 30;
const FOLLOWED = 2_000;

let relay: TestNode;
const reader = newAuthor();
const clients = new Map<Library, LibraryClient>();
const friends = Array.from({ length: AT_ONCE }, newAuthor);
const followed = [
  ...friends.map(({ pubkey }) => pubkey),
  ...Array.from({ length: FOLLOWED - AT_ONCE }, () => newAuthor().pubkey),
];
const follows = followed.map((pubkey) => ['p', pubkey]);
const notes = friends.map((friend, at) => sign(friend, { content: `note ${at}` }));
const lists = friends.map((friend) => sign(friend, { kind: 3, tags: follows }));
const idsOf = (events: readonly { id: string }[]) => events.map(({ id }) => [id]);

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_TOPIC_MODE: 'default' } });
  const writer = await RawClient.connect(relay.url);
  const replies = await Promise.all([...notes, ...lists].map((event) => writer.publish(event)));
  expect(replies.filter(([accepted]) => !accepted)).toEqual([]);
  await writer.close();

  const community = () => relay.node.communities.find(undefined, undefined)!;
  await writeSetting(relay.database.pool, community().id, 'rate.exemptLoopback', false, Date.now());
  await eventually('the rates hold for clients on this machine', () =>
    community().settings['rate.exemptLoopback'] ? undefined : true,
  );
  for (const library of LIBRARIES) clients.set(library, await library.open(relay.url, reader));
});
afterAll(async () => {
  for (const client of clients.values()) await client.close();
  await relay.close();
});

describe.each(LIBRARIES)('$name', (library) => {
  const client = () => clients.get(library)!;
  const askEach = (kind: number) =>
    Promise.all(friends.map(({ pubkey }) => client().fetch({ kinds: [kind], authors: [pubkey], limit: 5 })));

  it('asks thirty small things at once, and each is answered', async () => {
    expect(await askEach(1)).toEqual(idsOf(notes));
  });

  it('asks for thirty follow lists of 2,000 at once, and for what the 2,000 wrote', async () => {
    expect(await askEach(3)).toEqual(idsOf(lists));
    const timeline = await client().fetch({ kinds: [1], authors: followed });
    expect(timeline.sort()).toEqual(notes.map(({ id }) => id).sort());
  });

  it.runIf(library.name !== 'nostr-fetch')(
    'posts a note and a follow list of 2,000, and finds both',
    async () => {
      const author = newAuthor();
      const note = sign(author, { content: library.name });
      const list = sign(author, { kind: 3, tags: follows });
      // Some libraries give up after a few seconds on a busy machine; a repeat is a duplicate, and accepted.
      const failures: string[] = [];
      const post = (event: typeof note) =>
        client().publish!(event).then(
          () => true,
          (error: unknown) => failures.push(String(error)),
        );
      for (const event of [note, list]) await expect.poll(() => post(event), WAIT).toBe(true);
      expect(failures.filter((why) => why.includes('rate-limited'))).toEqual([]);
      const filter = { kinds: [1, 3], authors: [author.pubkey] };
      await expect
        .poll(async () => (await client().fetch(filter)).sort(), WAIT)
        .toEqual([note.id, list.id].sort());
    },
  );
});

it('the rates did hold: what is beyond the burst of queries is refused', async () => {
  const { settings } = relay.node.communities.find(undefined, undefined)!;
  const raw = await RawClient.connect(relay.url);
  const beyond = settings['rate.queriesBurst'] + 100;
  for (let at = 0; at < beyond; at += 1) raw.send(['REQ', 'same', { ids: [notes[0]!.id], limit: 0 }]);
  await raw.waitFor((frame) => frame[0] === 'CLOSED' && String(frame[2]).startsWith('rate-limited:'));
  await raw.close();
});
