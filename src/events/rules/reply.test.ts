import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  closedFrame,
  countFrame,
  eoseFrame,
  eventFrameHead,
  isRefusal,
  noticeFrame,
  okFrame,
  outcomeOf,
  refusal,
  tooMany,
  words,
} from './reply.js';

const id = 'a'.repeat(64);
const hostile = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.constantFrom(
    '"',
    '\\',
    '","x',
    '"]',
    '],["OK"',
    '\u0000',
    '\n',
    '\u2028',
    '\ud800',
    '</script>',
    '🌊',
    '',
  ),
);
function each(check: (text: string) => void): void {
  const property = fc.property(hostile, (text) => {
    check(text);
  });
  fc.assert(property, { seed: 7447, numRuns: 200 });
}

it.each([
  [0, 1],
  [1, 1],
  [1_000, 1],
  [1_001, 2],
  [59_999, 60],
])('a client over its rate by %i ms must wait %i s: never too short', (retryAfterMs, seconds) => {
  const text = words(tooMany('events', retryAfterMs));
  expect(text).toBe(`rate-limited: too many events, try again in ${seconds} s`);
});

describe('OK', () => {
  it('is true without a message for an accepted event', () => {
    expect(JSON.parse(okFrame(id, 'stored'))).toEqual(['OK', id, true, '']);
    expect(JSON.parse(okFrame(id, 'broadcast'))).toEqual(['OK', id, true, '']);
  });

  it('is true with the prefix duplicate for an event that is already stored', () => {
    expect(JSON.parse(okFrame(id, 'duplicate'))).toEqual([
      'OK',
      id,
      true,
      expect.stringMatching(/^duplicate: ./),
    ]);
    expect(JSON.parse(okFrame(id, 'older'))).toEqual(['OK', id, true, 'duplicate: have a newer version']);
  });

  it('is false with prefix and reason for every refusal, even with the prefix duplicate (I2)', () => {
    each((why) => {
      expect(JSON.parse(okFrame(id, refusal('blocked', why)))).toEqual(['OK', id, false, `blocked: ${why}`]);
    });
    expect(JSON.parse(okFrame(id, refusal('duplicate', 'x')))[2]).toBe(false);
  });

  it('works for an id that is malformed', () => {
    each((wrong) => expect(JSON.parse(okFrame(wrong, 'stored'))).toEqual(['OK', wrong, true, '']));
  });
});

describe('the reply to a decision', () => {
  it.each([
    ['stored', true, ''],
    ['broadcast', true, ''],
    ['duplicate', true, 'duplicate: already have this event'],
    ['older', true, 'duplicate: have a newer version'],
    ['deleted', false, 'blocked: deleted by its author'],
    ['expired', false, 'invalid: expired'],
    ['gone', false, 'blocked: past retention'],
    ['crowdedOut', false, 'blocked: purged to make room'],
    ['vanished', false, 'blocked: its author asked to vanish'],
    ['removed', false, 'blocked: removed by a moderator'],
    ['overQuota', false, 'rate-limited: too many deletions today'],
  ] as const)('%s', (decision, accepted, message) => {
    expect(JSON.parse(okFrame(id, outcomeOf(decision)))).toEqual(['OK', id, accepted, message]);
  });

  it('an erased refusal says up to which time, or that nothing is accepted', () => {
    const reply = (upTo?: string | null) => outcomeOf('erased', upTo);
    expect([reply('2026-11-16T08:38:12Z'), reply(null), reply()]).toEqual([
      refusal('blocked', 'erased; what was signed up to 2026-11-16T08:38:12Z is refused'),
      refusal('blocked', 'erased; nothing of this key is taken in now'),
      refusal('blocked', 'erased'),
    ]);
  });
});

describe('frames of a subscription', () => {
  it('EOSE and CLOSED name the subscription exactly, whatever it is called', () => {
    each((name) => {
      expect(JSON.parse(eoseFrame(name, undefined))).toEqual(['EOSE', name]);
      expect(JSON.parse(closedFrame(name, refusal('invalid', name)))).toEqual([
        'CLOSED',
        name,
        `invalid: ${name}`,
      ]);
    });
  });

  it('EOSE has a hint (NIP-67): more, and with a cursor also finish', () => {
    expect(JSON.parse(eoseFrame('a', 'finish'))).toEqual(['EOSE', 'a']);
    expect(JSON.parse(eoseFrame('a', 'more'))).toEqual(['EOSE', 'a', ['more']]);
    expect(JSON.parse(eoseFrame('a', 'finish', 'c'))).toEqual(['EOSE', 'a', ['finish'], 'c']);
    expect(JSON.parse(eoseFrame('a', undefined, 'c'))).toEqual(['EOSE', 'a', [], 'c']);
  });

  it('the head of an EVENT frame and a payload make one frame', () => {
    each((name) => {
      const frame = `${eventFrameHead(name)}{"content":"\\"]"}]`;
      expect(JSON.parse(frame)).toEqual(['EVENT', name, { content: '"]' }]);
    });
  });

  it('COUNT says approximate only when it is', () => {
    each((name) => {
      expect(JSON.parse(countFrame(name, 3, false))).toEqual(['COUNT', name, { count: 3 }]);
      expect(JSON.parse(countFrame(name, 3, true))).toEqual(['COUNT', name, { count: 3, approximate: true }]);
    });
  });
});

describe('NOTICE', () => {
  it('has prefix and reason', () => {
    each((why) =>
      expect(JSON.parse(noticeFrame(refusal('error', why)))).toEqual(['NOTICE', `error: ${why}`]),
    );
  });
});

describe('isRefusal', () => {
  it('distinguishes a refusal from every other outcome', () => {
    expect(isRefusal(refusal('invalid', ''))).toBe(true);
    for (const other of [undefined, null, 'stored', 'refused', 0, [], {}, { tags: [] }]) {
      expect(isRefusal(other)).toBe(false);
    }
  });
});
