import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { schnorr as noble, secp256k1 } from '@noble/curves/secp256k1.js';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { loadSchnorr } from './schnorr.js';

const fromHex = (hex: string) => Uint8Array.from(Buffer.from(hex, 'hex'));

/** The BIP's own file without rows 15–18, whose messages are not 32 bytes long as every event id is. */
const vectors = readFileSync(new URL('./bip340-vectors.csv', import.meta.url), 'utf8')
  .trim()
  .split('\n')
  .slice(1)
  .map((line) => {
    const [index = '', , key = '', , message = '', signature = '', result, comment] = line.split(',');
    return {
      name: `BIP-340 vector ${index} is ${result}${comment ? `: ${comment}` : ''}`,
      isValid: result === 'TRUE',
      key: fromHex(key),
      message: fromHex(message),
      signature: fromHex(signature),
    };
  });

test('the vectors are 5 right and 10 wrong signatures, and noble says the same of each', () => {
  expect(vectors.map((vector) => vector.isValid)).toEqual([...Array(5).fill(true), ...Array(10).fill(false)]);
  for (const { name, isValid, key, message, signature } of vectors) {
    expect(noble.verify(signature, message, key), name).toBe(isValid);
  }
});

const bytes32 = fc.uint8Array({ minLength: 32, maxLength: 32 });
const secretKey = bytes32.filter((bytes) => secp256k1.utils.isValidSecretKey(bytes));
const { p, n, Gx } = secp256k1.Point.CURVE();
const edges = [0n, 1n, 2n ** 256n - 1n, Gx, p - 1n, p, p + 1n, n - 1n, n, n + 1n];
const number32 = fc.oneof(
  bytes32,
  fc.constantFrom(...edges.map((edge) => fromHex(edge.toString(16).padStart(64, '0')))),
);

for (const backend of ['native', 'wasm'] as const) {
  const { backend: loaded, verify } = await loadSchnorr(backend);

  describe.skipIf(loaded !== backend)(backend, () => {
    for (const { name, isValid, key, message, signature } of vectors) {
      test(name, () => expect(verify(message, signature, key)).toBe(isValid));
    }

    test('a signature by noble is valid, and invalid after any one bit is changed', () => {
      const properties = fc.property(
        secretKey,
        bytes32,
        bytes32,
        fc.nat(128 * 8 - 1),
        (secret, message, random, bit) => {
          const key = noble.getPublicKey(secret);
          const signature = noble.sign(message, secret, random);
          expect(verify(message, signature, key)).toBe(true);

          const changed = Uint8Array.from([...signature, ...key, ...message]);
          changed[bit >> 3]! ^= 1 << (bit & 7);
          const parts = [changed.slice(0, 64), changed.slice(64, 96), changed.slice(96)] as const;
          expect(noble.verify(parts[0], parts[2], parts[1])).toBe(false);
          expect(verify(parts[2], parts[0], parts[1])).toBe(false);
        },
      );
      fc.assert(properties, { seed: 340, numRuns: 200 });
    });

    test('noble and this build agree on numbers at the edges of the field and of the group order', () => {
      const properties = fc.property(bytes32, number32, number32, number32, (message, r, s, key) => {
        const signature = Uint8Array.from([...r, ...s]);
        expect(verify(message, signature, key)).toBe(noble.verify(signature, message, key));
      });
      fc.assert(properties, { seed: 340, numRuns: 500 });
    });

    test('input of a wrong length is not valid, and does not throw', () => {
      const { message, signature, key } = vectors[0]!;
      const longer = (bytes: Uint8Array) => Uint8Array.from([...bytes, 0]);
      for (const resize of [longer, (bytes: Uint8Array) => bytes.slice(1), () => new Uint8Array()]) {
        expect(verify(resize(message), signature, key)).toBe(false);
        expect(verify(message, resize(signature), key)).toBe(false);
        expect(verify(message, signature, resize(key))).toBe(false);
      }
    });

    test('a view into a larger buffer is read at its own offset', () => {
      const { message, signature, key } = vectors[1]!;
      const frame = Uint8Array.from([7, ...message, ...signature, ...key, 7]);
      expect(verify(frame.subarray(1, 33), frame.subarray(33, 97), frame.subarray(97, 129))).toBe(true);
      expect(verify(frame.subarray(0, 32), frame.subarray(33, 97), frame.subarray(97, 129))).toBe(false);
    });
  });
}

test('where the native build is missing, the WASM one is used', () => {
  const script = `
    import { loadSchnorr } from '${new URL('../../../dist/events/verify/schnorr.js', import.meta.url)}';
    console.log((await loadSchnorr('native')).backend);`;
  // With this setting bcrypto offers its JavaScript only, as where nothing was compiled.
  const env = { ...process.env, NODE_BACKEND: 'js' };
  const output = execFileSync(process.execPath, ['--input-type=module', '--eval', script], { env });
  expect(output.toString().trim()).toBe('wasm');
});
