import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { settingsFrom } from '../../communities/rules-settings.js';
import { type Filter, parseFilter } from '../../events/rules/filter.js';
import { isRefusal } from '../../events/rules/reply.js';
import { DAY_MS } from '../../events/rules/retention.js';
import {
  CHANGES_LOST,
  CURSOR_LENGTH_MAX,
  CursorMaker,
  OTHER_QUERY,
  queryText,
  refusePlace,
  takeCursor,
  UNKNOWN_CURSOR,
} from './cursor.js';
import { PositionSeal } from './sealed-position.js';

const NOW = 1_700_000_000_000;
const settings = settingsFrom(new Map());
const filter = (input: object): Filter => {
  const parsed = parseFilter(input, settings);
  if (isRefusal(parsed)) throw new Error(parsed.why);
  return parsed;
};
const maker = (secret = '11') => new CursorMaker(new PositionSeal(secret.repeat(32)), () => NOW);
const notes = [filter({ kinds: [1] })];
const place = { seq: 7, at: NOW - 5 };

describe('a cursor', () => {
  it('gives back its place to the same query of the same community', () => {
    const text = maker().cursorsOf(1, notes).at(place);
    expect(text.length).toBeLessThan(CURSOR_LENGTH_MAX);
    expect(maker().cursorsOf(1, notes).open(text)).toEqual({ ...place, givenAt: NOW });
  });

  it('of the largest position fits into a filter', () => {
    const seq = Number.MAX_SAFE_INTEGER;
    expect(maker().cursorsOf(2_147_483_647, notes).at({ seq, at: seq }).length).toBeLessThan(
      CURSOR_LENGTH_MAX,
    );
  });

  it('does not show its position', () => {
    const text = maker().cursorsOf(1, notes).at({ seq: 123_456_789, at: NOW });
    const [, sealed = ''] = text.split('.');
    expect(Buffer.from(sealed, 'base64url').toString('latin1')).not.toContain('123456789');
  });

  it('is unknown in another community and to a node with another secret', () => {
    const text = maker().cursorsOf(1, notes).at(place);
    expect(maker().cursorsOf(2, notes).open(text)).toBe(UNKNOWN_CURSOR);
    expect(maker('22').cursorsOf(1, notes).open(text)).toBe(UNKNOWN_CURSOR);
  });

  it('is refused for other filters, and for another view of the same', () => {
    const text = maker().cursorsOf(1, notes).at(place);
    expect(
      maker()
        .cursorsOf(1, [filter({ kinds: [7] })])
        .open(text),
    ).toBe(OTHER_QUERY);
    const view = { key: 'x', parties: undefined, topics: undefined, kinds: undefined };
    expect(
      maker()
        .cursorsOf(1, [{ ...notes[0]!, view }])
        .open(text),
    ).toBe(OTHER_QUERY);
  });

  it('that was changed in any character is refused, and no text breaks it', () => {
    const cursors = maker().cursorsOf(1, notes);
    const text = cursors.at(place);
    const opened = JSON.stringify(cursors.open(text));
    fc.assert(
      fc.property(fc.nat(text.length - 1), fc.constantFrom(...'aZ0-_.'), (at, letter) => {
        const changed = text.slice(0, at) + letter + text.slice(at + 1);
        const result = cursors.open(changed);
        // Some last characters of base64 hold bits that do not count.
        return isRefusal(result) || JSON.stringify(result) === opened;
      }),
    );
    fc.assert(fc.property(fc.string(), (any) => isRefusal(cursors.open(any))));
  });

  it('of one change is sealed once for all subscriptions', () => {
    const one = maker();
    const [a, b] = [one.cursorsOf(1, notes), one.cursorsOf(1, [filter({ kinds: [7] })])];
    expect(a.at(place).split('.')[1]).toBe(b.at(place).split('.')[1]);
    expect(a.at({ ...place, seq: 8 }).split('.')[1]).not.toBe(b.at(place).split('.')[1]);
  });
});

describe('the query of a cursor', () => {
  it('is the same for filters and values in any order, and for any limit', () => {
    const [a, b] = [{ kinds: [1, 7], '#t': ['x', 'y'] }, { authors: ['a'.repeat(64)] }];
    const mixed = [filter({ ...b, limit: 3 }), filter({ '#t': ['y', 'x'], kinds: [7, 1] })];
    expect(queryText([filter(a), filter(b)])).toBe(queryText(mixed));
  });

  it('differs for every condition', () => {
    const inputs = [
      {},
      { kinds: [] },
      { kinds: [1] },
      { ids: ['a'.repeat(64)] },
      { authors: ['a'.repeat(64)] },
      { '#e': ['a'.repeat(64)] },
      { '#p': ['a'.repeat(64)] },
      { since: 1 },
      { until: 1 },
      { since: 0 },
    ];
    expect(new Set(inputs.map((input) => queryText([filter(input)]))).size).toBe(inputs.length);
  });
});

describe('takeCursor', () => {
  it('takes one cursor for the whole REQ and leaves the filters', () => {
    expect(takeCursor([{ kinds: [1], cursor: 'x' }, { kinds: [7] }])).toEqual({
      inputs: [{ kinds: [1] }, { kinds: [7] }],
      cursor: 'x',
    });
    expect(takeCursor([{ kinds: [1] }, null, 3])).toEqual({
      inputs: [{ kinds: [1] }, null, 3],
      cursor: undefined,
    });
  });

  it('refuses what is no cursor, two of them, and one with a search', () => {
    const why = (...inputs: unknown[]) => {
      const taken = takeCursor(inputs);
      return isRefusal(taken) ? taken.refused : undefined;
    };
    expect(why({ cursor: 3 })).toBe('invalid');
    expect(why({ cursor: null })).toBe('invalid');
    expect(why({ cursor: 'x'.repeat(CURSOR_LENGTH_MAX + 1) })).toBe('invalid');
    expect(why({ cursor: 'x' }, { cursor: 'y' })).toBe('invalid');
    expect(why({ cursor: '', search: 'boats' })).toBe('unsupported');
    expect(why({ cursor: '' }, { search: 'boats' })).toBe('unsupported');
  });
});

describe('refusePlace', () => {
  const rules = { keptDays: 30, now: NOW };
  const given = { seq: 7, at: 500, givenAt: NOW - 1_000 };
  const kept = { anchor: { seq: 7, at: 500 }, floor: 3, head: 9 };

  it('accepts a place whose change is there', () => {
    expect(refusePlace(given, kept, rules)).toBeUndefined();
    expect(refusePlace({ ...given, givenAt: 0 }, kept, rules)).toBeUndefined();
  });

  it('refuses a place behind what is kept, and ahead of it', () => {
    expect(refusePlace(given, { ...kept, floor: 9 }, rules)).toBe(CHANGES_LOST);
    expect(refusePlace(given, { ...kept, head: 6 }, rules)).toBe(CHANGES_LOST);
  });

  it('refuses a position that another change has now: the database was restored', () => {
    expect(refusePlace(given, { ...kept, anchor: { seq: 7, at: 501 } }, rules)).toBe(CHANGES_LOST);
    expect(refusePlace({ ...given, at: 0 }, kept, rules)).toBe(CHANGES_LOST);
  });

  it('refuses a place whose change is missing among kept ones: it was erased', () => {
    expect(refusePlace(given, { ...kept, anchor: { seq: 6, at: 400 } }, rules)).toBe(CHANGES_LOST);
  });

  it('accepts the end of what is no longer kept, while the cursor is young', () => {
    const trimmed = { anchor: { seq: 7, at: 0 }, floor: 8, head: 7 };
    expect(refusePlace(given, trimmed, rules)).toBeUndefined();
    expect(refusePlace({ ...given, at: 0 }, trimmed, rules)).toBeUndefined();
    expect(refusePlace({ ...given, givenAt: NOW - 30 * DAY_MS }, trimmed, rules)).toBe(CHANGES_LOST);
  });

  it('accepts the beginning of an empty database', () => {
    const empty = { anchor: { seq: 0, at: 0 }, floor: 1, head: 0 };
    expect(refusePlace({ seq: 0, at: 0, givenAt: NOW }, empty, rules)).toBeUndefined();
  });
});
