/**
 * Everything a client can get wrong, as raw frames over a real socket: each frame gets its one answer, and
 * the relay keeps running.
 */
import { schnorr } from '@noble/curves/secp256k1.js';
import { verifyEvent } from 'nostr-tools/pure';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode, useWindow } from '../support/node.js';

let relay: TestNode;
let client: RawClient;
const alice = newAuthor();
const bob = newAuthor();

beforeAll(async () => {
  relay = await startTestNode();
  client = await RawClient.connect(relay.url);
});
afterAll(async () => {
  await client.close();
  await relay.close();
});

const community = () => relay.node.communities.find(undefined, 'default')!;

/** Writes a setting and waits until this instance applies it. */
async function set(key: SettingKey, value: unknown): Promise<void> {
  await writeSetting(relay.database.pool, community().id, key, value, Date.now());
  await expect.poll(() => community().settings[key], { timeout: 100_000 }).toEqual(value);
}

/** All frames that answer one message: those before the EOSE of a REQ sent right after it. */
async function answers(message: unknown, on = client): Promise<unknown[][]> {
  const from = on.frames.length;
  on.send(message);
  on.send(['REQ', 'barrier', { limit: 0 }]);
  await on.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === 'barrier', from);
  on.send(['CLOSE', 'barrier']);
  return on.frames.slice(from).filter((frame) => frame[1] !== 'barrier');
}

/** A COUNT may wait in another queue than the barrier. */
async function countOf(filter: object): Promise<unknown> {
  const from = client.frames.length;
  client.send(['COUNT', 'n', filter]);
  return (await client.waitFor((frame) => frame[0] === 'COUNT' && frame[1] === 'n', from))[2];
}

/** Frames before EOSE. An event that was accepted just before may still arrive live after it. */
let pages = 0;
async function page(...filters: object[]): Promise<unknown[]> {
  pages += 1;
  const id = `page ${pages}`;
  const from = client.frames.length;
  client.send(['REQ', id, ...filters]);
  const end = await client.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === id, from);
  client.send(['CLOSE', id]);
  const frames = client.frames.slice(from, client.frames.indexOf(end));
  return frames.flatMap((frame) => (frame[0] === 'EVENT' && frame[1] === id ? [frame[2]] : []));
}

/** The reply to an event written as text, so that a test can spell what JSON.stringify cannot. */
async function publishText(id: string, text: string): Promise<[boolean, string]> {
  const from = client.frames.length;
  client.send(`["EVENT",${text}]`);
  const frame = await client.waitFor((f) => f[0] === 'OK' && f[1] === id, from);
  return [frame[2] as boolean, frame[3] as string];
}

const invalid = expect.stringMatching(/^invalid: ./);
const REFUSED_INVALID = [false, invalid];

describe('frames', () => {
  it.each([
    ['text that is not JSON', 'hello'],
    ['an empty frame', ''],
    ['half a message', '["REQ","x"'],
    ['a byte order mark', '\ufeff["CLOSE","x"]'],
    ['JSON after JSON', '["CLOSE","x"]["CLOSE","x"]'],
    ['an object', '{"EVENT":1}'],
    ['a string', '"EVENT"'],
    ['a number', '1'],
    ['null', 'null'],
    ['an empty array', '[]'],
    ['an unknown verb', '["SING","x"]'],
    ['a verb in lower case', '["event",{}]'],
    ['a verb that is no string', '[["EVENT"],{}]'],
    ['a verb that is a property of every object', '["constructor",{}]'],
    ['EVENT alone', '["EVENT"]'],
    ['EVENT with null', '["EVENT",null]'],
    ['EVENT with a string', '["EVENT","x"]'],
    ['EVENT with an array', '["EVENT",[]]'],
    ['EVENT without an id', '["EVENT",{"kind":1}]'],
    ['EVENT with a number as id', '["EVENT",{"id":1}]'],
    ['EVENT whose id is inside __proto__', `["EVENT",{"__proto__":{"id":"${'a'.repeat(64)}"}}]`],
    ['REQ alone', '["REQ"]'],
    ['REQ with an empty subscription id', '["REQ","",{}]'],
    ['REQ with a number as subscription id', '["REQ",1,{}]'],
    ['REQ with null as subscription id', '["REQ",null,{}]'],
    ['COUNT with an object as id', '["COUNT",{},{}]'],
    ['CLOSE alone', '["CLOSE"]'],
    ['CLOSE with a number', '["CLOSE",1]'],
    ['AUTH without an event', '["AUTH","challenge"]'],
  ])('%s gets one NOTICE', async (_what, frame) => {
    expect(await answers(frame)).toEqual([['NOTICE', expect.stringMatching(/^(invalid|unsupported): ./)]]);
  });

  it('white space between the tokens of a frame means nothing', async () => {
    const event = sign(alice, { content: 'airy' });
    expect(await publishText(event.id, JSON.stringify(event, null, '\t'))).toEqual([true, '']);
    expect((await client.query({ ids: [event.id] })).events).toEqual([event]);
  });

  it('a binary frame gets a NOTICE, also when it holds a good message', async () => {
    const event = sign(alice);
    client.ws.send(Buffer.from(JSON.stringify(['EVENT', event])), { binary: true });
    expect(await answers(['CLOSE', 'nothing'])).toEqual([['NOTICE', invalid]]);
    expect((await client.query({ ids: [event.id] })).events).toEqual([]);
  });

  it.each([
    ['a lone continuation byte', [0x80]],
    ['an overlong slash', [0xc0, 0xaf]],
    ['a surrogate', [0xed, 0xa0, 0x80]],
    ['a cut character', [0xf0, 0x9f, 0x8c]],
  ])(
    'invalid UTF-8 in a text frame (%s) ends that connection with 1007 and no other',
    async (_what, bytes) => {
      const other = await RawClient.connect(relay.url);
      const text = Buffer.concat([
        Buffer.from('["REQ","x",{"#t":["'),
        Buffer.from(bytes),
        Buffer.from('"]}]'),
      ]);
      other.ws.send(text, { binary: false });
      await other.until(() => other.closed !== undefined);
      expect(other.closed?.code).toBe(1007);
      expect(other.frames).toEqual([]);
      expect(await client.publish(sign(newAuthor()))).toEqual([true, '']);
    },
  );

  it('negentropy (NIP-77) without an id gets a NOTICE, and a PING gets no answer', async () => {
    for (const frame of [['NEG-OPEN'], ['NEG-OPEN', 1, {}, '61'], ['NEG-MSG'], ['NEG-MSG', {}, '61']])
      expect(await answers(frame)).toEqual([['NOTICE', invalid]]);
    for (const frame of [['NEG-CLOSE', 'neg'], ['PING']]) expect(await answers(frame)).toEqual([]);
  });

  it('a frame over 786,432 bytes gets a NOTICE and the connection stays', async () => {
    const frame = (length: number) => `["CLOSE","${'x'.repeat(length - '["CLOSE",""]'.length)}"]`;
    expect(await answers(frame(786_432))).toEqual([]);
    expect(await answers(frame(786_433))).toEqual([['NOTICE', invalid]]);
    expect(await answers(frame(1_048_576))).toEqual([['NOTICE', invalid]]);
    expect(client.closed).toBeUndefined();
  });

  it('the size of a frame is counted in bytes, not in characters', async () => {
    expect(await answers(`["CLOSE","${'海'.repeat(300_000)}"]`)).toEqual([['NOTICE', invalid]]);
  });

  it('a frame over 1 MiB closes with 1009, whole or in fragments', async () => {
    const whole = await RawClient.connect(relay.url);
    whole.send('x'.repeat(1_048_577));
    await whole.until(() => whole.closed !== undefined);
    expect(whole.closed?.code).toBe(1009);
    const fragments = await RawClient.connect(relay.url);
    for (let sent = 0; sent < 5; sent++) fragments.ws.send('x'.repeat(262_144), { fin: false });
    await fragments.until(() => fragments.closed !== undefined);
    expect(fragments.closed?.code).toBe(1009);
    expect(await client.publish(sign(alice, { content: 'still here too' }))).toEqual([true, '']);
  });

  it('an event of more values than the relay parses gets its OK with the reason', async () => {
    await set('limits.messageBytesMax', 1_048_576);
    const event = sign(alice, { tags: Array.from({ length: 60_000 }, () => ['x', '']) });
    expect(await publishText(event.id, JSON.stringify(event))).toEqual([
      false,
      'invalid: message has more than 100000 values',
    ]);
  });

  it('JSON nested 200,000 deep is not parsed, whatever it is: the answer names the limit', async () => {
    const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
    await set('limits.messageBytesMax', 1_048_576);
    const deep = nested(200_000);
    const event = sign(alice, { content: 'shallow' });
    for (const message of [
      deep,
      '['.repeat(400_000),
      `["EVENT",${deep}]`,
      `["EVENT",{"id":${'{"id":'.repeat(100_000)}1${'}'.repeat(100_000)}}]`,
      `["REQ","deep",{"kinds":${deep}}]`,
      `["REQ","deep",{"#t":${deep}}]`,
    ])
      expect(await answers(message)).toEqual([
        ['NOTICE', 'invalid: message is nested deeper than 16 levels'],
      ]);
    for (const message of [
      `["EVENT",{"id":"${event.id}","tags":${deep}}]`,
      `["EVENT",{"extra":${deep},${JSON.stringify(event).slice(1)}]`,
    ])
      expect(await answers(message)).toEqual([
        ['OK', event.id, false, 'invalid: message is nested deeper than 16 levels'],
      ]);
    // At the allowed depth it gets its ordinary answer.
    const extra = `{"extra":${nested(14)},${JSON.stringify(event).slice(1)}`;
    expect(await answers(`["REQ","deep",{"#t":${nested(13)}}]`)).toEqual([['CLOSED', 'deep', invalid]]);
    expect(await publishText(event.id, extra)).toEqual([true, '']);
    expect((await client.query({ ids: [event.id] })).events).toEqual([event]);
    await set('limits.messageBytesMax', 786_432);
  });
});

describe('the shape of an event', () => {
  it.each<[string, Record<string, unknown>]>([
    ['id in upper case', { id: 'A'.repeat(64) }],
    ['id too short', { id: 'a'.repeat(63) }],
    ['id too long', { id: 'a'.repeat(65) }],
    ['id not hex', { id: 'g'.repeat(64) }],
    ['id with a line break after it', { id: `${'a'.repeat(64)}\n` }],
    ['id empty', { id: '' }],
    ['pubkey in upper case', { pubkey: alice.pubkey.toUpperCase().replace(/[0-9]/g, 'A') }],
    ['pubkey too short', { pubkey: alice.pubkey.slice(1) }],
    ['pubkey missing', { pubkey: undefined }],
    ['pubkey not on the curve', { pubkey: 'f'.repeat(64) }],
    ['sig in upper case', { sig: 'A'.repeat(128) }],
    ['sig too short', { sig: 'a'.repeat(127) }],
    ['sig missing', { sig: undefined }],
    ['sig of zeros', { sig: '0'.repeat(128) }],
    ['content missing', { content: undefined }],
    ['content null', { content: null }],
    ['content a number', { content: 1 }],
    ['tags missing', { tags: undefined }],
    ['tags null', { tags: null }],
    ['tags an object', { tags: {} }],
    ['tags a string', { tags: 't' }],
    ['a tag that is a string', { tags: ['t'] }],
    ['a tag without a name', { tags: [[]] }],
    ['a tag with a number', { tags: [['t', 1]] }],
    ['a tag with null', { tags: [['t', null]] }],
    ['a tag within a tag', { tags: [['t', ['x']]] }],
    ['kind missing', { kind: undefined }],
    ['kind a string', { kind: '1' }],
    ['kind 65536', { kind: 65_536 }],
    ['kind negative', { kind: -1 }],
    ['created_at a string', { created_at: '1' }],
    ['created_at true', { created_at: true }],
    ['created_at missing', { created_at: undefined }],
  ])('%s is refused with one OK false', async (_what, change) => {
    const event = { ...sign(alice), ...change };
    expect(await client.publish(event)).toEqual(REFUSED_INVALID);
    expect(await answers(['CLOSE', 'nothing'])).toEqual([]);
  });

  it.each([
    ['2^53 + 1', '9007199254740993'],
    ['2^63', '9223372036854775808'],
    ['a fraction', '1.5'],
    ['a negative number', '-1'],
    ['a number beyond every double', '1e400'],
    ['a huge number', '1e300'],
  ])('%s is no created_at and no kind', async (_what, number) => {
    const event = sign(alice, { created_at: 1_000 });
    const text = JSON.stringify(event);
    const created = text.replace('"created_at":1000', `"created_at":${number}`);
    const kind = text.replace('"kind":1', `"kind":${number}`);
    expect(created).not.toBe(text);
    expect(kind).not.toBe(text);
    expect(await publishText(event.id, created)).toEqual(REFUSED_INVALID);
    expect(await publishText(event.id, kind)).toEqual(REFUSED_INVALID);
  });

  it.each([
    [1_000, '1e3'],
    [1_001, '1001.0'],
    [1_002, '100.2E1'],
    [0, '-0'],
    [0, '0e5'],
  ])('a created_at of %i may be spelled %s, and is served in the plain way', async (created_at, spelling) => {
    const event = sign(alice, { created_at, content: spelling });
    const text = JSON.stringify(event).replace(/"created_at":\d+/, `"created_at":${spelling}`);
    expect(await publishText(event.id, text)).toEqual([true, '']);
    expect((await client.query({ ids: [event.id] })).events).toEqual([event]);
    expect(
      (await client.query({ since: created_at, until: created_at, authors: [alice.pubkey] })).events,
    ).toContainEqual(event);
  });

  it('of a doubled key the last one counts, and what is served has it once', async () => {
    const event = sign(alice, { content: 'the last' });
    const rest = JSON.stringify(event).slice(1);
    expect(await publishText(event.id, `{${rest.slice(0, -1)},"content":"another"}`)).toEqual(
      REFUSED_INVALID,
    );
    expect(await publishText(event.id, `{"content":"another","id":"${'0'.repeat(64)}",${rest}`)).toEqual([
      true,
      '',
    ]);
    expect((await client.query({ ids: [event.id] })).events).toEqual([event]);
  });

  it('keys beyond the seven are dropped, __proto__ among them', async () => {
    const event = sign(alice, { content: 'seven' });
    const extra =
      '"seen_on":["x"],"__proto__":{"content":"x","isAdmin":true},"constructor":1,"toJSON":1,' +
      '"refused":"x","why":"y"';
    expect(await publishText(event.id, `{${extra},${JSON.stringify(event).slice(1)}`)).toEqual([true, '']);
    const from = client.frames.length;
    const { events } = await client.query({ ids: [event.id] });
    expect(events).toEqual([event]);
    expect(Object.keys((client.frames[from]?.[2] ?? {}) as object).sort()).toEqual(Object.keys(event).sort());
    expect(Object.hasOwn(Object.prototype, 'isAdmin')).toBe(false);
  });

  it.each([
    ['content', '"content":"a\\ud800b"'],
    ['content, the other half', '"content":"\\udc00\\ud800"'],
    ['a tag value', '"content":"","tags":[["t","\\udfff"]]'],
    ['a tag name', '"content":"","tags":[["\\ud83c"]]'],
  ])('a lone surrogate in %s is refused, since no bytes could carry it', async (_where, fields) => {
    const { id, pubkey, sig } = sign(alice);
    const signed = `"id":"${id}","pubkey":"${pubkey}","sig":"${sig}"`;
    const text = `{${signed},"kind":1,"created_at":1,"tags":[],${fields}}`;
    expect(await publishText(id, text)).toEqual(REFUSED_INVALID);
  });

  it.each([
    ['U+0000', 'a\u0000b'],
    [
      'every control character',
      `${Array.from({ length: 32 }, (_, code) => String.fromCharCode(code)).join('')}\u007f\u0080\u009f`,
    ],
    ['line and paragraph separators', '\u2028\u2029\u0085'],
    ['quotes, backslashes and slashes', '"\\/\\"\\\\u0000 \\n'],
    ['characters outside the first plane', '🌊👩‍👩‍👧‍👦𝒳\u{10ffff}'],
    ['noncharacters and a byte order mark', '\ufeff\ufffe\uffff\ufffd'],
    ['composed and decomposed letters', 'é e\u0301 한 \u1112\u1161\u11ab'],
    ['text direction marks', '\u202e\u200f\u200b'],
  ])('%s in content and tags comes back so that the id still verifies', async (_what, content) => {
    const event = sign(alice, {
      content,
      tags: [
        ['x', content],
        ['alt', content, '', content],
      ],
    });
    expect(await client.publish(event)).toEqual([true, '']);
    const [served] = (await client.query({ ids: [event.id] })).events;
    expect(served).toEqual(event);
    expect(verifyEvent(served as typeof event)).toBe(true);
    expect((await client.query({ '#x': [content] })).events).toEqual([event]);
  });
});

describe('the limits of an event', () => {
  /** An event whose JSON has exactly this many bytes. */
  function ofBytes(bytes: number, filler: string): ReturnType<typeof sign> {
    const draft = { created_at: nowSeconds(), tags: [['n', filler]] };
    const left = bytes - Buffer.byteLength(JSON.stringify(sign(alice, { ...draft, content: '' })));
    const width = Buffer.byteLength(filler);
    const event = sign(alice, {
      ...draft,
      content: filler.repeat(Math.floor(left / width)) + 'a'.repeat(left % width),
    });
    expect(Buffer.byteLength(JSON.stringify(event))).toBe(bytes);
    return event;
  }

  it.each(['a', '海', '🌊'])('98,304 bytes of %s are accepted, one more is refused', async (filler) => {
    const largest = ofBytes(98_304, filler);
    expect(await client.publish(largest)).toEqual([true, '']);
    expect((await client.query({ ids: [largest.id] })).events).toEqual([largest]);
    expect(await client.publish(ofBytes(98_305, filler))).toEqual(REFUSED_INVALID);
  });

  it('10,000 tags are accepted, 10,001 are refused', async () => {
    const tags = (count: number) => Array.from({ length: count }, (_, at) => ['x', `${at}`]);
    const most = sign(alice, { kind: 10_001, tags: tags(10_000) });
    expect(await client.publish(most)).toEqual([true, '']);
    expect((await client.query({ '#x': ['9999'] })).events).toEqual([most]);
    expect(await client.publish(sign(alice, { kind: 10_001, tags: tags(10_001) }))).toEqual(REFUSED_INVALID);
  });

  it('a contact list of 5,000 is accepted; one over its limit is refused with the reason', async () => {
    const follows = (count: number) =>
      Array.from({ length: count }, (_, at) => ['p', `${at}`.padStart(64, 'a'), 'wss://relay.example']);
    const list = sign(alice, { kind: 3, tags: follows(5_000) });
    expect(await client.publish(list)).toEqual([true, '']);
    expect((await client.query({ kinds: [3], authors: [alice.pubkey] })).events).toEqual([list]);
    expect((await client.query({ '#p': [`${4_999}`.padStart(64, 'a')] })).events).toEqual([list]);
    expect(await client.publish(sign(alice, { kind: 3, tags: follows(6_000) }))).toEqual([
      false,
      'invalid: event is larger than 524288 bytes',
    ]);
    expect(await client.publish(sign(alice, { content: 'x'.repeat(700_000) }))).toEqual([
      false,
      'invalid: event is larger than 98304 bytes',
    ]);
  });

  it('created_at 14 minutes ahead is accepted, 16 minutes ahead is refused', async () => {
    expect(await client.publish(sign(alice, { created_at: nowSeconds() + 14 * 60 }))).toEqual([true, '']);
    expect(await client.publish(sign(alice, { created_at: nowSeconds() + 16 * 60 }))).toEqual(
      REFUSED_INVALID,
    );
  });

  it.each([22_242, 27_235, 24_242])('kind %i is a credential and never accepted', async (kind) => {
    const event = sign(alice, { kind });
    expect(await client.publish(event)).toEqual(REFUSED_INVALID);
    expect((await client.query({ ids: [event.id] })).events).toEqual([]);
  });

  it.each([39_020, 39_021, 39_022])('kind %i is refused as access control', async (kind) => {
    const words = [false, 'restricted: access control p2p-only'];
    expect(await client.publish(sign(alice, { kind, tags: [['d', 'x']] }))).toEqual(words);
    expect(await client.publish(sign(alice, { kind }))).toEqual(words);
  });

  it('a protected event is refused while its author has not authenticated', async () => {
    for (const tag of [['-'], ['-', 'x']]) {
      const event = sign(alice, { tags: [['t', 'x'], tag] });
      expect(await client.publish(event)).toEqual([false, expect.stringMatching(/^auth-required: ./)]);
      expect((await client.query({ ids: [event.id] })).events).toEqual([]);
    }
  });

  it('an addressable event needs a d tag where the setting says so; it may be empty', async () => {
    await set('events.missingD', 'refuse');
    expect(await client.publish(sign(bob, { kind: 30_023 }))).toEqual([false, 'invalid: missing d']);
    expect(await client.publish(sign(bob, { kind: 39_999, tags: [['D', 'x']] }))).toEqual([
      false,
      'invalid: missing d',
    ]);
    expect(await client.publish(sign(bob, { kind: 30_023, tags: [['d', '']] }))).toEqual([true, '']);
    expect(await client.publish(sign(bob, { kind: 30_024, tags: [['d']] }))).toEqual([true, '']);
    await set('events.missingD', 'auto');
  });

  it('an addressable event without d is the one whose d is empty, in open mode', async () => {
    const [older, newer] = [1_000, 2_000].map((created_at) => ({ kind: 30_025, created_at }));
    const bare = sign(bob, older!);
    expect(await client.publish(bare)).toEqual([true, '']);
    const named = sign(bob, { ...newer!, tags: [['d', '']] });
    expect(await client.publish(named)).toEqual([true, '']);
    expect((await client.query({ kinds: [30_025] })).events).toEqual([named]);
    expect((await client.publish(sign(bob, { ...older!, content: 'late' })))[1]).toMatch(/^duplicate: /);
    const request = sign(bob, { kind: 5, tags: [['a', `30025:${bob.pubkey}:`]] });
    expect(await client.publish(request)).toEqual([true, '']);
    expect((await client.query({ kinds: [30_025] })).events).toEqual([]);
  });
});

describe('id and signature', () => {
  const hexBytes = (hex: string) => Uint8Array.from(Buffer.from(hex, 'hex'));
  const signedBy = (id: string, secret: Uint8Array) =>
    Buffer.from(schnorr.sign(hexBytes(id), secret)).toString('hex');

  it('a wrong id is refused, also when its signature is good', async () => {
    const event = sign(alice, { content: 'original' });
    expect(await client.publish({ ...event, content: 'changed' } as typeof event)).toEqual(REFUSED_INVALID);
    const id = 'ab'.repeat(32);
    expect(await client.publish({ ...event, id, sig: signedBy(id, alice.secret) } as typeof event)).toEqual(
      REFUSED_INVALID,
    );
    expect((await client.query({ ids: [event.id, id] })).events).toEqual([]);
  });

  it('a wrong signature is refused and does not block the right one', async () => {
    const event = sign(alice, { content: 'signed' });
    const flipped = event.sig.slice(0, -1) + (event.sig.endsWith('0') ? '1' : '0');
    expect(await client.publish({ ...event, sig: flipped } as typeof event)).toEqual(REFUSED_INVALID);
    expect((await client.query({ ids: [event.id] })).events).toEqual([]);
    expect(await client.publish(event)).toEqual([true, '']);
    expect((await client.query({ ids: [event.id] })).events).toEqual([event]);
  });

  it("someone else's signature is refused", async () => {
    const event = sign(alice, { content: 'not by bob' });
    expect(await client.publish({ ...event, sig: signedBy(event.id, bob.secret) } as typeof event)).toEqual(
      REFUSED_INVALID,
    );
    expect(await client.publish({ ...event, pubkey: bob.pubkey } as typeof event)).toEqual(REFUSED_INVALID);
    expect((await client.query({ ids: [event.id] })).events).toEqual([]);
  });

  it('a repeat of a stored event with another signature changes nothing of what is served', async () => {
    const event = sign(alice, { content: 'kept' });
    expect(await client.publish(event)).toEqual([true, '']);
    await client.publish({ ...event, sig: '0'.repeat(128) } as typeof event);
    await client.publish({ ...event, content: 'other' } as typeof event);
    expect((await client.query({ ids: [event.id] })).events).toEqual([event]);
  });

  it('each EVENT of a burst gets exactly one OK, and it is the right one', async () => {
    const sender = await RawClient.connect(relay.url);
    const author = newAuthor();
    const good = Array.from({ length: 200 }, (_, at) =>
      sign(author, { content: `burst ${at}`, kind: at % 10 === 0 ? 20_001 : 1 }),
    );
    const unsigned = (prefix: string, at: number, change: object) => ({
      ...good[at]!,
      id: prefix + at.toString(16).padStart(64 - prefix.length, '0'),
      ...change,
    });
    const messages = good.flatMap((event, at) => {
      const frames: { event: { id: string }; accepted: boolean }[] = [{ event, accepted: true }];
      if (at % 2 === 0) frames.push({ event, accepted: true });
      if (at % 4 === 0) frames.push({ event: unsigned('bad0', at, {}), accepted: false });
      if (at % 4 === 1) frames.push({ event: unsigned('bad1', at, { kind: 'x' }), accepted: false });
      if (at % 4 === 2) frames.push({ event: unsigned('bad2', at, { kind: 39_020 }), accepted: false });
      if (at % 4 === 3)
        frames.push({ event: unsigned('bad3', at, { sig: 'f'.repeat(128) }), accepted: false });
      return frames;
    });
    expect(messages).toHaveLength(500);
    for (const { event } of messages) sender.send(['EVENT', event]);
    await sender.until(() => sender.frames.length >= messages.length);
    await answers(['CLOSE', 'nothing'], sender);
    const oks = sender.frames.filter((frame) => frame[0] === 'OK');
    const told = (id: string) => oks.filter((frame) => frame[1] === id).map((frame) => frame[2]);
    for (const { event, accepted } of messages) {
      const sent = messages.filter((message) => message.event.id === event.id).length;
      expect(told(event.id)).toEqual(new Array(sent).fill(accepted));
    }
    expect(oks).toHaveLength(500);
    expect(oks.filter((frame) => frame[3] === '')).toHaveLength(200);
    expect(oks.filter((frame) => String(frame[3]).startsWith('duplicate: '))).toHaveLength(100);
    expect((await sender.query({ authors: [author.pubkey], kinds: [1] })).events).toHaveLength(180);
    await sender.close();
  });
});

describe('filters', () => {
  const hex = 'a'.repeat(64);
  const unsupported = expect.stringMatching(/^unsupported: ./);
  const refusedFilters: [string, unknown[], unknown][] = [
    ['no filter', [], invalid],
    ['null as filter', [null], invalid],
    ['an array as filter', [[]], invalid],
    ['a string as filter', ['x'], invalid],
    ['a prefix as id', [{ ids: [hex.slice(0, 8)] }], invalid],
    ['an id in upper case', [{ ids: [hex.toUpperCase()] }], invalid],
    ['an id that is no string', [{ ids: [1] }], invalid],
    ['ids that are no list', [{ ids: hex }], invalid],
    ['ids null', [{ ids: null }], invalid],
    ['a prefix as author', [{ authors: [hex.slice(0, 63)] }], invalid],
    ['an author in upper case', [{ authors: [hex.toUpperCase()] }], invalid],
    ['kinds with a fraction', [{ kinds: [1.5] }], invalid],
    ['kinds with a negative number', [{ kinds: [-1] }], invalid],
    ['kinds with 65536', [{ kinds: [65_536] }], invalid],
    ['kinds with a string', [{ kinds: ['1'] }], invalid],
    ['kinds that are no list', [{ kinds: 1 }], invalid],
    ['since as a string', [{ since: '0' }], invalid],
    ['since with a fraction', [{ since: 0.5 }], invalid],
    ['until null', [{ until: null }], invalid],
    ['until beyond exact integers', [{ until: 2 ** 53 }], invalid],
    ['a negative limit', [{ limit: -1 }], invalid],
    ['a limit with a fraction', [{ limit: 1.5 }], invalid],
    ['a limit as a string', [{ limit: '5' }], invalid],
    ['a tag value that is no string', [{ '#t': [1] }], invalid],
    ['tag values that are no list', [{ '#t': 'x' }], invalid],
    ['tag values null', [{ '#t': null }], invalid],
    ['an unknown field', [{ nonsense: 'boats' }], unsupported],
    ['a search that is no text', [{ search: ['boats'] }], invalid],
    ['a search of 257 characters', [{ search: 'a'.repeat(257) }], invalid],
    ['a search of 17 words', [{ search: 'boat '.repeat(17) }], invalid],
    ['a tag of two letters', [{ '#tt': ['x'] }], unsupported],
    ['a tag without a letter', [{ '#': ['x'] }], unsupported],
    ['a tag of another alphabet', [{ '#é': ['x'] }], unsupported],
    ['a digit as tag', [{ '#1': ['x'] }], unsupported],
    ['__proto__', [JSON.parse('{"__proto__":{"kinds":[1]}}')], unsupported],
    ['one bad filter among good ones', [{ kinds: [1] }, { kinds: ['1'] }], invalid],
    ['101 filters', Array.from({ length: 101 }, () => ({ kinds: [1] })), invalid],
    ['5,001 values', [{ '#t': Array.from({ length: 5_001 }, (_, at) => `${at}`) }], invalid],
    [
      '5,001 values over several fields',
      [{ kinds: Array.from({ length: 5_000 }, (_, at) => at), '#t': ['x'] }],
      invalid,
    ],
  ];

  it.each(refusedFilters)('a REQ with %s gets CLOSED and nothing else', async (_what, filters, words) => {
    expect(await answers(['REQ', 'bad', ...filters])).toEqual([['CLOSED', 'bad', words]]);
  });

  it.each(refusedFilters)('a COUNT with %s is refused as the REQ is', async (_what, filters, words) => {
    expect(await answers(['COUNT', 'bad', ...filters])).toEqual([['CLOSED', 'bad', words]]);
  });

  it('100 filters, and 5,000 values in one, are within the limits', async () => {
    const values = Array.from({ length: 5_000 }, (_, at) => `many ${at}`);
    const event = sign(bob, { tags: [['t', 'many 4999']] });
    await client.publish(event);
    expect(await client.query({ '#t': values })).toEqual({ events: [event] });
    const filters = Array.from({ length: 100 }, (_, at) => ({ '#t': [`many ${4_900 + at}`] }));
    expect(await client.query(...filters)).toEqual({ events: [event] });
  });

  it('a subscription id of 64 characters is good, of 65 it is closed', async () => {
    expect(await answers(['REQ', 'i'.repeat(64), { kinds: [7_777] }])).toEqual([['EOSE', 'i'.repeat(64)]]);
    expect(await answers(['REQ', 'i'.repeat(65), { kinds: [7_777] }])).toEqual([
      ['CLOSED', 'i'.repeat(65), invalid],
    ]);
    expect(await answers(['COUNT', 'i'.repeat(65), {}])).toEqual([['CLOSED', 'i'.repeat(65), invalid]]);
    client.send(['CLOSE', 'i'.repeat(64)]);
  });

  it.each(['REQ', 'COUNT'])('of a longer id only the beginning is given back: %s', async (verb) => {
    for (const length of [257, 100_000])
      expect(await answers([verb, 'i'.repeat(length), { kinds: [1] }])).toEqual([
        ['CLOSED', 'i'.repeat(256), 'invalid: subscription id is longer than 64 characters'],
      ]);
  });

  it('a subscription id is given back as it came', async () => {
    const id = '"\\\u0000\u2028🌊';
    expect(await answers(['REQ', id, { kinds: [7_777] }])).toEqual([['EOSE', id]]);
    client.send(['CLOSE', id]);
  });

  it('the 201st subscription is closed; a replaced one does not count, and CLOSE makes room', async () => {
    const reader = await RawClient.connect(relay.url);
    const open = async (id: string) => {
      const from = reader.frames.length;
      reader.send(['REQ', id, { kinds: [7_777] }]);
      return (await reader.waitFor((frame) => frame[1] === id, from))[0];
    };
    for (let at = 1; at <= 200; at++) expect(await open(`s${at}`)).toBe('EOSE');
    const from = reader.frames.length;
    expect(await open('s201')).toBe('CLOSED');
    expect(reader.frames[from]?.[2]).toMatch(/^rate-limited: ./);
    expect(await open('s7')).toBe('EOSE');
    reader.send(['CLOSE', 's1']);
    expect(await open('s201')).toBe('EOSE');
    await reader.close();
  });

  it('CLOSE of an unknown subscription is silent', async () => {
    expect(await answers(['CLOSE', 'never opened'])).toEqual([]);
  });

  it('a REQ with the id of an open subscription replaces it', async () => {
    const reader = await RawClient.connect(relay.url);
    await answers(['REQ', 'same', { '#t': ['before'], limit: 0 }], reader);
    await answers(['REQ', 'same', { '#t': ['after'], limit: 0 }], reader);
    await client.publish(sign(bob, { tags: [['t', 'before']] }));
    const event = sign(bob, { tags: [['t', 'after']] });
    await client.publish(event);
    await reader.waitFor((frame) => frame[0] === 'EVENT');
    expect(reader.frames.filter((frame) => frame[0] === 'EVENT')).toEqual([['EVENT', 'same', event]]);
    await reader.close();
  });

  it('a refused REQ leaves no subscription behind under its id', async () => {
    const reader = await RawClient.connect(relay.url);
    await answers(['REQ', 'gone', { '#t': ['gone'], limit: 0 }], reader);
    await answers(['REQ', 'mark', { '#t': ['gone'], limit: 0 }], reader);
    expect(await answers(['REQ', 'gone', { '#t': 'gone' }], reader)).toEqual([['CLOSED', 'gone', invalid]]);
    await client.publish(sign(bob, { tags: [['t', 'gone']] }));
    await reader.waitFor((frame) => frame[0] === 'EVENT');
    await answers(['CLOSE', 'nothing'], reader);
    expect(reader.frames.filter((frame) => frame[0] === 'EVENT').map((frame) => frame[1])).toEqual(['mark']);
    await reader.close();
  });

  it('limit 0 is EOSE at once, then live', async () => {
    const reader = await RawClient.connect(relay.url);
    await answers(['REQ', 'mark', { '#t': ['zero'] }], reader);
    const stored = sign(bob, { tags: [['t', 'zero']] });
    await client.publish(stored);
    // Once it was delivered live, every later subscription sees it as stored.
    await reader.waitFor((frame) => frame[0] === 'EVENT' && frame[1] === 'mark');
    expect(await answers(['REQ', 'zero', { '#t': ['zero'], limit: 0 }], reader)).toEqual([['EOSE', 'zero']]);
    const event = sign(bob, { tags: [['t', 'zero']], content: 'live' });
    await client.publish(event);
    const isForZero = (frame: unknown[]) => frame[0] === 'EVENT' && frame[1] === 'zero';
    expect(await reader.waitFor(isForZero)).toEqual(['EVENT', 'zero', event]);
    await reader.close();
  });

  it('an empty list matches nothing, neither stored nor live', async () => {
    const reader = await RawClient.connect(relay.url);
    for (const filter of [
      { kinds: [] },
      { ids: [] },
      { authors: [] },
      { '#t': [] },
      { kinds: [1], '#t': [] },
    ]) {
      expect(await answers(['REQ', 'none', filter], reader)).toEqual([['EOSE', 'none']]);
      await answers(['REQ', 'mark', { kinds: [1], limit: 0 }], reader);
      const from = reader.frames.length;
      await client.publish(sign(newAuthor(), { tags: [['t', 'x']] }));
      await reader.waitFor((frame) => frame[1] === 'mark', from);
      await answers(['CLOSE', 'nothing'], reader);
      expect(reader.frames.filter((frame) => frame[0] === 'EVENT' && frame[1] === 'none')).toEqual([]);
      expect(await answers(['COUNT', 'c', filter], reader)).toEqual([['COUNT', 'c', { count: 0 }]]);
    }
    await reader.close();
  });

  it('since and until are inclusive, also at 0, stored and live', async () => {
    const reader = await RawClient.connect(relay.url);
    const author = newAuthor();
    const times = [0, 1, 2, 3];
    const authors = [author.pubkey];
    const cases: [object, number[]][] = [
      [{ until: 0 }, [0]],
      [{ since: 0 }, [3, 2, 1, 0]],
      [{ since: 0, until: 0 }, [0]],
      [{ since: 1, until: 2 }, [2, 1]],
      [{ since: 3 }, [3]],
      [{ until: 2 }, [2, 1, 0]],
      [{ since: 2, until: 1 }, []],
      [{ since: -5, until: -1 }, []],
      [{ since: -1, until: 1 }, [1, 0]],
    ];
    for (const [at, [filter]] of cases.entries()) {
      await answers(['REQ', `live ${at}`, { ...filter, authors }], reader);
    }
    for (const created_at of times) await client.publish(sign(author, { created_at }));
    const total = cases.flatMap(([, expected]) => expected).length;
    await reader.until(() => reader.frames.filter((frame) => frame[0] === 'EVENT').length >= total);
    for (const [at, [filter, expected]] of cases.entries()) {
      const stored = (await client.query({ ...filter, authors })).events as unknown as {
        created_at: number;
      }[];
      expect(stored.map((event) => event.created_at)).toEqual(expected);
      const live = reader.frames.filter((frame) => frame[0] === 'EVENT' && frame[1] === `live ${at}`);
      expect(live.map((frame) => (frame[2] as { created_at: number }).created_at)).toEqual(
        expected.toReversed(),
      );
    }
    await reader.close();
  });

  it('several filters give their union, each event once, newest first, then lowest id', async () => {
    const author = newAuthor();
    const other = newAuthor();
    const events = Array.from({ length: 12 }, (_, at) =>
      sign(at % 2 === 0 ? author : other, {
        created_at: 1_000 + (at % 3),
        tags: [['t', 'union']],
        content: `${at}`,
      }),
    );
    for (const event of events) await client.publish(event);
    const ordered = events.toSorted((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1));
    const authors = [author.pubkey, other.pubkey];
    for (const filters of [
      [{ authors }],
      [{ '#t': ['union'] }],
      [{ ids: events.map((event) => event.id) }],
      [{ authors, kinds: [1] }],
      [{ authors: [author.pubkey] }, { authors: [other.pubkey] }],
      [{ authors }, { '#t': ['union'] }, { ids: [events[0]!.id] }, { authors: [other.pubkey], limit: 2 }],
    ]) {
      expect(await page(...filters)).toEqual(ordered);
    }
    expect(await page({ authors, limit: 5 })).toEqual(ordered.slice(0, 5));
    const own = (pubkey: string, limit: number) =>
      ordered.filter((event) => event.pubkey === pubkey).slice(0, limit);
    const limited = await page({ authors: [author.pubkey], limit: 1 }, { authors: [other.pubkey], limit: 2 });
    const wanted = [...own(author.pubkey, 1), ...own(other.pubkey, 2)];
    expect(limited).toEqual(ordered.filter((event) => wanted.includes(event)));
  });

  it('tags of different letters must all match, values of one letter any', async () => {
    const author = newAuthor();
    const [both, first, second] = [
      [
        ['p', 'a'],
        ['e', 'b'],
      ],
      [['p', 'a']],
      [
        ['e', 'b'],
        ['p', 'c'],
      ],
    ].map((tags) => sign(author, { tags }));
    for (const event of [both!, first!, second!]) await client.publish(event);
    const authors = [author.pubkey];
    const ids = async (filter: object) => (await client.query(filter)).events.map((event) => event.id).sort();
    expect(await ids({ authors, '#p': ['a'], '#e': ['b'] })).toEqual([both!.id]);
    expect(await ids({ '#p': ['a', 'c'], '#e': ['b'] })).toEqual([both!.id, second!.id].sort());
    expect(await ids({ authors, '#p': ['a', 'c'] })).toEqual([both!.id, first!.id, second!.id].sort());
  });

  it('superseded versions and events that match twice do not make a page short', async () => {
    const author = newAuthor();
    for (let version = 0; version < 5; version++) {
      for (const d of ['a', 'b', 'c', 'd', 'e', 'f']) {
        const tags = [
          ['d', d],
          ['t', 'page'],
          ['t', 'book'],
          ['t', 'page'],
        ];
        expect(
          (await client.publish(sign(author, { kind: 30_023, created_at: 1_000 + version, tags })))[0],
        ).toBe(true);
      }
    }
    for (const filter of [
      { authors: [author.pubkey] },
      { authors: [author.pubkey], kinds: [30_023, 1] },
      { '#t': ['page', 'book'] },
      { '#d': ['a', 'b', 'c', 'd', 'e', 'f'], authors: [author.pubkey] },
    ]) {
      for (const limit of [4, 6, 10]) {
        const events = (await page({ ...filter, limit })) as { id: string }[];
        expect(events).toHaveLength(Math.min(limit, 6));
        expect(new Set(events.map((event) => event.id)).size).toBe(events.length);
      }
    }
  });

  it('an answer of several megabytes comes whole and in order', async () => {
    const author = newAuthor();
    const events = Array.from({ length: 40 }, (_, at) =>
      sign(author, { created_at: 2_000 - at, content: `${at}`.padEnd(60_000, 'x') }),
    );
    for (const event of events) client.send(['EVENT', event]);
    await client.waitFor((frame) => frame[0] === 'OK' && frame[1] === events.at(-1)?.id);
    expect((await client.query({ authors: [author.pubkey] })).events).toEqual(events);
  });

  it('a filter without limit gives 500, and a larger limit is lowered to 5,000', async () => {
    const author = newAuthor();
    // Rows as the lane writes them, without the cost of 5,100 signatures. Only the database knows them.
    await useWindow(relay, 0);
    await relay.database.pool.query(
      `INSERT INTO events (seq, ingested_at, created_at, community, kind, keep, id, pubkey, payload)
       SELECT -n, $1, n, $2, 1, 3, decode(lpad(to_hex(n), 64, '0'), 'hex'), decode($3, 'hex'),
         json_build_object('id', lpad(to_hex(n), 64, '0'), 'created_at', n)
       FROM generate_series(1, 5100) n`,
      [Date.now(), community().id, author.pubkey],
    );
    await relay.database.pool.query(
      `INSERT INTO event_dedupe (seq, ingested_at, first_seen_at, community, keep, event_id, author)
       SELECT seq, ingested_at, ingested_at, community, keep, id, pubkey FROM events
       WHERE pubkey = decode($1, 'hex')`,
      [author.pubkey],
    );
    const times = async (filter: object) =>
      (
        (await client.query({ authors: [author.pubkey], ...filter })).events as unknown as {
          created_at: number;
        }[]
      ).map((event) => event.created_at);
    const newest = (count: number) => Array.from({ length: count }, (_, at) => 5_100 - at);
    expect(await times({})).toEqual(newest(500));
    expect(await times({ limit: 501 })).toEqual(newest(501));
    expect(await times({ limit: 5_001 })).toEqual(newest(5_000));
    expect(await times({ limit: Number.MAX_SAFE_INTEGER })).toEqual(newest(5_000));
  });

  it('numbers in a filter may be spelled 1e0 and -0', async () => {
    const event = sign(newAuthor(), { created_at: 0, kind: 1 });
    await client.publish(event);
    const replies = await answers(
      `["REQ","spelled",{"authors":["${event.pubkey}"],"kinds":[1e0,-0],"since":-0,"until":0.0,"limit":1E1}]`,
    );
    expect(replies).toEqual([
      ['EVENT', 'spelled', event],
      ['EOSE', 'spelled'],
    ]);
    client.send(['CLOSE', 'spelled']);
  });
});

describe('tag values', () => {
  const VALUES = [
    '',
    ' ',
    'plain',
    'Plain',
    'say "hi"',
    "it's",
    'back\\slash',
    '\\u0000',
    '%',
    '_',
    'a%b',
    'a_b',
    'axb',
    'line\nbreak',
    'tab\t',
    '🌊',
    '\u0000',
    'nul\u0000inside',
    'nul',
    '\u2028',
    '\u007f',
    'é',
    'e\u0301',
    '["x","plain"',
    '{}',
    '$1',
    'null',
    'x'.repeat(3_000),
    `${'x'.repeat(2_999)}y`,
    '海'.repeat(2_000),
  ];
  const LETTERS = ['t', 'x', 'E', 'Z', 'd'];

  it('every value of every letter finds its own event and no other, stored, counted and live', async () => {
    const author = newAuthor();
    const reader = await RawClient.connect(relay.url);
    for (const [at, letter] of LETTERS.entries()) {
      reader.send(['REQ', `live ${at}`, { [`#${letter}`]: VALUES, authors: [author.pubkey] }]);
      await reader.waitFor((frame) => frame[0] === 'EOSE' && frame[1] === `live ${at}`);
    }
    const events = new Map(
      VALUES.map((value) => [
        value,
        sign(author, { tags: LETTERS.map((letter) => [letter, value, 'third']), content: `["x","${value}"` }),
      ]),
    );
    for (const event of events.values()) expect(await client.publish(event)).toEqual([true, '']);
    for (const letter of LETTERS) {
      for (const [value, event] of events) {
        const filter = { [`#${letter}`]: [value], authors: [author.pubkey] };
        expect(
          (await client.query(filter)).events,
          `#${letter} ${JSON.stringify(value.slice(0, 40))}`,
        ).toEqual([event]);
        expect(await countOf(filter)).toEqual({ count: 1 });
      }
      expect((await client.query({ [`#${letter}`]: ['third'], authors: [author.pubkey] })).events).toEqual(
        [],
      );
      const all = await client.query({ [`#${letter}`]: VALUES, authors: [author.pubkey] });
      expect(all.events).toHaveLength(VALUES.length);
    }
    for (const letter of ['T', 'X', 'e', 'z', 'D']) {
      expect((await client.query({ [`#${letter}`]: VALUES, authors: [author.pubkey] })).events).toEqual([]);
    }
    const total = VALUES.length * LETTERS.length;
    await reader.until(() => reader.frames.filter((frame) => frame[0] === 'EVENT').length >= total);
    for (const at of LETTERS.keys()) {
      const live = reader.frames.filter((frame) => frame[0] === 'EVENT' && frame[1] === `live ${at}`);
      expect(live.map((frame) => frame[2])).toEqual([...events.values()]);
    }
    await reader.close();
  });

  it('a lone surrogate in a filter value matches nothing and harms nothing', async () => {
    await client.publish(sign(alice, { tags: [['t', '\ufffd']] }));
    expect(await answers('["REQ","lone",{"#t":["\\ud800"]}]')).toEqual([['EOSE', 'lone']]);
    client.send(['CLOSE', 'lone']);
  });
});
