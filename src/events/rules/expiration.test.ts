import { describe, expect, it } from 'vitest';
import type { NostrEvent } from './event.js';
import { expirationOf, isExpired } from './expiration.js';

const eventWith = (tags: string[][]): NostrEvent => ({
  id: '1'.repeat(64),
  pubkey: 'a'.repeat(64),
  created_at: 100,
  kind: 1,
  tags,
  content: '',
  sig: 'c'.repeat(128),
});
const expiring = (value: string) => eventWith([['expiration', value]]);

describe('the expiration of an event', () => {
  it.each([
    ['0', 0],
    ['1', 1],
    ['1700000000', 1_700_000_000],
    ['0001700000000', 1_700_000_000],
    [`${Number.MAX_SAFE_INTEGER}`, Number.MAX_SAFE_INTEGER],
    ['9007199254740993', Number.MAX_SAFE_INTEGER],
    ['9223372036854775808', Number.MAX_SAFE_INTEGER],
    ['9'.repeat(20), Number.MAX_SAFE_INTEGER],
  ])('%s is a whole number of seconds; a huge one is a time far in the future', (value, seconds) => {
    expect(expirationOf(expiring(value))).toBe(seconds);
  });

  it.each([
    '',
    ' ',
    'soon',
    '-1',
    '+1',
    '1.5',
    '1e3',
    '0x10',
    ' 1',
    '1 ',
    '1\n',
    '1\u0000',
    'NaN',
    'Infinity',
    '١٢٣',
    '1,000',
    '9'.repeat(21),
    '9'.repeat(10_000),
  ])('a malformed value (%j) is ignored: it never makes an event disappear', (value) => {
    expect(expirationOf(expiring(value))).toBeUndefined();
    expect(isExpired(expiring(value), Number.MAX_SAFE_INTEGER)).toBe(false);
  });

  it('the first of two tags counts, even when it is later or malformed', () => {
    const two = (first: string, second: string) =>
      expirationOf(
        eventWith([
          ['t', 'sea'],
          ['expiration', first],
          ['expiration', second],
        ]),
      );
    expect(two('5', '9')).toBe(5);
    expect(two('9', '5')).toBe(9);
    expect(two('soon', '5')).toBeUndefined();
  });

  it('a tag without a value, or with another name or case, is ignored', () => {
    for (const tag of [['expiration'], ['Expiration', '5'], ['expire', '5'], ['t', 'expiration', '5'], []]) {
      expect(expirationOf(eventWith([tag])), JSON.stringify(tag)).toBeUndefined();
    }
  });

  it('further values of the tag do not matter', () => {
    expect(expirationOf(eventWith([['expiration', '5', '9', 'x']]))).toBe(5);
  });
});

describe('isExpired', () => {
  it.each([
    [999, false],
    [1_000, true],
    [1_001, true],
  ])('an expiration at 1000 is expired at %i (I7): %s', (now, expired) => {
    expect(isExpired(expiring('1000'), now)).toBe(expired);
  });

  it('an event without expiration never expires, one of the year 1970 is always expired', () => {
    expect(isExpired(eventWith([]), Number.MAX_SAFE_INTEGER)).toBe(false);
    expect(isExpired(expiring('0'), 0)).toBe(true);
  });
});
