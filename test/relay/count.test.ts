/** COUNT (NIP-45): the number of what REQ would give, over a real socket. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { RawClient } from '../support/clients/client.js';
import { type Draft, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { STORES } from '../support/stores/contract.js';

let relay: TestNode;
let client: RawClient;

describe.each(STORES)('on %s', (store) => {
  beforeAll(async () => {
    relay = await startTestNode({ store });
    client = await RawClient.connect(relay.url);
  });
  afterAll(async () => {
    await client?.close();
    await relay?.close();
  });

  const community = () => relay.node.communities.find(undefined, 'default')!;

  /** Writes a setting and waits until this instance applies it. */
  async function set(key: SettingKey, value: unknown): Promise<void> {
    await writeSetting(relay.database.pool, community().id, key, value, Date.now());
    await expect.poll(() => community().settings[key], { timeout: 100_000 }).toEqual(value);
  }

  /** The first frame that answers. */
  async function ask(message: unknown[], on = client): Promise<unknown[]> {
    const from = on.frames.length;
    on.send(message);
    return on.waitFor((frame) => frame[1] === message[1], from);
  }

  describe('COUNT', () => {
    const author = newAuthor();
    const authors = [author.pubkey];
    const drafts: Draft[] = Array.from({ length: 7 }, (_, at) => ({
      created_at: 1_000 + at,
      kind: at < 4 ? 1 : 7,
      tags: [
        ['t', 'counted'],
        ['t', at % 2 === 0 ? 'even' : 'odd'],
      ],
    }));
    const count = (...filters: object[]) => ask(['COUNT', 'c', ...filters]);

    beforeAll(async () => {
      for (const draft of drafts) await client.publish(sign(author, draft));
    });

    it('is exact, and the same as what REQ gives', async () => {
      for (const filter of [
        { authors },
        { authors, kinds: [7] },
        { '#t': ['counted'], authors },
        { authors, since: 1_002, until: 1_004 },
        { authors, '#t': ['even', 'odd'] },
      ]) {
        const { events } = await client.query(filter);
        expect(await count(filter)).toEqual(['COUNT', 'c', { count: events.length }]);
      }
      expect(await count({ authors })).toEqual(['COUNT', 'c', { count: 7 }]);
    });

    it('of several filters counts their union, each event once', async () => {
      expect(await count({ authors, kinds: [1] }, { authors, '#t': ['even'] })).toEqual([
        'COUNT',
        'c',
        { count: 6 },
      ]);
      expect(await count({ authors }, { authors }, { authors, kinds: [] })).toEqual([
        'COUNT',
        'c',
        { count: 7 },
      ]);
    });

    it('does not count what was superseded or is ephemeral', async () => {
      const busy = newAuthor();
      for (const created_at of [1, 2, 3]) await client.publish(sign(busy, { kind: 0, created_at }));
      await client.publish(sign(busy, { kind: 20_001 }));
      expect(await count({ authors: [busy.pubkey] })).toEqual(['COUNT', 'c', { count: 1 }]);
    });

    it('past its limit gives the limit and says that it is approximate', async () => {
      await set('limits.countMax', 6);
      expect(await count({ authors })).toEqual(['COUNT', 'c', { count: 6, approximate: true }]);
      expect(await count({ authors, kinds: [1] }, { authors, kinds: [7] })).toEqual([
        'COUNT',
        'c',
        { count: 6, approximate: true },
      ]);
      expect(await count({ authors, until: 1_005 })).toEqual(['COUNT', 'c', { count: 6 }]);
      await set('limits.countMax', 10_000);
      expect(await count({ authors })).toEqual(['COUNT', 'c', { count: 7 }]);
    });

    it('does not open a subscription', async () => {
      const reader = await RawClient.connect(relay.url);
      await ask(['COUNT', 'c', { '#t': ['silent'] }], reader);
      await ask(['REQ', 'mark', { '#t': ['silent'] }], reader);
      await client.publish(sign(author, { tags: [['t', 'silent']] }));
      await reader.waitFor((frame) => frame[0] === 'EVENT');
      expect(reader.frames.filter((frame) => frame[0] === 'EVENT').map((frame) => frame[1])).toEqual([
        'mark',
      ]);
      await reader.close();
    });
  });
});
