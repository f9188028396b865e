import { describe, expect, it } from 'vitest';
import {
  OpenValues,
  VALUES_LITTLE,
  VALUES_MAX,
  VALUES_PER_ADDRESS_MAX,
  VALUES_PER_NETWORK_MAX,
  VALUES_RESERVED,
} from './open-values.js';

/** As much as those who hold much may hold together. */
const FULL = VALUES_MAX - VALUES_RESERVED;

const from = (rateKey: string, isLoopback = false, community = 1, networkKey = rateKey) => ({
  rateKey,
  networkKey,
  isLoopback,
  community,
});

describe('values in open filters', () => {
  it('of one address are bounded, and those of another are not touched by it', () => {
    const open = new OpenValues();
    expect(open.take(from('a'), VALUES_PER_ADDRESS_MAX)).toBe(true);
    expect(open.take(from('a'), 1)).toBe(false);
    expect(open.take(from('b'), 1)).toBe(true);
    open.giveBack(from('a'), 1);
    expect(open.take(from('a'), 1)).toBe(true);
  });

  it('of all addresses together are bounded, also of clients on this machine', () => {
    const open = new OpenValues();
    expect(open.take(from('here', true), FULL)).toBe(true);
    expect(open.take(from('here', true), 1)).toBe(false);
    expect(open.take(from('a'), VALUES_LITTLE + 1)).toBe(false);
    open.giveBack(from('here', true), FULL);
    expect(open.take(from('a'), VALUES_PER_ADDRESS_MAX)).toBe(true);
  });

  it('of one network are bounded, from however many of its addresses', () => {
    const open = new OpenValues();
    const host = (n: number) => from(`2001:db8:1:${n}::/64`, false, 1, '2001:db8:1::/48');
    for (let n = 0; n < VALUES_PER_NETWORK_MAX / VALUES_PER_ADDRESS_MAX; n += 1)
      expect(open.take(host(n), VALUES_PER_ADDRESS_MAX)).toBe(true);
    expect(open.take(host(9), 1)).toBe(false);
    expect(open.take(from('b'), VALUES_PER_ADDRESS_MAX)).toBe(true);
  });

  it('that fill the pool leave room for those who hold little', () => {
    const open = new OpenValues();
    for (let n = 0; n < FULL / VALUES_PER_ADDRESS_MAX; n += 1)
      expect(open.take(from(`greedy ${n}`), VALUES_PER_ADDRESS_MAX)).toBe(true);
    expect(open.take(from('greedy 0'), 1)).toBe(false);
    for (let n = 0; n < VALUES_RESERVED / VALUES_LITTLE; n += 1)
      expect(open.take(from(`modest ${n}`), VALUES_LITTLE)).toBe(true);
    expect(open.take(from('late'), 1)).toBe(false);
  });

  it('of one community are its share, so that it leaves room for the others', () => {
    let share = 0.5;
    const open = new OpenValues(() => share);
    expect(open.take(from('here', true, 1), VALUES_MAX / 2)).toBe(true);
    expect(open.take(from('there', true, 1), 1)).toBe(false);
    expect(open.take(from('there', true, 2), FULL - VALUES_MAX / 2)).toBe(true);
    open.giveBack(from('there', true, 2), FULL - VALUES_MAX / 2);
    share = 1;
    expect(open.take(from('there', true, 1), FULL - VALUES_MAX / 2)).toBe(true);
  });
});
