import { describe, expect, it } from 'vitest';
import type { NostrEvent } from './event.js';
import { ALL_RELAYS, vanishScope } from './vanish.js';

const naming = (...relays: string[]): NostrEvent => ({
  id: '1'.repeat(64),
  pubkey: 'a'.repeat(64),
  created_at: 100,
  kind: 62,
  tags: relays.map((relay) => ['relay', relay]),
  content: '',
  sig: 'c'.repeat(128),
});
const OURS = ['wss://relay.test/', 'wss://relay.test/c/sea', 'ws://127.0.0.1:8080'];

describe('a request to vanish', () => {
  it.each([
    'wss://relay.test',
    'wss://relay.test/',
    'WSS://Relay.TEST',
    'wss://relay.test:443',
    'wss://relay.test:443/',
    'wss://relay.test/c/sea',
    'wss://relay.test/c/sea/',
    'ws://127.0.0.1:8080/',
  ])('that names %s is for this relay', (url) => {
    expect(vanishScope(naming(url), OURS)).toBe('here');
  });

  it.each([
    'wss://relay.test:444',
    'wss://relay.test.evil.example',
    'wss://evil.example/relay.test',
    'wss://evil.example/?wss://relay.test',
    'wss://relay.test@evil.example',
    'wss://a.relay.test',
    'wss://relay.test/c/wind',
    'wss://relay.test/c/SEA',
    'wss://relay.test/c',
    'ws://127.0.0.1',
    'relay.test',
    'not a url',
    '',
    'wss://',
    'all_relays',
    'ALL_RELAYS ',
    '\u0000',
  ])('that names only %j is for another relay', (url) => {
    expect(vanishScope(naming(url), OURS)).toBe('elsewhere');
  });

  it('that names one of ours among others is for this relay', () => {
    expect(vanishScope(naming('wss://elsewhere.test', 'nonsense', 'wss://relay.test'), OURS)).toBe('here');
  });

  it('to all relays is for every community, also where the relay has no address', () => {
    expect(vanishScope(naming(ALL_RELAYS), [])).toBe('everywhere');
    expect(vanishScope(naming('wss://elsewhere.test', ALL_RELAYS), OURS)).toBe('everywhere');
    expect(vanishScope(naming('wss://relay.test', ALL_RELAYS), OURS)).toBe('everywhere');
  });

  it('that names no relay is for no relay, also where this relay has no address', () => {
    expect(vanishScope(naming(), OURS)).toBe('elsewhere');
    expect(vanishScope(naming(), [])).toBe('elsewhere');
    const other = { ...naming(), tags: [['relay'], ['r', 'wss://relay.test'], ['Relay', ALL_RELAYS]] };
    expect(vanishScope(other, OURS)).toBe('elsewhere');
  });
});
