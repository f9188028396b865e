import { blake3 } from '@noble/hashes/blake3.js';
import { bytesToHex } from '@noble/hashes/utils.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import v1 from '../../test/vectors/topic-ids-v1.json' with { type: 'json' };
import { isTopic } from './rules.js';
import {
  globalTopic,
  gossipTopic,
  isTopicId,
  normaliseName,
  parseTopicId,
  TOPIC_VERSIONS,
  topicId,
} from './rules-id.js';

const MAIN = { networkId: 'kukuri:main:', namespace: 'kukuri' };
const HEX = '0123456789abcdef'.repeat(4);

it('the hash is BLAKE3, by its published vectors', () => {
  const input = (length: number) => Uint8Array.from({ length }, (_, at) => at % 251);
  expect(bytesToHex(blake3(input(0)))).toBe(
    'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262',
  );
  expect(bytesToHex(blake3(input(1_025)))).toBe(
    'd00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444',
  );
});

describe('version 1', () => {
  it.each(v1.vectors)('$about: $name in $networkId $namespace', (vector) => {
    const { name, networkId, namespace } = vector;
    expect(normaliseName(name)).toBe(vector.normalised);
    const id = topicId(name, { networkId, namespace, version: 'v1' });
    expect(id).toBe(vector.id);
    expect(bytesToHex(gossipTopic(vector.id, namespace))).toBe(vector.gossip);
  });

  it.each(v1.refused)('refuses $about', ({ name }) => {
    expect(topicId(name, MAIN)).toMatchObject({ refused: 'invalid' });
  });

  it('refuses a lone surrogate, which has no UTF-8 form', () => {
    for (const name of ['\ud800', 'har\udc00bour'])
      expect(topicId(name, MAIN)).toMatchObject({
        refused: 'invalid',
        why: expect.stringMatching('surrogate'),
      });
  });

  it('refuses a text that is far too long before normalising it', () => {
    expect(topicId(' '.repeat(5_000), MAIN)).toMatchObject({ why: expect.stringMatching('at most 256') });
  });

  it('refuses a run of marks that makes it too long before normalising it, and no shorter run', () => {
    const tooLong = { why: expect.stringMatching('at most 256') };
    const marked = (marks: number) => `a${'\u0327\u0301'.repeat(marks / 2)}`;
    expect(normaliseName(marked(4_000))).toMatchObject(tooLong);
    expect(normaliseName(marked(258))).toMatchObject(tooLong);
    expect(normaliseName(marked(254))).toBe(marked(254).normalize('NFKC'));
    // Three marks become one character with their letter: no character absorbs more.
    expect(normaliseName(`α\u0313\u0301\u0345${'\u0301'.repeat(255)}`)).toHaveLength(256);
  });

  it('has a vector for each pair of names that must give the same topic', () => {
    const ids = v1.vectors.map(({ id }) => id);
    expect(new Set(ids).size).toBeLessThan(ids.length - 8);
  });

  it('is the default version, and each version has its vectors', () => {
    expect(topicId('harbour', MAIN)).toBe(topicId('harbour', { ...MAIN, version: 'v1' }));
    expect(Object.keys(TOPIC_VERSIONS)).toEqual([v1.version]);
  });
});

describe('an id', () => {
  it.each([
    [`kukuri:${HEX}`, { type: 'hash', hex: HEX }],
    ['kukuri:global', { type: 'global' }],
    [`kukuri:user:${HEX}`, { type: 'user', pubkey: HEX }],
    ['', undefined],
    ['global', undefined],
    ['kukuri', undefined],
    ['kukuri:', undefined],
    ['kukuri:global ', undefined],
    ['kukuri:Global', undefined],
    ['kukuri:global:x', undefined],
    ['minato:global', undefined],
    ['xkukuri:global', undefined],
    [`kukuri:${HEX.toUpperCase()}`, undefined],
    [`kukuri:${HEX.slice(1)}`, undefined],
    [`kukuri:${HEX}0`, undefined],
    [`kukuri:${HEX}\n`, undefined],
    ['kukuri:user:', undefined],
    [`kukuri:user:${HEX}0`, undefined],
    [`kukuri:users:${HEX}`, undefined],
  ])('%j has the parts %j', (value, parts) => {
    expect(parseTopicId(value, 'kukuri')).toEqual(parts);
    expect(isTopicId(value, 'kukuri')).toBe(parts !== undefined);
  });

  it('of any name is well formed as a tag, and is its own id', () => {
    const name = fc.oneof(fc.string({ unit: 'binary', maxLength: 40 }), fc.string({ maxLength: 300 }));
    fc.assert(
      fc.property(name, fc.constantFrom('kukuri', 'minato'), (given, namespace) => {
        const id = topicId(given, { ...MAIN, namespace });
        if (typeof id !== 'string') return;
        expect(isTopicId(id, namespace) && isTopic(id)).toBe(true);
        expect(topicId(id, { networkId: 'another', namespace })).toBe(id);
        expect(gossipTopic(id, namespace)).toHaveLength(32);
      }),
      { seed: 7447, numRuns: 500 },
    );
  });

  it('of the global topic is reserved in its own namespace only', () => {
    expect(globalTopic('minato')).toBe('minato:global');
    expect(topicId('minato:global', { ...MAIN, namespace: 'minato' })).toBe('minato:global');
    expect(topicId('minato:global', MAIN)).toMatch(/^kukuri:[0-9a-f]{64}$/);
  });
});
