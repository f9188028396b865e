import { describe, expect, it } from 'vitest';
import { OpenValues, VALUES_MAX, VALUES_PER_ADDRESS_MAX } from './open-values.js';

const from = (rateKey: string, isLoopback = false) => ({ rateKey, isLoopback });

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
    expect(open.take(from('here', true), VALUES_MAX)).toBe(true);
    expect(open.take(from('here', true), 1)).toBe(false);
    expect(open.take(from('a'), 1)).toBe(false);
    open.giveBack(from('here', true), VALUES_MAX);
    expect(open.take(from('a'), VALUES_PER_ADDRESS_MAX)).toBe(true);
  });
});
