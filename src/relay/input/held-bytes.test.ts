import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { HeldBytes } from './held-bytes.js';

describe('a budget of memory for all clients', () => {
  it('is never exceeded, and nobody below a fair share loses anything', () => {
    const MAX = 1_000;
    const change = fc.record({ client: fc.nat(11), bytes: fc.nat(300) });
    fc.assert(
      fc.property(fc.array(change, { maxLength: 100 }), (changes) => {
        const budget = new HeldBytes(MAX);
        const addressOf = (client: number) => `address ${client % 4}`;
        const held = new Map<number, number>();
        const sum = (address?: string) =>
          [...held].reduce(
            (total, [client, bytes]) =>
              address === undefined || addressOf(client) === address ? total + bytes : total,
            0,
          );
        const members = Array.from({ length: 12 }, (_, client) =>
          budget.join(1, addressOf(client), () => {
            const own = sum(addressOf(client));
            expect(own * 4).toBeGreaterThan(MAX * 0.75);
            held.delete(client);
          }),
        );
        for (const { client, bytes } of changes) {
          const member = members[client]!;
          if (member.left) continue;
          held.set(client, bytes);
          member.set(bytes);
          expect(budget.bytes).toBeLessThanOrEqual(MAX);
          expect(budget.bytes).toBe(sum());
        }
        for (const member of members) member.leave();
        expect(budget.bytes).toBe(0);
      }),
    );
  });

  it('takes from the address that holds most, its largest first', () => {
    const budget = new HeldBytes(1_000);
    const closed: string[] = [];
    const join = (address: string, name: string) => budget.join(1, address, () => closed.push(name));
    const [small, large, modest] = [join('a', 'small'), join('a', 'large'), join('b', 'modest')];
    modest.set(300);
    small.set(200);
    large.set(501);
    expect(closed).toEqual(['large']);
    expect(budget.bytes).toBe(500);
  });

  it('asks for less when half of it is used, or an address has much of it', () => {
    const budget = new HeldBytes(1_600);
    const [greedy, modest] = [budget.join(1, 'a', () => undefined), budget.join(1, 'b', () => undefined)];
    greedy.set(101);
    expect([greedy.isShort, modest.isShort]).toEqual([true, false]);
    greedy.set(801);
    expect(modest.isShort).toBe(true);
    greedy.leave();
    expect(modest.isShort).toBe(false);
  });

  it('takes nothing from a community below its share, however many addresses another one has', () => {
    const budget = new HeldBytes(1_000);
    const closed: string[] = [];
    const one = budget.join(2, 'one', () => closed.push('one'));
    one.set(300);
    // Each of them holds less than the one address of the other community.
    for (let n = 0; n < 20; n += 1)
      budget.join(1, `flood ${n}`, () => closed.push(`flood ${n}`)).set(50 + (n % 2));
    expect(closed.length).toBeGreaterThan(0);
    expect(closed).not.toContain('one');
    expect(budget.bytes).toBeLessThanOrEqual(1_000);
  });

  it('asks a community that has much of it for less, where there are others', () => {
    const budget = new HeldBytes(1_600);
    const flood = Array.from({ length: 9 }, (_, n) => budget.join(1, `flood ${n}`, () => undefined));
    for (const member of flood) member.set(50);
    expect(flood[0]!.isShort).toBe(false);
    const other = budget.join(2, 'a', () => undefined);
    expect([flood[0]!.isShort, other.isShort]).toEqual([true, false]);
    other.leave();
    expect(flood[0]!.isShort).toBe(false);
  });
});
