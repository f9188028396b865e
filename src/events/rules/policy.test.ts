import { describe, expect, it } from 'vitest';
import { EIGHTFOLD_MAX, growth } from '../../../test/support/models/growth.js';
import { WordMatcher } from '../../blocks/rules-words.js';
import { type SettingKey, settingsAsSet } from '../../communities/rules-settings.js';
import { answerOf } from '../../moderation/rules-match.js';
import { TEXT_LENGTH_MAX, Texts } from '../../moderation/rules-texts.js';
import { topicsOf } from '../../topics/rules.js';
import { ANONYMOUS } from './access.js';
import { KIND_MAX, type NostrEvent, parseEvent, serializeEvent } from './event.js';
import { type Arrival, policies, refuseArrival, refuseContent } from './policy.js';

const NOW = 1_700_000_000;
const BLOCKED = 'b'.repeat(64);
const TO_BOB = [['p', 'd'.repeat(64)]];
const good: NostrEvent = {
  id: `00${'f'.repeat(62)}`,
  pubkey: 'a'.repeat(64),
  created_at: NOW,
  kind: 1,
  tags: [['t', 'sea']],
  content: 'hello',
  sig: 'c'.repeat(128),
};

function arrivalOf(
  change: Partial<NostrEvent>,
  settings: Partial<Record<SettingKey, unknown>> = {},
): Arrival {
  const event = { ...good, ...change };
  const all = settingsAsSet(new Map(Object.entries(settings)));
  return {
    event,
    bytes: Buffer.byteLength(serializeEvent(event)),
    settings: all,
    topics: new Map(
      topicsOf(event).map((topic) => [topic, { enabled: topic !== 'closed', blocked: false, public: true }]),
    ),
    nowSeconds: NOW,
    sender: { access: ANONYMOUS, rules: { settings: all, topics: new Map(), refused: new Map() } },
    blocks: { authors: new Set([BLOCKED]), words: new WordMatcher(['rum']) },
  };
}

const read = (arrival: Arrival) =>
  answerOf(refuseContent({ ...arrival, texts: new Texts(arrival.event, arrival.settings) }));
/** The checks before the signature, then those after it. */
const judge = (arrival: Arrival) => refuseArrival(arrival) ?? read(arrival);
const refuse = (...arrival: Parameters<typeof arrivalOf>) => judge(arrivalOf(...arrival));

/** For each policy, in their order: an event and settings that only this policy refuses, and the reply. */
const CASES: {
  policy: string;
  change: Partial<NostrEvent>;
  settings?: Partial<Record<SettingKey, unknown>>;
  says: { refused: string; why: RegExp };
}[] = [
  {
    policy: 'refuseCredential',
    change: { kind: 22_242 },
    says: { refused: 'invalid', why: /22242.*credential/ },
  },
  {
    policy: 'refuseAccessControl',
    change: {
      kind: 39_020,
      tags: [
        ['t', 'a'],
        ['d', ''],
      ],
    },
    says: { refused: 'restricted', why: /^access control p2p-only$/ },
  },
  {
    policy: 'refuseMembershipRequest',
    change: { kind: 28_934, tags: [['claim', '']] },
    says: { refused: 'invalid', why: /claim tag/ },
  },
  {
    policy: 'refuseSender',
    change: { tags: [['t', 'sea'], ['-']] },
    says: { refused: 'auth-required', why: /NIP-70/ },
  },
  {
    policy: 'refuseBlockedAuthor',
    change: { pubkey: BLOCKED },
    says: { refused: 'blocked', why: /^this author is blocked$/ },
  },
  {
    policy: 'refuseSize',
    change: { content: 'x'.repeat(512) },
    settings: { 'limits.eventBytesMax': 512 },
    says: { refused: 'invalid', why: /512 bytes/ },
  },
  {
    policy: 'refuseTime',
    change: { created_at: NOW + 901 },
    says: { refused: 'invalid', why: /900 seconds in the future/ },
  },
  {
    policy: 'refuseExpired',
    change: {
      tags: [
        ['t', 'sea'],
        ['expiration', `${NOW}`],
      ],
    },
    says: { refused: 'invalid', why: /^expired$/ },
  },
  { policy: 'refuseMissingD', change: { kind: 30_023 }, says: { refused: 'invalid', why: /^missing d$/ } },
  {
    policy: 'refuseUnaddressed',
    change: { kind: 1_059, tags: [['p', 'somebody']] },
    says: { refused: 'invalid', why: /gift wrap.*p tag/ },
  },
  {
    policy: 'refusePow',
    change: {},
    settings: { 'limits.powBitsMin': 9 },
    says: { refused: 'pow', why: /8 bits.*9 are needed/ },
  },
  { policy: 'refuseTopic', change: { tags: [] }, says: { refused: 'invalid', why: /^missing topic: / } },
];

describe('policies', () => {
  it('are these, in this order', () => {
    expect(policies.map((policy) => policy.name)).toEqual(CASES.map((one) => one.policy));
  });

  it.each(CASES)('only $policy refuses this event, with its own reply', (one) => {
    const { policy, change, settings, says } = one;
    const arrival = arrivalOf(change, settings);
    expect(policies.filter((each) => each(arrival) !== undefined).map(({ name }) => name)).toEqual([policy]);
    expect(refuseArrival(arrival)).toEqual({ refused: says.refused, why: expect.stringMatching(says.why) });
    expect(read(arrival)).toBeUndefined();
  });

  it.each([
    [{ kind: 6, content: JSON.stringify({ ...good, tags: [['t', 'sea'], ['-']] }) }, /NIP-70/],
    [{ content: 'Rum for all' }, /a word that is blocked/],
  ])('none of them reads the content, which is read after the signature: %j', (change, why) => {
    const arrival = arrivalOf(change);
    expect(refuseArrival(arrival)).toBeUndefined();
    expect(read(arrival)).toEqual({ refused: 'blocked', why: expect.stringMatching(why) });
  });

  it('a topic that is not carried is refused with its own reply', () => {
    const refused = { refused: 'restricted', why: expect.stringMatching(/^topic not enabled: /) };
    expect(refuse({ tags: [['t', 'closed']] })).toEqual(refused);
    expect(refuse({ tags: [['t', 'closed']] }, { 'topic.mode': 'default' })).toEqual(refused);
    expect(refuse({ tags: [['t', 'closed']] }, { 'topic.mode': 'open' })).toBeUndefined();
  });

  it('a contact list and a list may be larger than another event', () => {
    const tags = (count: number) => [
      ['d', ''],
      ...Array.from({ length: count }, (_, at) => ['p', `${at}`.padStart(64, 'a'), 'wss://relay.example']),
    ];
    const byDefault = { 'topic.mode': 'open' };
    for (const kind of [3, 10_000, 10_002, 30_000, 39_089])
      expect(refuse({ kind, tags: tags(5_000) }, byDefault), `${kind}`).toBeUndefined();
    expect(refuse({ kind: 3, tags: tags(6_000) }, byDefault)?.why).toBe('event is larger than 524288 bytes');
    for (const kind of [0, 1, 5, 1_984, 20_000])
      expect(refuse({ kind, tags: tags(1_400) }, byDefault)?.why).toBe('event is larger than 98304 bytes');
    expect(
      refuse({ kind: 3, tags: tags(6_000) }, { ...byDefault, 'limits.eventBytesMax': 1_048_576 })?.why,
    ).toBe('tags are larger than 524288 bytes');
  });

  it('an addressable event without d is refused in required mode, and wherever the setting says so', () => {
    const missing = (settings: Partial<Record<SettingKey, unknown>>) =>
      refuse({ kind: 30_023 }, settings)?.why;
    expect(missing({})).toBe('missing d');
    for (const mode of ['default', 'open']) expect(missing({ 'topic.mode': mode })).toBeUndefined();
    for (const mode of ['required', 'default', 'open']) {
      expect(missing({ 'topic.mode': mode, 'events.missingD': 'refuse' })).toBe('missing d');
      expect(missing({ 'topic.mode': mode, 'events.missingD': 'empty' })).toBeUndefined();
    }
  });

  it('proof of work counts up to the target that the author committed to', () => {
    const work = (...nonce: string[]) =>
      refuse(
        {
          tags: [
            ['t', 'sea'],
            ['nonce', ...nonce],
          ],
        },
        { 'limits.powBitsMin': 8 },
      )?.why;
    for (const nonce of [[], ['1'], ['1', '8'], ['1', '20'], ['1', 'many']])
      expect(work(...nonce)).toBeUndefined();
    expect(work('1', '7')).toBe('7 bits of work, 8 are needed');
  });

  it('a repost that is nested deeper than an event can be is refused without being parsed', () => {
    const deep = `{"x":${'['.repeat(40_000)}${']'.repeat(40_000)},"tags":[["-"]]}`;
    expect(read(arrivalOf({ kind: 6, content: deep }))).toEqual({
      refused: 'invalid',
      why: expect.stringMatching(/too deep/),
    });
  });

  it('a repost passes that embeds nothing, an unprotected event, or no event at all', () => {
    const repost = (content: string, kind = 6) => refuse({ kind, content })?.refused;
    const secret = JSON.stringify({ ...good, tags: [['-']] });
    for (const content of ['', '{', '[]', '{"tags":7}', JSON.stringify(good), `quoted: ${secret}`])
      expect(repost(content)).toBeUndefined();
    for (const content of [secret, ` \n${secret}`, secret.replace('"-"', '"\\u002d"')]) {
      expect(repost(content)).toBe('blocked');
      expect(repost(content, 16)).toBe('blocked');
      expect(repost(content, 1)).toBeUndefined();
    }
  });

  it('none refuses a good event', () => {
    expect(refuse({})).toBeUndefined();
  });

  it('the first refusal is returned, and no later check runs', () => {
    const all = arrivalOf(
      {
        kind: 39_021,
        pubkey: BLOCKED,
        content: `rum gin ${'x'.repeat(600)}`,
        created_at: NOW + 10_000,
        tags: [['-'], ['expiration', '1']],
      },
      { 'limits.eventBytesMax': 512, 'limits.listBytesMax': 512, 'limits.powBitsMin': 200 },
    );
    const refusals = policies.filter((policy) => policy(all) !== undefined);
    // No event is of all kinds at once.
    const ofOtherKinds = ['refuseCredential', 'refuseMembershipRequest', 'refuseUnaddressed'];
    const names = CASES.map((one) => one.policy).filter((name) => !ofOtherKinds.includes(name));
    expect(refusals.map((policy) => policy.name)).toEqual(names);
    expect(refuseArrival(all)).toEqual(refusals[0]!(all));
  });
});

describe('the checks before the signature', () => {
  it('take at most linear time in the size of the event, whatever it contains', () => {
    const settings = { 'topic.mode': 'default', 'limits.powBitsMin': 8 };
    const made: Record<string, (length: number) => Partial<NostrEvent>> = {
      'many topics': (length) => ({ tags: Array.from({ length: length / 8 }, (_, at) => ['t', `x${at}`]) }),
      'one topic again and again': (length) => ({
        tags: Array.from({ length: length / 8 }, () => ['t', 'x']),
      }),
      'many values': (length) => ({
        tags: [
          ['t', 'sea'],
          ['x', ...Array.from({ length }, () => '')],
        ],
      }),
      'a gift wrap to nobody': (length) => ({
        kind: 1_059,
        tags: Array.from({ length: length / 8 }, () => ['p', 'x']),
      }),
      'digits of an expiration': (length) => ({
        tags: [
          ['t', 'sea'],
          ['expiration', '1'.repeat(length)],
        ],
      }),
      'marks in disorder': (length) => ({ content: '\u0301\u0327'.repeat(length / 2) }),
      brackets: (length) => ({ kind: 6, content: '{'.repeat(length) }),
      'what looks like JSON': (length) => ({ content: `[${'{"a":"b"},'.repeat(length / 10)}1]` }),
      escapes: (length) => ({ content: '\u0001"\\'.repeat(length / 3) }),
    };
    for (const [name, change] of Object.entries(made)) {
      const ratio = growth((length) => {
        const arrival = arrivalOf(change(length), settings);
        for (let times = 0; times < 4; times += 1) {
          const event = parseEvent(arrival.event) as NostrEvent;
          refuseArrival({ ...arrival, event, bytes: Buffer.byteLength(serializeEvent(event)) });
        }
      });
      expect(ratio, name).toBeLessThan(EIGHTFOLD_MAX);
    }
  });
});

describe('blocks', () => {
  it.each(['{"about":"hello\\nrum"}', '{"name":"r\\u0075m"}', '[["deep",{"inside":["rum"]}]]', '{"rum":1}'])(
    'find a word in a content that is JSON: %s',
    (content) => {
      expect(refuse({ content })).toMatchObject({ refused: 'blocked' });
    },
  );

  it.each(['{"about":"drum"}', '{not json', `${'['.repeat(50_000)}`, '{"__proto__":"x"}'])(
    'accept harmless or malformed JSON: %.20s',
    (content) => {
      expect(refuse({ content })).toBeUndefined();
    },
  );

  it('apply to every kind but a request to vanish, and words to no encrypted content', () => {
    const settings = { 'topic.mode': 'open' };
    for (const kind of [0, 1, 5, 1_984, 20_001, 30_023]) {
      const tags = [['d', '']];
      expect(refuse({ kind, tags, pubkey: BLOCKED }, settings)?.refused, `${kind}`).toBe('blocked');
      expect(refuse({ kind, tags, content: 'rum' }, settings)?.refused, `${kind}`).toBe('blocked');
    }
    expect(refuse({ kind: 62, pubkey: BLOCKED, content: 'rum' }, settings)).toBeUndefined();
    for (const kind of [4, 1_059])
      expect(refuse({ kind, tags: TO_BOB, content: 'a/rum+b?iv=c' }, settings)).toBeUndefined();
  });

  it('do not apply to events that the operator imports', () => {
    const { blocks: _, sender: __, ...arrival } = arrivalOf({ pubkey: BLOCKED, content: 'rum' });
    expect(judge(arrival)).toBeUndefined();
  });

  it('find a word in tags with readable text, and in no others', () => {
    const tagged = (...tag: string[]) => refuse({ tags: [['t', 'sea'], tag] })?.refused;
    for (const name of ['title', 'subject', 'summary', 'alt', 'content-warning', 'name', 'description', 't'])
      expect(tagged(name, 'buy rum'), name).toBe('blocked');
    expect(tagged('option', '1', 'Rum')).toBe('blocked');
    expect(tagged('imeta', 'url https://example.com/a.png', 'alt a bottle of rum')).toBe('blocked');
    for (const name of ['d', 'e', 'p', 'r', 'nonce']) expect(tagged(name, 'rum'), name).toBeUndefined();
    expect(tagged('title', 'drum')).toBeUndefined();
    expect(
      refuse({ kind: 4, tags: [...TO_BOB, ['subject', 'rum']] }, { 'topic.mode': 'open' }),
    ).toBeUndefined();
  });

  it.each(['\ufeff', '\u200b\u2060', ' \u00a0'])('find a word in JSON behind %j', (unseen) => {
    const content = `${unseen}{"name":"r\\u0075m"}`;
    expect(refuse({ content })?.refused).toBe('blocked');
    expect(refuse({ content: `${content}${unseen}` })?.refused).toBe('blocked');
  });

  it('refuse a text of which they do not read everything', () => {
    const settings = { 'limits.eventBytesMax': 1_048_576 };
    const after = (text: string) => refuse({ content: `${text} rum` }, settings)?.why;
    const dots = (length: number) => ' .'.repeat(length / 2);
    expect(after(dots(TEXT_LENGTH_MAX - 4))).toContain('a word that is blocked');
    expect(after(dots(TEXT_LENGTH_MAX))).toContain('longer than what is compared');
    // One character that becomes eighteen: 22 kB.
    expect(after('\ufdfa'.repeat(TEXT_LENGTH_MAX / 18 + 1))).toContain('longer than what is compared');
    expect(refuse({ content: dots(TEXT_LENGTH_MAX) }, settings)).toBeUndefined();
    const tags = [
      ['title', dots(TEXT_LENGTH_MAX)],
      ['summary', 'rum'],
    ];
    expect(
      refuse({ tags }, { ...settings, 'limits.tagBytesMax': 1_048_576, 'topic.mode': 'open' })?.why,
    ).toContain('longer than what is compared');
  });

  it('read a long text in steps', () => {
    const turns = (change: Partial<NostrEvent>) => {
      const arrival = arrivalOf(change);
      const texts = new Texts(arrival.event, arrival.settings);
      return [...refuseContent({ ...arrival, texts })].length;
    };
    expect(turns({ content: 'hello' })).toBe(0);
    // One plain text: it is normalised, checked for look-alikes and compared with the words piece by piece.
    expect(turns({ content: 'frее пиво and water '.repeat(5_000) })).toBeGreaterThan(50);
    expect(turns({ content: 'x'.repeat(98_000) })).toBeGreaterThan(20);
    expect(turns({ content: JSON.stringify(Array.from({ length: 9_000 }, () => ['a'])) })).toBeGreaterThan(
      10,
    );
    expect(turns({ tags: Array.from({ length: 1_000 }, () => ['title', 'x'.repeat(90)]) })).toBeGreaterThan(
      10,
    );
  });
});

describe('kinds that are never accepted', () => {
  it('are credentials, access control between members and events that the relay itself signs', () => {
    const settings = { 'topic.mode': 'open' };
    const refused: number[] = [];
    for (let kind = 0; kind <= KIND_MAX; kind += 1) {
      if (refuse({ kind, tags: [['d', ''], ['claim', 'x'], ...TO_BOB] }, settings) !== undefined)
        refused.push(kind);
    }
    // 28936, a request to leave, is refused because its author is not authenticated here.
    expect(refused).toEqual([22_242, 24_242, 27_235, 28_935, 28_936, 39_020, 39_021, 39_022]);
  });
});

describe('size', () => {
  it('an event of exactly the limit passes, one byte more does not; bytes, not characters', () => {
    const bytes = arrivalOf({ content: '🌊'.repeat(200) }).bytes;
    const settings = (max: number) => ({ 'limits.eventBytesMax': max });
    expect(refuse({ content: '🌊'.repeat(200) }, settings(bytes))).toBeUndefined();
    expect(refuse({ content: '🌊'.repeat(200) }, settings(bytes - 1))).toMatchObject({ refused: 'invalid' });
  });

  it('tags are counted', () => {
    const tags = (count: number) => Array.from({ length: count }, () => ['t', 'a']);
    expect(refuse({ tags: tags(3) }, { 'limits.tagsMax': 3 })).toBeUndefined();
    expect(refuse({ tags: tags(4) }, { 'limits.tagsMax': 3 })).toMatchObject({
      why: expect.stringContaining('3 tags'),
    });
  });

  it('the size of tags is that of their JSON, in bytes', () => {
    const tags = [['t', '🌊'.repeat(30)]];
    const bytes = Buffer.byteLength(JSON.stringify(tags));
    expect(refuse({ tags }, { 'limits.tagBytesMax': bytes })).toBeUndefined();
    expect(refuse({ tags }, { 'limits.tagBytesMax': bytes - 1 })).toMatchObject({
      why: expect.stringContaining('tags are larger'),
    });
  });
});

describe('time', () => {
  it('created_at may be ahead by at most the limit', () => {
    const settings = { 'limits.createdAheadSecondsMax': 60 };
    expect(refuse({ created_at: NOW + 60 }, settings)).toBeUndefined();
    expect(refuse({ created_at: NOW + 61 }, settings)).toMatchObject({ refused: 'invalid' });
    expect(refuse({ created_at: Number.MAX_SAFE_INTEGER }, settings)).toMatchObject({ refused: 'invalid' });
  });

  it('created_at may be behind by at most the limit; 0 means no limit', () => {
    const settings = { 'limits.createdBehindSecondsMax': 60 };
    expect(refuse({ created_at: NOW - 60 }, settings)).toBeUndefined();
    expect(refuse({ created_at: NOW - 61 }, settings)).toMatchObject({ refused: 'invalid' });
    expect(refuse({ created_at: 0 }, { 'limits.createdBehindSecondsMax': 0 })).toBeUndefined();
  });
});

describe('d', () => {
  it('an addressable event needs a d tag, which may be empty', () => {
    for (const kind of [30_000, 39_999]) {
      expect(
        refuse({
          kind,
          tags: [
            ['t', 'sea'],
            ['D', 'x'],
          ],
        }),
      ).toMatchObject({ why: 'missing d' });
      expect(
        refuse({
          kind,
          tags: [
            ['t', 'sea'],
            ['d', ''],
          ],
        }),
      ).toBeUndefined();
      expect(refuse({ kind, tags: [['t', 'sea'], ['d']] })).toBeUndefined();
    }
    expect(refuse({ kind: 29_999 })).toBeUndefined();
    expect(refuse({ kind: 40_000 })).toBeUndefined();
  });
});

describe('proof of work', () => {
  it('an id needs as many leading zero bits as the setting requires', () => {
    expect(refuse({}, { 'limits.powBitsMin': 8 })).toBeUndefined();
    expect(refuse({ id: `007f${'f'.repeat(60)}` }, { 'limits.powBitsMin': 9 })).toBeUndefined();
    expect(refuse({}, { 'limits.powBitsMin': 9 })).toMatchObject({ refused: 'pow' });
  });
});
