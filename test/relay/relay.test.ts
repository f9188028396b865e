import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { STORES } from '../support/stores/contract.js';

let relay: TestNode;
let client: RawClient;
const alice = newAuthor();

describe.each(STORES)('on %s', (store) => {
  beforeAll(async () => {
    relay = await startTestNode({ store });
    client = await RawClient.connect(relay.url);
  });
  afterAll(async () => {
    await client?.close();
    await relay?.close();
  });

  describe('EVENT and REQ', () => {
    it('an accepted event is served as it came', async () => {
      const event = sign(alice, {
        content: 'hello "quotes" \\ \u2028 \u0000 \u0001 🌊',
        tags: [
          ['t', 'sea'],
          ['x', ''],
        ],
      });
      expect(await client.publish(event)).toEqual([true, '']);
      expect((await client.query({ ids: [event.id] })).events).toEqual([event]);
      expect((await client.query({ '#t': ['sea'] })).events).toEqual([event]);
      expect((await client.query({ '#x': [''] })).events).toEqual([event]);
      expect((await client.query({ authors: [alice.pubkey] })).events).toEqual([event]);
      expect((await client.query({ authors: [alice.pubkey], kinds: [1] })).events).toEqual([event]);
      expect((await client.query({ kinds: [1] })).events).toEqual([event]);
      expect((await client.query({})).events).toEqual([event]);
    });

    it('a repeat is a duplicate and is stored once', async () => {
      const event = sign(alice, { content: 'twice', tags: [['t', 'twice']] });
      expect(await client.publish(event)).toEqual([true, '']);
      const [accepted, message] = await client.publish(event);
      expect(accepted).toBe(true);
      expect(message).toMatch(/^duplicate:/);
      expect((await client.query({ '#t': ['twice'] })).events).toHaveLength(1);
    });

    it('only the newest version of a replaceable event is served, in either order of arrival', async () => {
      const older = sign(alice, {
        kind: 0,
        created_at: nowSeconds() - 10,
        content: 'old',
        tags: [['t', 'p']],
      });
      const newer = sign(alice, {
        kind: 0,
        created_at: nowSeconds() - 5,
        content: 'new',
        tags: [['t', 'p']],
      });
      expect(await client.publish(older)).toEqual([true, '']);
      expect(await client.publish(newer)).toEqual([true, '']);
      expect((await client.query({ kinds: [0] })).events).toEqual([newer]);
      expect((await client.query({ '#t': ['p'] })).events).toEqual([newer]);
      expect((await client.query({ ids: [older.id] })).events).toEqual([]);
      const bob = newAuthor();
      const first = sign(bob, { kind: 30023, created_at: 20, tags: [['d', 'a']] });
      const late = sign(bob, { kind: 30023, created_at: 10, tags: [['d', 'a']] });
      expect(await client.publish(first)).toEqual([true, '']);
      expect(await client.publish(late)).toEqual([true, 'duplicate: have a newer version']);
      expect((await client.query({ authors: [bob.pubkey] })).events).toEqual([first]);
    });

    it('an ephemeral event is delivered live and not stored', async () => {
      const reader = await RawClient.connect(relay.url);
      reader.send(['REQ', 'live', { kinds: [20001], limit: 0 }]);
      await reader.waitFor((frame) => frame[0] === 'EOSE');
      const event = sign(alice, { kind: 20001, content: 'typing' });
      expect(await client.publish(event)).toEqual([true, '']);
      expect((await reader.waitFor((frame) => frame[0] === 'EVENT'))[2]).toEqual(event);
      expect((await client.query({ kinds: [20001] })).events).toEqual([]);
      await reader.close();
    });

    it('a live subscription gets a matching event once and others not at all', async () => {
      const reader = await RawClient.connect(relay.url);
      reader.send([
        'REQ',
        'live',
        { '#t': ['boats', 'ships'] },
        { authors: [alice.pubkey], '#t': ['boats'] },
      ]);
      await reader.waitFor((frame) => frame[0] === 'EOSE');
      await client.publish(sign(alice, { content: 'no', tags: [['t', 'cars']] }));
      const event = sign(alice, {
        content: 'yes',
        tags: [
          ['t', 'boats'],
          ['t', 'ships'],
        ],
      });
      await client.publish(event);
      await client.publish(sign(alice, { content: 'last', tags: [['t', 'ships']] }));
      await reader.waitFor(
        (frame) => frame[0] === 'EVENT' && (frame[2] as { content: string }).content === 'last',
      );
      expect(reader.frames.filter((frame) => frame[0] === 'EVENT').map((frame) => frame[2])).toContainEqual(
        event,
      );
      expect(reader.frames.filter((frame) => frame[0] === 'EVENT')).toHaveLength(2);
      await reader.close();
    });
  });
});
