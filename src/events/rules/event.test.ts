import fc from 'fast-check';
import { getEventHash } from 'nostr-tools/pure';
import { describe, expect, it } from 'vitest';
import {
  firstTagValue,
  isHex64,
  isProtected,
  type NostrEvent,
  parseEvent,
  powBits,
  serializeEvent,
  signedPart,
  verbatimPreimage,
} from './event.js';
import { isRefusal } from './reply.js';

const SEED = 7447;
const good: NostrEvent = {
  id: '0123456789abcdef'.repeat(4),
  pubkey: 'f'.repeat(64),
  created_at: 1_700_000_000,
  kind: 1,
  tags: [['t', 'sea'], ['alone'], ['', '']],
  content: 'hello',
  sig: 'c'.repeat(128),
};

/** As it arrives on the wire: the field is written as the given JSON text. */
function parseWith(field: keyof NostrEvent, json: string) {
  const fields = Object.entries(good).map(
    ([key, value]) => `${JSON.stringify(key)}:${key === field ? json : JSON.stringify(value)}`,
  );
  return parseEvent(JSON.parse(`{${fields.join(',')}}`));
}

describe('parseEvent', () => {
  it('takes a good event as it is', () => {
    expect(parseEvent(JSON.parse(JSON.stringify(good)))).toEqual(good);
  });

  it.each(['null', '[]', '"text"', '1', 'true'])('refuses a value that is not an object: %s', (json) => {
    expect(parseEvent(JSON.parse(json))).toMatchObject({ refused: 'invalid' });
  });
  it('refuses undefined', () => {
    expect(parseEvent(undefined)).toMatchObject({ refused: 'invalid' });
  });

  it.each(Object.keys(good) as (keyof NostrEvent)[])('refuses an event without %s, and names it', (field) => {
    const { [field]: _, ...rest } = good;
    expect(parseEvent(rest)).toMatchObject({ refused: 'invalid', why: expect.stringContaining(field) });
  });

  const hex64 = 'a'.repeat(64);
  const bad: [keyof NostrEvent, string[]][] = [
    ['id', hexMistakes(64)],
    ['pubkey', hexMistakes(64)],
    ['sig', [...hexMistakes(128), `"${hex64}"`]],
    [
      'created_at',
      [
        '-1',
        '0.5',
        '1e-3',
        '9007199254740993',
        '1e16',
        '1e308',
        '1e999',
        '-1e999',
        '"1"',
        'null',
        'true',
        '[]',
        '{}',
      ],
    ],
    ['kind', ['65536', '1e5', '-1', '1.5', '1e999', '"1"', 'null', 'true', '[1]', '{}', '9007199254740993']],
    ['content', ['null', '1', 'true', '[]', '{}', '["a"]']],
    [
      'tags',
      [
        'null',
        '"t"',
        '{}',
        '1',
        '[[]]',
        '["t"]',
        '[null]',
        '[["t",1]]',
        '[["t",null]]',
        '[[["t"]]]',
        '[{}]',
        '[["t"],{"0":"t","length":1}]',
      ],
    ],
  ];
  it.each(bad.flatMap(([field, values]) => values.map((json) => [field, json] as const)))(
    'refuses %s that is %s',
    (field, json) => {
      expect(parseWith(field, json)).toMatchObject({
        refused: 'invalid',
        why: expect.stringContaining(field),
      });
    },
  );

  it.each([
    ['created_at', '0', 0],
    ['created_at', '1e3', 1_000],
    ['created_at', '1000.0', 1_000],
    ['created_at', '9007199254740991', Number.MAX_SAFE_INTEGER],
    ['kind', '65535', 65_535],
    ['kind', '1e3', 1_000],
  ] as const)('takes %s written as %s', (field, json, value) => {
    expect(parseWith(field, json)).toEqual({ ...good, [field]: value });
  });

  it.each(['created_at', 'kind'] as const)('reads %s -0 as 0, so that its bytes are those of 0', (field) => {
    const event = parseWith(field, '-0') as NostrEvent;
    expect(Object.is(event[field], 0)).toBe(true);
    expect(serializeEvent(event)).toEqual(serializeEvent({ ...good, [field]: 0 }));
  });

  it.each(['\\ud800', '\\udfff', 'x\\udc00\\ud800y', '\\ud83c'])('refuses a lone surrogate: %s', (text) => {
    for (const refused of [
      parseWith('content', `"${text}"`),
      parseWith('tags', `[["t","a"],["e","${text}"]]`),
    ]) {
      expect(refused).toMatchObject({ refused: 'invalid', why: expect.stringContaining('surrogate') });
    }
    expect(parseWith('tags', `[["${text}"]]`)).toMatchObject({ refused: 'invalid' });
  });
  it('takes surrogates in pairs', () => {
    expect(parseWith('content', '"\\ud83c\\udf0a"')).toEqual({ ...good, content: '🌊' });
  });

  it('drops every other key, __proto__ and toJSON among them', () => {
    const json = JSON.stringify(good).replace(
      '{',
      '{"__proto__":{"kind":7,"polluted":true},"toJSON":"x","constructor":1,"extra":[1],',
    );
    const event = parseEvent(JSON.parse(json)) as NostrEvent & { polluted?: boolean };
    expect(event).toEqual(good);
    expect(Object.keys(event).sort()).toEqual(Object.keys(good).sort());
    expect(Object.getPrototypeOf(event)).toBe(Object.prototype);
    expect(event.polluted).toBeUndefined();
    expect(JSON.parse(serializeEvent(event))).toEqual(good);
  });

  it('does not take a field from __proto__', () => {
    const { kind: _, ...rest } = good;
    const json = JSON.stringify(rest).replace('{', '{"__proto__":{"kind":7},');
    expect(parseEvent(JSON.parse(json))).toMatchObject({
      refused: 'invalid',
      why: expect.stringContaining('kind'),
    });
  });

  it('takes the last value of a repeated key, as JSON.parse does', () => {
    const json = JSON.stringify(good).replace('"kind":1', '"kind":1,"kind":2');
    expect(parseEvent(JSON.parse(json))).toEqual({ ...good, kind: 2 });
  });
});

it('64 lowercase hex characters are no others, whatever stands at one place', () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 63 }), fc.integer({ min: 0, max: 0xffff }), (at, code) => {
      const character = String.fromCharCode(code);
      const text = `${good.id.slice(0, at)}${character}${good.id.slice(at + 1)}`;
      expect(isHex64(text)).toBe('0123456789abcdef'.includes(character));
    }),
    {
      seed: SEED,
      numRuns: 2_000,
      examples: [
        [0, 0x61 + 128],
        [63, 0x161],
        [5, 0x30 + 256],
      ],
    },
  );
});

function hexMistakes(length: number): string[] {
  const hex = 'a'.repeat(length);
  return [
    '""',
    `"${hex.slice(1)}"`,
    `"${hex}a"`,
    `"${hex.slice(1)}A"`,
    `"${hex.slice(1)}g"`,
    `"${hex.slice(1)} "`,
    `"${hex}\\n"`,
    `"0x${hex.slice(2)}"`,
    '1',
    'null',
    `["${hex}"]`,
  ];
}

describe('isHex64', () => {
  it('is exact', () => {
    expect(isHex64('0'.repeat(64))).toBe(true);
    for (const json of hexMistakes(64)) expect(isHex64(JSON.parse(json)), json).toBe(false);
  });
});

/** Any well-formed text, often with characters that can be written in more than one way. */
const text = fc
  .array(
    fc.oneof(
      fc.string({ unit: 'binary', maxLength: 4 }),
      fc.constantFrom(
        ...[
          '\u0000',
          '\u0001',
          '\u0007',
          '\b',
          '\t',
          '\n',
          '\u000b',
          '\f',
          '\r',
          '\u001f',
          '\u007f',
          '\u0080',
        ],
        ...[
          '\u2028',
          '\u2029',
          '\ufeff',
          '\\',
          '"',
          '/',
          '\\u0001',
          '\\\\u0001',
          '\\n',
          '🌊',
          "'",
          '</script>',
        ],
      ),
    ),
    { maxLength: 8 },
  )
  .map((parts) => parts.join(''));
const hex = (bytes: number) =>
  fc.uint8Array({ minLength: bytes, maxLength: bytes }).map((array) => Buffer.from(array).toString('hex'));
const anyEvent: fc.Arbitrary<NostrEvent> = fc.record({
  id: hex(32),
  pubkey: hex(32),
  created_at: fc.maxSafeNat(),
  kind: fc.integer({ min: 0, max: 65_535 }),
  tags: fc.array(fc.array(text, { minLength: 1, maxLength: 4 }), { maxLength: 4 }),
  content: text,
  sig: hex(64),
});

const sha256 = async (input: string) =>
  Buffer.from(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(input))).toString('hex');

describe('serializeEvent', () => {
  it('the payload has the seven fields with exactly their values, through any number of round trips', () => {
    fc.assert(
      fc.property(anyEvent, (event) => {
        const payload = serializeEvent(event);
        const again = parseEvent(JSON.parse(payload));
        expect(again).toEqual(event);
        expect(isRefusal(again)).toBe(false);
        expect(serializeEvent(again as NostrEvent)).toBe(payload);
        expect(payload).toBe(JSON.stringify(event));
      }),
      { seed: SEED, numRuns: 300 },
    );
  });

  it('the payload holds no raw control character, so that lines can separate many of them', () => {
    fc.assert(
      fc.property(anyEvent, (event) => {
        // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it looks for
        expect(serializeEvent(event)).not.toMatch(/[\u0000-\u001f]/);
      }),
      { seed: SEED, numRuns: 300 },
    );
  });

  it('the preimage hashes to the id that nostr-tools gives', async () => {
    await fc.assert(
      fc.asyncProperty(anyEvent, async (event) => {
        expect(await sha256(signedPart(serializeEvent(event)).preimage)).toBe(
          getEventHash(structuredClone(event) as never),
        );
      }),
      { seed: SEED, numRuns: 300 },
    );
  });
});

/** NIP-01 read to the letter, character by character. */
function toTheLetter(value: string): string {
  const escapes: Record<string, string> = {
    '\n': '\\n',
    '"': '\\"',
    '\\': '\\\\',
    '\r': '\\r',
    '\t': '\\t',
    '\b': '\\b',
    '\f': '\\f',
  };
  return `"${[...value].map((character) => escapes[character] ?? character).join('')}"`;
}

describe('signedPart', () => {
  it('finds id, author and signature, whatever tags and content contain', () => {
    const hostile = [
      ',"content":',
      '","content":"',
      ',"tags":',
      '"}',
      ',"sig":"',
      '\\',
      '\\"',
      'content',
      ':',
    ];
    const text = fc.oneof(fc.constantFrom(...hostile), fc.string());
    const tags = fc.array(fc.array(text, { minLength: 1, maxLength: 4 }), { maxLength: 6 });
    fc.assert(
      fc.property(anyEvent, tags, fc.array(text), (event, otherTags, parts) => {
        const whole = { ...event, tags: otherTags, content: parts.join('') };
        const { pubkey, created_at, kind, content } = whole;
        expect(signedPart(serializeEvent(whole))).toEqual({
          id: whole.id,
          pubkey,
          sig: whole.sig,
          preimage: JSON.stringify([0, pubkey, created_at, kind, otherTags, content]),
        });
      }),
      { seed: SEED, numRuns: 500 },
    );
  });
});

describe('verbatimPreimage', () => {
  it('is the serialization of NIP-01 to the letter, or undefined when the two agree', () => {
    fc.assert(
      fc.property(anyEvent, (event) => {
        const tags = event.tags.map((tag) => `[${tag.map(toTheLetter).join(',')}]`).join(',');
        const head = `0,"${event.pubkey}",${event.created_at},${event.kind}`;
        const letter = `[${head},[${tags}],${toTheLetter(event.content)}]`;
        const { preimage } = signedPart(serializeEvent(event));
        expect(verbatimPreimage(preimage) ?? preimage).toBe(letter);
        expect(verbatimPreimage(preimage) === undefined).toBe(preimage === letter);
      }),
      { seed: SEED, numRuns: 500 },
    );
  });

  it.each([
    ['a control character', '\u0001', '\u0001'],
    ['the text of an escape', '\\u0001', undefined],
    ['a backslash before a control character', '\\\u0001', '\\\\\u0001'],
    ['two backslashes and the text of an escape', '\\\\u0001', undefined],
    ['the short escapes', '\b\t\n\f\r"\\', undefined],
    ['DEL and the line separators, which nobody escapes', '\u007f\u2028\u2029', undefined],
    ['all but the short ones', '\u0000\u000b\u001f', '\u0000\u000b\u001f'],
  ])('%s', (_, content, verbatim) => {
    expect(verbatimPreimage(JSON.stringify(content))).toBe(
      verbatim === undefined ? undefined : `"${verbatim}"`,
    );
  });
});

describe('tags', () => {
  const tagged = (...tags: string[][]): NostrEvent => ({ ...good, tags });

  it('firstTagValue is the value of the first tag of that name, empty when it has none', () => {
    expect(firstTagValue(tagged(['e', '1'], ['d', 'a', 'x'], ['d', 'b']), 'd')).toBe('a');
    expect(firstTagValue(tagged(['d'], ['d', 'b']), 'd')).toBe('');
    expect(firstTagValue(tagged(['D', 'a'], ['dd', 'b']), 'd')).toBeUndefined();
    expect(firstTagValue(tagged(), 'd')).toBeUndefined();
  });

  it('isProtected: a tag named - protects, with or without a value, wherever it stands (NIP-70)', () => {
    expect(isProtected(tagged(['-']))).toBe(true);
    expect(isProtected(tagged(['t', 'a'], ['-', 'x']))).toBe(true);
    expect(isProtected(tagged(['t', '-'], ['--'], ['']))).toBe(false);
    expect(isProtected(tagged())).toBe(false);
  });
});

describe('powBits', () => {
  it('counts the leading zero bits (NIP-13)', () => {
    for (let bits = 0; bits < 256; bits += 1) {
      const id = (1n << BigInt(255 - bits)).toString(16).padStart(64, '0');
      expect(powBits(id), id).toBe(bits);
    }
    expect(powBits('0'.repeat(64))).toBe(256);
    expect(powBits('f'.repeat(64))).toBe(0);
    expect(powBits(`0007${'f'.repeat(60)}`)).toBe(13);
  });
});
