import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { KeptFile } from './kept-file.js';

const TEXT = 'the ferry is early '.repeat(50);

it('is compressed once for each encoding that a client accepts', async () => {
  let made = 0;
  const file = new KeptFile('text/css', async () => {
    made += 1;
    return Buffer.from(TEXT);
  });
  const [br, gzip, plain] = await Promise.all(
    ['gzip, br', 'gzip;q=0.5', undefined].map((accepted) => file.encodedFor(accepted)),
  );
  expect([br!.encoding, gzip!.encoding, plain!.encoding]).toEqual(['br', 'gzip', undefined]);
  expect(brotliDecompressSync(br!.bytes).toString()).toBe(TEXT);
  expect(gunzipSync(gzip!.bytes).toString()).toBe(TEXT);
  expect(plain!.bytes.toString()).toBe(TEXT);
  expect((await file.encodedFor('br')).bytes).toBe(br!.bytes);
  expect(made).toBe(1);
});

it('uses an encoding that is stored, and makes the others', async () => {
  const stored = Buffer.from('made by the build');
  const file = new KeptFile('text/css', async () => Buffer.from(TEXT), { br: async () => stored });
  expect(await file.encodedFor('br')).toEqual({ encoding: 'br', bytes: stored });
  expect(gunzipSync((await file.encodedFor('gzip')).bytes).toString()).toBe(TEXT);
});

it('reads 32 elements of a header', async () => {
  const file = new KeptFile('text/css', async () => Buffer.from(TEXT));
  const others = (count: number) => 'x, '.repeat(count);
  const tag = await file.etag();
  expect(await file.isKnownTo(`${others(31)}${tag}`)).toBe(true);
  expect(await file.isKnownTo(`${others(32)}${tag}`)).toBe(false);
  expect((await file.encodedFor(`${others(31)}br`)).encoding).toBe('br');
  expect((await file.encodedFor(`${others(32)}br`)).encoding).toBeUndefined();
});
