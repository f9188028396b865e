import { naddrEncode, neventEncode, noteEncode, npubEncode } from 'nostr-tools/nip19';
import { expect, it } from 'vitest';
import { parseNamed } from './event-name.js';

const [ID, KEY] = ['a'.repeat(64), 'b'.repeat(64)];

it('an event is named by its id in hex, as a note or a nevent, with or without nostr:', () => {
  for (const text of [ID, noteEncode(ID), neventEncode({ id: ID }), `nostr:${noteEncode(ID)}`])
    expect(parseNamed(text)).toEqual({ id: ID });
});

it('an naddr names an address', () => {
  const text = naddrEncode({ kind: 30_023, pubkey: KEY, identifier: 'a:b' });
  expect(parseNamed(text)).toEqual({ address: { kind: 30_023, author: KEY, d: 'a:b' } });
});

it('nothing else names an event', () => {
  for (const text of ['', 'abc', npubEncode(KEY), ID.toUpperCase(), noteEncode(ID).slice(0, -1)])
    expect(parseNamed(text)).toBeUndefined();
});
