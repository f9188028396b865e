import { expect, it } from 'vitest';
import { lineOf, verifyLineOf } from './rules-lines.js';

const ALICE = 'a'.repeat(64);
const IPV4 = { rateKey: '192.0.2.1', networkKey: '192.0.2.1' };
const IPV6 = { rateKey: '2001:db8:1:2::/64', networkKey: '2001:db8:1::/48' };

it('the line of a client is its network, its address and the author', () => {
  expect(lineOf(IPV4, ALICE)).toEqual(['192.0.2.1', ALICE]);
  expect(lineOf(IPV6, ALICE)).toEqual(['2001:db8:1::/48', '2001:db8:1:2::/64', ALICE]);
});

it('events without a client wait in the line of the operator, in each community', () => {
  expect(lineOf(undefined, ALICE)).toBeUndefined();
  expect(verifyLineOf(1, undefined, ALICE)).toEqual(['1', '']);
  expect(verifyLineOf(2, IPV4, ALICE)).toEqual(['2', '192.0.2.1', ALICE]);
});
