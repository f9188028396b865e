/** Whether a signed event authenticates a request (NIP-98). */
import { describe, expect, it } from 'vitest';
import type { NostrEvent } from '../events/rules/event.js';
import {
  AUTH_SECONDS_MAX,
  findAuthProblem,
  KIND_HTTP_AUTH,
  normalizeHttpUrl,
  type SignedRequest,
} from './rules-http-auth.js';

const NOW = 1_700_000_000;
const URL_ASKED = 'https://node.example/v1/topics?limit=2';
const HASH = 'ab'.repeat(32);
const EMPTY = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

const eventWith = (over: Partial<NostrEvent> = {}): NostrEvent => ({
  id: '0'.repeat(64),
  pubkey: '1'.repeat(64),
  created_at: NOW,
  kind: KIND_HTTP_AUTH,
  tags: [
    ['u', URL_ASKED],
    ['method', 'GET'],
  ],
  content: '',
  sig: '2'.repeat(128),
  ...over,
});
const asked: SignedRequest = { method: 'GET', urls: [URL_ASKED], bodyHash: undefined, nowSeconds: NOW };
const tags = (...more: string[][]) => [['u', URL_ASKED], ['method', 'GET'], ...more];

describe('a signed request', () => {
  it('is valid if kind, time, method, URL and body are those of the request', () => {
    expect(findAuthProblem(eventWith(), asked)).toBeUndefined();
    const withBody = { ...asked, method: 'POST', bodyHash: HASH };
    const posted = eventWith({
      tags: [
        ['payload', HASH],
        ['method', 'POST'],
        ['u', URL_ASKED],
      ],
    });
    expect(findAuthProblem(posted, withBody)).toBeUndefined();
  });

  it('has kind 27235 and no other', () => {
    for (const kind of [1, 22_242, 24_242]) expect(findAuthProblem(eventWith({ kind }), asked)).toBe('kind');
  });

  it('is valid for 60 seconds in both directions, exactly', () => {
    for (const off of [-AUTH_SECONDS_MAX, AUTH_SECONDS_MAX]) {
      expect(findAuthProblem(eventWith({ created_at: NOW + off }), asked)).toBeUndefined();
      expect(findAuthProblem(eventWith({ created_at: NOW + off + Math.sign(off) }), asked)).toBe(
        'created_at',
      );
    }
  });

  it('has one method and one URL: a missing or repeated tag is refused', () => {
    expect(findAuthProblem(eventWith({ tags: [['u', URL_ASKED]] }), asked)).toBe('method');
    expect(findAuthProblem(eventWith({ tags: tags(['method', 'GET']) }), asked)).toBe('method');
    expect(findAuthProblem(eventWith({ tags: [['method', 'GET']] }), asked)).toBe('url');
    expect(findAuthProblem(eventWith({ tags: tags(['u', URL_ASKED]) }), asked)).toBe('url');
    expect(findAuthProblem(eventWith({ tags: tags(['u', 'https://other.example']) }), asked)).toBe('url');
  });

  it('has the hash of its body, if it has a body, and no other', () => {
    const withBody = { ...asked, bodyHash: HASH };
    expect(findAuthProblem(eventWith(), withBody)).toBe('payload');
    expect(findAuthProblem(eventWith({ tags: tags(['payload']) }), withBody)).toBe('payload');
    expect(findAuthProblem(eventWith({ tags: tags(['payload', EMPTY]) }), withBody)).toBe('payload');
    expect(findAuthProblem(eventWith({ tags: tags(['payload', HASH], ['payload', EMPTY]) }), withBody)).toBe(
      'payload',
    );
    expect(findAuthProblem(eventWith({ tags: tags(['payload', HASH]) }), asked)).toBe('payload');
    expect(findAuthProblem(eventWith({ tags: tags(['payload', EMPTY]) }), asked)).toBeUndefined();
  });
});

describe('URLs', () => {
  it.each([
    ['HTTPS://Node.Example/v1/topics', 'https://node.example:443/v1/topics/'],
    [
      'https://node.example/v1/topic-subscriptions/kukuri%3Aglobal',
      'https://node.example/v1/topic-subscriptions/kukuri:global',
    ],
    ['https://node.example/v1/x/%6b', 'https://node.example/v1/x/k'],
    ['wss://node.example/v1', 'https://node.example/v1'],
    ['https://node.example/v1/topics?', 'https://node.example/v1/topics'],
  ])('%s is %s', (one, other) => {
    expect(normalizeHttpUrl(one)).toBe(normalizeHttpUrl(other));
    expect(normalizeHttpUrl(one)).toBeDefined();
  });

  it.each([
    ['https://node.example/v1/topics', 'http://node.example/v1/topics'],
    ['https://node.example/v1/topics', 'https://node.example:8443/v1/topics'],
    ['https://node.example/v1/topics', 'https://node.example.org/v1/topics'],
    ['https://node.example/v1/topics', 'https://node.example/V1/topics'],
    ['https://node.example/v1/a%2Fb', 'https://node.example/v1/a/b'],
    ['https://node.example/v1/topics?a=1&b=2', 'https://node.example/v1/topics?b=2&a=1'],
    ['https://node.example/v1/topics?a=1', 'https://node.example/v1/topics'],
  ])('%s is not %s', (one, other) => {
    expect(normalizeHttpUrl(one)).not.toBe(normalizeHttpUrl(other));
  });

  it.each([
    '',
    'topics',
    '/v1/topics',
    'ftp://node.example/',
    'https://me@node.example/',
    'https://node.example/#a',
    'https://node.example/%zz',
  ])('%s is not a valid URL', (text) => {
    expect(normalizeHttpUrl(text)).toBeUndefined();
    expect(
      findAuthProblem(
        eventWith({
          tags: [
            ['u', text],
            ['method', 'GET'],
          ],
        }),
        { ...asked, urls: [text] },
      ),
    ).toBe('url');
  });
});
