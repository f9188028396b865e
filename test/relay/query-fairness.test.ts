/**
 * Queries of some clients never starve those of others (I18): classes with their own slots and sessions,
 * slots by least use, time limits with their replies, and charges. A lock on the table of tags makes queries
 * slow; queries by author do not touch that table.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { countEvents } from '../../src/events/postgres/read/count.js';
import type { QueryClass } from '../../src/events/rules/query-cost.js';
import { WORK_BURST_MS, Work } from '../../src/limits/work.js';
import { ClientGone, type QueryClient, QueryGate, SLOTS } from '../../src/relay/query-gate.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode, useWindow } from '../support/node.js';

const light = { class: 'light', ms: 1 } as const;
const medium = { class: 'medium', ms: 40 } as const;
const heavy = { class: 'heavy', ms: 1_000 } as const;
const settled = () => new Promise((resolve) => setImmediate(resolve));
const cancelled = () => Promise.reject(Object.assign(new Error('cancelled'), { code: '57014' }));

function asker(rateKey: string, networkKey = rateKey, more: Partial<QueryClient> = {}): QueryClient {
  return { client: { rateKey, networkKey }, community: 1, isExempt: false, ...more };
}

/** Queries by name, which end when the test ends them. */
class Held {
  readonly begun: string[] = [];
  private readonly ends = new Map<string, () => void>();

  readonly query = (name: string) => (kind: QueryClass) => {
    this.begun.push(`${name} ${kind}`);
    return new Promise<void>((resolve) => this.ends.set(name, resolve));
  };

  async end(name: string): Promise<void> {
    this.ends.get(name)!();
    this.ends.delete(name);
    await settled();
  }

  async endAll(): Promise<void> {
    while (this.ends.size > 0) await this.end([...this.ends.keys()][0]!);
  }
}

describe('the gate', () => {
  it('lets light queries pass while every heavy slot is held and more heavy ones wait', async () => {
    const gate = new QueryGate();
    const held = new Held();
    const all = ['a', 'b', 'c', 'd'].map((name) => gate.run(asker(name), heavy, held.query(name)));
    await settled();
    expect(held.begun).toHaveLength(SLOTS.heavy.all);
    expect(await gate.run(asker('e'), light, async () => 'answered')).toBe('answered');
    expect(await gate.run(asker('a'), light, async () => 'also of the same address')).toBeTruthy();
    expect(held.begun).toHaveLength(SLOTS.heavy.all);
    await held.endAll();
    await Promise.all(all);
  });

  it('rests after a heavy query of a busy address while others are here, who do not wait', async () => {
    const work = new Work();
    const others = { here: true };
    const gate = new QueryGate({ work, hasOthers: () => others.here });
    const held = new Held();
    const heavyOf = (name: string) => gate.run(asker(name[0]!), heavy, held.query(name));
    const busy = ['a', 'b', 'c'];
    for (const name of busy) work.charge(asker(name).client, WORK_BURST_MS / 2);
    const first = [heavyOf('a1'), heavyOf('b1')];
    await settled();
    await sleep(60);
    await held.endAll();
    await Promise.all(first);
    // Both slots rest: a busy address waits, another one does not.
    const second = [heavyOf('c2'), heavyOf('d2'), heavyOf('e2')];
    await settled();
    expect(held.begun.slice(2)).toEqual(['d2 heavy', 'e2 heavy']);
    await held.endAll();
    await expect.poll(() => held.begun).toContain('c2 heavy');
    // With nobody else there is no rest.
    others.here = false;
    await held.endAll();
    await Promise.all(second);
    const third = [heavyOf('a3'), heavyOf('b3')];
    await settled();
    expect(held.begun.slice(5)).toEqual(['a3 heavy', 'b3 heavy']);
    await held.endAll();
    await Promise.all(third);
  });

  it('lets light queries pass while three addresses hold every medium slot, one each', async () => {
    const gate = new QueryGate();
    const held = new Held();
    const all = ['a', 'a', 'b', 'b', 'c', 'c'].map((name, n) =>
      gate.run(asker(name), medium, held.query(`${name}${n}`)),
    );
    await settled();
    expect(held.begun).toHaveLength(Math.min(3, SLOTS.medium.all));
    for (const name of ['d', 'a'])
      expect(await gate.run(asker(name), light, async () => 'answered')).toBe('answered');
    // Among the medium ones too, a new client comes before those that return.
    all.push(gate.run(asker('e'), medium, held.query('e')));
    await settled();
    while (held.begun.length < 4) await held.end(held.begun.at(-1)!.replace(/ medium$/, ''));
    expect(held.begun.slice(0, 4).map(([name]) => name)).toEqual(['a', 'b', 'c', 'e']);
    await held.endAll();
    await Promise.all(all);
  });

  it('keeps light slots for clients with little use during a storm of light queries', async () => {
    const work = new Work();
    const gate = new QueryGate({ work });
    const held = new Held();
    const storm = ['a', 'b', 'c', 'd'].map((name) => asker(name));
    for (const { client } of storm) work.charge(client, WORK_BURST_MS / 2);
    const all = storm.flatMap((one) =>
      [1, 2, 3].map((n) => gate.run(one, light, held.query(`${one.client.rateKey}${n}`))),
    );
    await settled();
    expect(held.begun).toHaveLength(SLOTS.light.all - SLOTS.light.kept!);
    all.push(...['x', 'y'].map((name) => gate.run(asker(name), light, held.query(name))));
    await settled();
    expect(held.begun.slice(-2)).toEqual(['x light', 'y light']);
    await held.endAll();
    await Promise.all(all);
    expect(held.begun).toHaveLength(14);
  });

  it('holds the addresses of one network (/48) to the share of a network', async () => {
    const gate = new QueryGate();
    const held = new Held();
    const one = (n: number) => asker(`2001:db8:1:${n}::/64`, '2001:db8:1::/48');
    const all = [1, 2, 3, 4, 5, 6, 7, 8].map((n) => gate.run(one(n), light, held.query(`network ${n}`)));
    await settled();
    expect(held.begun).toHaveLength(SLOTS.light.perNetwork);
    const other = asker('2001:db8:2:1::/64', '2001:db8:2::/48');
    all.push(gate.run(other, light, held.query('other')));
    await settled();
    expect(held.begun.at(-1)).toBe('other light');
    await held.endAll();
    await Promise.all(all);
  });

  it('gives a free slot to the client with the least use, even if another waits longer', async () => {
    const gate = new QueryGate();
    const held = new Held();
    const all = ['a', 'b'].map((name) => gate.run(asker(name), heavy, held.query(name)));
    all.push(gate.run(asker('a'), heavy, held.query('a again')));
    all.push(gate.run(asker('b'), heavy, held.query('b again')));
    await settled();
    all.push(gate.run(asker('new'), heavy, held.query('new')));
    await held.end('b');
    expect(held.begun).toEqual(['a heavy', 'b heavy', 'new heavy']);
    await held.endAll();
    await Promise.all(all);
    expect(held.begun).toHaveLength(5);
  });

  it('weighs the cost: of two networks the one with cheaper queries runs more', async () => {
    const gate = new QueryGate();
    const held = new Held();
    const cheap = { class: 'heavy', ms: 100 } as const;
    const blocker = gate.run(asker('blocker'), heavy, held.query('blocker'));
    const all = Array.from({ length: 12 }, (_, n) => [
      gate.run(asker('dear'), heavy, held.query(`dear ${n}`)),
      gate.run(asker('cheap'), cheap, held.query(`cheap ${n}`)),
    ]).flat();
    await settled();
    // One slot is left: what begins next is what was chosen. All end at once, so it is the guesses that
    // count.
    for (let ended = 0; ended < 12; ended += 1) {
      const running = held.begun.filter((name) => !name.startsWith('blocker')).at(-1)!;
      await held.end(running.replace(/ heavy$/, ''));
    }
    const begun = (name: string) => held.begun.filter((one) => one.startsWith(name)).length;
    expect(begun('cheap')).toBeGreaterThan(begun('dear'));
    expect(begun('dear')).toBeGreaterThan(0);
    await held.endAll();
    await Promise.all([blocker, ...all]);
  });

  it('keeps a slot of each class for other communities, where there are some', async () => {
    const gate = new QueryGate({ communities: () => 2 });
    const held = new Held();
    const all = ['a', 'b', 'c'].map((name) => gate.run(asker(name), heavy, held.query(name)));
    await settled();
    expect(held.begun).toHaveLength(SLOTS.heavy.all - 1);
    all.push(gate.run(asker('d', 'd', { community: 2 }), heavy, held.query('other')));
    await settled();
    expect(held.begun.at(-1)).toBe('other heavy');
    await held.endAll();
    await Promise.all(all);
  });

  it('runs a cancelled light query once more among the heavy ones, and then no more', async () => {
    const gate = new QueryGate();
    const ran: QueryClass[] = [];
    const once = gate.run(asker('a'), light, (kind) => {
      ran.push(kind);
      return kind === 'light' ? cancelled() : Promise.resolve('found');
    });
    expect(await once).toBe('found');
    expect(ran).toEqual(['light', 'heavy']);
    const never = gate.run(asker('a'), light, (kind) => {
      ran.push(kind);
      return cancelled();
    });
    await expect(never).rejects.toThrow('cancelled');
    expect(ran).toEqual(['light', 'heavy', 'light', 'heavy']);
    await expect(gate.run(asker('a'), heavy, cancelled)).rejects.toThrow('cancelled');
  });

  it('gives an address one light slot at a time after its query was slower than estimated', async () => {
    const gate = new QueryGate();
    const held = new Held();
    await gate.run(asker('a'), light, (kind) => (kind === 'light' ? cancelled() : Promise.resolve()));
    const all = ['a1', 'a2'].map((name) => gate.run(asker('a'), light, held.query(name)));
    all.push(...['b1', 'b2'].map((name) => gate.run(asker('b'), light, held.query(name))));
    await settled();
    expect(held.begun).toEqual(['a1 light', 'b1 light', 'b2 light']);
    await held.end('a1');
    expect(held.begun.at(-1)).toBe('a2 light');
    await held.endAll();
    await Promise.all(all);
  });

  it('does not run a query whose client has disconnected', async () => {
    const gate = new QueryGate();
    const held = new Held();
    let isGone = false;
    const first = gate.run(asker('a'), heavy, held.query('first'));
    const second = gate.run(asker('a', 'a', { isGone: () => isGone }), heavy, held.query('second'));
    await settled();
    isGone = true;
    const refused = expect(second).rejects.toThrow(ClientGone);
    await held.end('first');
    await refused;
    await first;
    expect(held.begun).toEqual(['first heavy']);
  });

  it('charges the estimate first, and refuses a client in debt that does not wait', async () => {
    const work = new Work();
    const gate = new QueryGate({ work });
    const held = new Held();
    const client = asker('a');
    const dear = { class: 'heavy', ms: 1_000_000 } as const;
    const running = gate.run(client, dear, held.query('dear'));
    await settled();
    expect(work.waitMs(client.client)).toBeGreaterThan(0);
    expect(work.waitMs(asker('b').client)).toBe(0);
    await expect(gate.run({ ...client, isHasty: true }, light, held.query('hasty'))).rejects.toThrow(
      'not run',
    );
    const local = gate.run({ ...client, isExempt: true }, light, held.query('exempt'));
    await settled();
    expect(held.begun).toEqual(['dear heavy', 'exempt light']);
    await held.endAll();
    await Promise.all([running, local]);
  });
});

describe('a node', () => {
  let relay: TestNode;
  let blocker: Client;
  const author = newAuthor();
  const event = sign(author, { content: 'found by author and by topic', tags: [['t', 'sea']] });

  beforeAll(async () => {
    relay = await startTestNode();
    // Queries that hold their slots are queries of the database.
    await useWindow(relay, 0);
    blocker = await relay.database.connect();
    const client = await RawClient.connect(relay.url);
    expect(await client.publish(event)).toEqual([true, '']);
    await client.close();
  });
  afterAll(async () => {
    await blocker.end();
    await relay.close();
  });

  const from = (address: string) => RawClient.connect(relay.url, { 'x-forwarded-for': address });
  const lockTags = () => blocker.query('BEGIN; LOCK TABLE event_tags IN ACCESS EXCLUSIVE MODE');
  const unlock = () => blocker.query('ROLLBACK');
  /** Sessions that wait for the lock on the tags. */
  async function waitingForLock(): Promise<number[]> {
    const { rows } = await relay.database.ownPool.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
         AND query LIKE '%event_tags%'`,
    );
    return rows.map(({ pid }) => pid);
  }
  const people = Array.from({ length: 400 }, (_, n) => n.toString(16).padStart(64, '0'));

  it('answers light queries while COUNTs hold every heavy slot, and reports their limit', async () => {
    await lockTags();
    const hostile = await Promise.all(
      ['198.51.100.1', '203.0.113.1', '2001:db8:1::1', '198.51.100.1', '203.0.113.1', '2001:db8:1::1'].map(
        from,
      ),
    );
    const good = await Promise.all(['192.0.2.1', '192.0.2.2'].map(from));
    try {
      for (const client of hostile) client.send(['COUNT', 'c', { '#p': people }]);
      await eventually('every heavy slot is held', async () =>
        (await waitingForLock()).length === SLOTS.heavy.all ? true : undefined,
      );
      const isRefused = (client: RawClient) => client.frames.some(([verb]) => verb === 'CLOSED');
      for (const client of good) {
        expect((await client.query({ authors: [author.pubkey] })).events).toEqual([event]);
      }
      // Each takes three seconds, two at a time: the last of them still waits.
      expect(hostile.every(isRefused)).toBe(false);
      // Light queries of a hostile client pass its heavy ones too, once its debt is paid.
      expect((await hostile[0]!.query({ authors: [author.pubkey] })).events).toEqual([event]);
      const reasons: unknown[] = [];
      for (const client of hostile) {
        const [, id, why] = await client.waitFor(([verb]) => verb === 'CLOSED', 0, 120_000);
        expect(id).toBe('c');
        reasons.push(why);
      }
      const tooLong = /^error: the query took too long; narrow/;
      const owing = /^rate-limited: your queries cost more than your share/;
      expect(reasons.filter((why) => !tooLong.test(String(why)) && !owing.test(String(why)))).toEqual([]);
      expect(reasons.some((why) => tooLong.test(String(why)))).toBe(true);
    } finally {
      await unlock();
      for (const client of [...good, ...hostile]) await client.close();
    }
  });

  it('answers light queries while feeds and COUNTs of three addresses hold all their slots', async () => {
    const authors = Array.from({ length: 900 }, (_, n) => n.toString(16).padStart(64, '1'));
    const many = (n: number) => ({ authors, kinds: [1, 6, 7, 40_000 + n] });
    await blocker.query('BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE');
    const waiting = async () => {
      const { rows } = await relay.database.ownPool.query<{ query: string }>(
        `SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
           AND pid <> pg_backend_pid()`,
      );
      return rows.length;
    };
    const addresses = ['198.51.100.11', '203.0.113.11', '198.51.100.12'];
    const hostile = await Promise.all([...addresses, ...addresses].map(from));
    const good = await Promise.all(['192.0.2.11', '192.0.2.12', '192.0.2.13', '192.0.2.14'].map(from));
    try {
      hostile.forEach((client, n) => {
        client.send(['REQ', 'feed', many(n)]);
        client.send(['COUNT', 'count', ...Array.from({ length: 10 }, (_, filter) => many(filter))]);
      });
      const slots = SLOTS.medium.all + SLOTS.heavy.all;
      const held = Math.min(addresses.length, SLOTS.medium.all) + SLOTS.heavy.all;
      await eventually('every slot that they may have is held', async () =>
        (await waiting()) >= held ? true : undefined,
      );
      expect(held).toBeLessThanOrEqual(slots);
      // Each of these begins at once: it waits for the lock, in a session of the light ones, and for no slot.
      // The kinds are their own, so that no answer is at hand from before.
      good.forEach((client, n) => {
        client.send(['REQ', 'mine', { authors: [author.pubkey], kinds: [1, 41_000 + n], limit: 20 }]);
      });
      await eventually('the light queries run', async () =>
        (await waiting()) >= held + good.length ? true : undefined,
      );
    } finally {
      await unlock();
    }
    for (const client of good) {
      await client.waitFor(([verb, id]) => verb === 'EOSE' && id === 'mine');
      expect(client.frames.filter(([verb]) => verb === 'EVENT').map((frame) => frame[2])).toEqual([event]);
    }
    for (const client of [...good, ...hostile]) await client.close();
  });

  it('moves a slow query that was estimated light to the heavy ones, where it is answered', async () => {
    await lockTags();
    const client = await from('192.0.2.7');
    try {
      client.send(['REQ', 'slow', { '#t': ['sea'], limit: 10 }]);
      const [first] = await eventually('it waits for the lock', async () => {
        const waiting = await waitingForLock();
        return waiting.length > 0 ? waiting : undefined;
      });
      await eventually('it waits on another session', async () => {
        const waiting = await waitingForLock();
        return waiting.length > 0 && !waiting.includes(first!) ? true : undefined;
      });
    } finally {
      await unlock();
    }
    await client.waitFor(([verb, id]) => verb === 'EOSE' && id === 'slow');
    expect(client.frames.filter(([verb]) => verb === 'EVENT').map((frame) => frame[2])).toEqual([event]);
    await client.close();
  });

  it('charges queries to the address, and refuses a search of one in debt', async () => {
    const address = '192.0.2.9';
    const debtor = { rateKey: address, networkKey: address };
    const search = () => fetch(`${relay.http}/v1/search?q=sea`, { headers: { 'x-forwarded-for': address } });
    expect((await search()).status).not.toBe(429);
    relay.node.work.charge(debtor, 1_000_000);
    const refused = await search();
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    const other = await fetch(`${relay.http}/v1/search?q=sea`, {
      headers: { 'x-forwarded-for': '192.0.2.10' },
    });
    expect(other.status).not.toBe(429);
  });

  it('reads no further filter of a COUNT once its bound is passed', async () => {
    const asked: string[] = [];
    const { pool } = relay.database;
    const filters = [
      { tags: [] },
      { tags: [], kinds: new Set([1]) },
      { tags: [], authors: new Set([author.pubkey]) },
    ];
    const count = (max: number) => {
      asked.length = 0;
      const inSlot = <T>(filter: object, query: (on: typeof pool) => Promise<T>) => {
        asked.push(Object.keys(filter).join());
        return query(pool);
      };
      return countEvents(inSlot, () => 0n, { community: 1, filters, max, now: Date.now() });
    };
    expect(await count(0)).toBe(1);
    expect(asked).toEqual(['tags']);
    expect(await count(10)).toBe(1);
    expect(asked).toHaveLength(3);
  });
});
