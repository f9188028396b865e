/**
 * BIP-340 verification of 32-byte messages by libsecp256k1, in one of two builds: native (bcrypto, an
 * optional dependency that is compiled on install) or WASM (part of nostr-wasm): 50 µs and 270 µs on the same
 * machine. A build is used only after it has told a valid signature from an invalid one.
 */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

export type SchnorrBackend = 'native' | 'wasm';

export interface Schnorr {
  readonly backend: SchnorrBackend;
  /** False for malformed input: a key off the curve, an overflowing number, a wrong length. */
  verify(message: Uint8Array, signature: Uint8Array, publicKey: Uint8Array): boolean;
}

type Verify = Schnorr['verify'];

const require = createRequire(import.meta.url);

/** Native if it is installed and works, otherwise WASM; `prefer: 'wasm'` skips the native build. */
export async function loadSchnorr(prefer: SchnorrBackend = 'native'): Promise<Schnorr> {
  const native = prefer === 'native' ? loadNative() : undefined;
  if (native && isTrustworthy(native)) return { backend: 'native', verify: native };
  const wasm = await loadWasm();
  if (!isTrustworthy(wasm)) throw new Error('the WASM build of libsecp256k1 fails its self-test');
  return { backend: 'wasm', verify: wasm };
}

function isWellSized(message: Uint8Array, signature: Uint8Array, publicKey: Uint8Array): boolean {
  return message.length === 32 && signature.length === 64 && publicKey.length === 32;
}

/**
 * The part of `bcrypto/lib/schnorr` that is used. `native` is 2 for compiled code and 0 for its JavaScript.
 */
interface BcryptoSchnorr {
  readonly native: number;
  verify(message: Buffer, signature: Buffer, publicKey: Buffer): boolean;
}

function loadNative(): Verify | undefined {
  let bcrypto: BcryptoSchnorr;
  try {
    bcrypto = require('bcrypto/lib/schnorr') as BcryptoSchnorr;
  } catch {
    return undefined; // Optional: not installed, not built, or built for another platform.
  }
  if (bcrypto.native !== 2) return undefined;
  return (message, signature, publicKey) =>
    isWellSized(message, signature, publicKey) &&
    bcrypto.verify(asBuffer(message), asBuffer(signature), asBuffer(publicKey));
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** TypeScript declares it only in its DOM library. */
declare const WebAssembly: {
  instantiate(
    binary: Uint8Array,
    imports: Record<string, Record<string, (...numbers: number[]) => void>>,
  ): Promise<{ readonly instance: { readonly exports: unknown } }>;
};

/**
 * The exports of the module that are used. Their names are minified. If a release renames them, the self-test
 * fails.
 */
interface WasmExports {
  readonly g: { readonly buffer: ArrayBuffer };
  /** init */
  h(): void;
  /** malloc */
  i(bytes: number): number;
  /** secp256k1_context_create */
  o(flags: number): number;
  /** secp256k1_xonly_pubkey_parse */
  p(context: number, parsedKey: number, publicKey: number): number;
  /** secp256k1_schnorrsig_verify */
  u(context: number, signature: number, message: number, messageBytes: number, parsedKey: number): number;
}

/**
 * nostr-wasm's own API has only `verifyEvent(event)`, which hashes the `JSON.stringify` form and so refuses
 * the ids that `verbatimPreimage` allows. So its binary is instantiated here, and the C functions are called
 * directly.
 */
async function loadWasm(): Promise<Verify> {
  const folder = dirname(require.resolve('nostr-wasm'));
  const binary = await readFile(join(folder, '../public/out/secp256k1.wasm'));
  let heap = new Uint8Array();
  const fail = () => {
    throw new Error('libsecp256k1 aborted');
  };
  const memcpy = (to: number, from: number, bytes: number) => void heap.copyWithin(to, from, from + bytes);
  const { instance } = await WebAssembly.instantiate(binary, {
    a: { a: fail, b: fail, c: fail, d: fail, e: fail, f: memcpy },
  });
  const lib = instance.exports as WasmExports;
  heap = new Uint8Array(lib.g.buffer); // Its memory has a fixed size, so the view stays good.
  lib.h();
  const context = lib.o(CONTEXT_VERIFY);
  const messageAt = lib.i(32);
  const signatureAt = lib.i(64);
  const publicKeyAt = lib.i(32);
  const parsedKeyAt = lib.i(64);

  return (message, signature, publicKey) => {
    if (!isWellSized(message, signature, publicKey)) return false;
    heap.set(message, messageAt);
    heap.set(signature, signatureAt);
    heap.set(publicKey, publicKeyAt);
    return (
      lib.p(context, parsedKeyAt, publicKeyAt) === 1 &&
      lib.u(context, signatureAt, messageAt, 32, parsedKeyAt) === 1
    );
  };
}
const CONTEXT_VERIFY = 257;

/**
 * Rows 1 and 6 of the BIP's vectors: one key and message, with a valid signature and one with an R of odd y.
 */
function isTrustworthy(verify: Verify): boolean {
  const key = Buffer.from('dff1d77f2a671c5f36183726db2341be58feae1da2deced843240f7b502ba659', 'hex');
  const message = Buffer.from('243f6a8885a308d313198a2e03707344a4093822299f31d0082efa98ec4e6c89', 'hex');
  const right = Buffer.from(
    '6896bd60eeae296db48a229ff71dfe071bde413e6d43f917dc8dcf8c78de3341' +
      '8906d11ac976abccb20b091292bff4ea897efcb639ea871cfa95f6de339e4b0a',
    'hex',
  );
  const wrong = Buffer.from(
    'fff97bd5755eeea420453a14355235d382f6472f8568a18b2f057a1460297556' +
      '3cc27944640ac607cd107ae10923d9ef7a73c643e166be5ebeafa34b1ac553e2',
    'hex',
  );
  return verify(message, right, key) && !verify(message, wrong, key);
}
