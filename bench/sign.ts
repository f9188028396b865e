/**
 * Signs the bench's events. The auxiliary randomness is always zero, so that every library gives the same
 * corpus: bcrypto (native, about 17,000/s on a core) or nostr-wasm (about 2,700/s).
 */
import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';

export interface Unsigned {
  readonly created_at: number;
  readonly kind: number;
  readonly tags: string[][];
  readonly content: string;
}

export interface BenchEvent extends Unsigned {
  readonly id: string;
  readonly pubkey: string;
  readonly sig: string;
}

export type Sign = (event: Unsigned, secretKey: Buffer) => BenchEvent;

interface Schnorr {
  /** 0 when bcrypto fell back to JavaScript. */
  readonly native: number;
  publicKeyCreate(secretKey: Buffer): Buffer;
  sign(message: Buffer, secretKey: Buffer, aux: Buffer): Buffer;
  verify(message: Buffer, signature: Buffer, publicKey: Buffer): boolean;
}

const NO_RANDOMNESS = Buffer.alloc(32);

/** bcrypto's native Schnorr signatures, or undefined where the optional dependency was not built. */
export function nativeSchnorr(): Schnorr | undefined {
  try {
    const schnorr = createRequire(import.meta.url)('bcrypto/lib/schnorr') as Schnorr;
    return schnorr.native > 0 ? schnorr : undefined;
  } catch {
    return undefined;
  }
}

export async function openSigner(): Promise<Sign> {
  const schnorr = nativeSchnorr();
  return schnorr === undefined ? wasmSigner() : nativeSigner(schnorr);
}

function nativeSigner(schnorr: Schnorr): Sign {
  const publicKeys = new Map<Buffer, string>();
  return (event, secretKey) => {
    let pubkey = publicKeys.get(secretKey);
    if (pubkey === undefined) {
      pubkey = schnorr.publicKeyCreate(secretKey).toString('hex');
      publicKeys.set(secretKey, pubkey);
    }
    const id = hashEvent(event, pubkey);
    const sig = schnorr.sign(id, secretKey, NO_RANDOMNESS).toString('hex');
    return { id: id.toString('hex'), pubkey, ...event, sig };
  };
}

async function wasmSigner(): Promise<Sign> {
  const { initNostrWasm } = await import('nostr-wasm');
  const nostr = await initNostrWasm();
  return (event, secretKey) => {
    const signed = { id: '', pubkey: '', ...event, sig: '' };
    nostr.finalizeEvent(signed, secretKey, NO_RANDOMNESS);
    return signed;
  };
}

/** The id of an event (NIP-01), as bytes. */
export function hashEvent(event: Unsigned, pubkey: string): Buffer {
  const preimage = [0, pubkey, event.created_at, event.kind, event.tags, event.content];
  return createHash('sha256').update(JSON.stringify(preimage)).digest();
}
