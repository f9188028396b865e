/**
 * Signs events of the node (BIP-340). Uses libsecp256k1 where it is built (bcrypto, an optional dependency),
 * else noble. The native one takes about a fortieth of the time (110 to 170 µs against 4.6 to 5.9 ms per
 * signature on one busy machine). It is used only after noble has accepted one of its signatures.
 */
import { createHash, randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import {
  type EventTemplate,
  finalizeEvent,
  getPublicKey,
  serializeEvent,
  verifyEvent,
} from 'nostr-tools/pure';
import type { NostrEvent } from '../events/rules/event.js';

/** `secret` belongs to `pubkey`. */
export type Sign = (template: EventTemplate, secret: Uint8Array, pubkey: string) => NostrEvent;

/** The used part of `bcrypto/lib/schnorr`. `native` is 2 for compiled code and 0 for JavaScript. */
interface BcryptoSchnorr {
  readonly native: number;
  sign(message: Buffer, secret: Buffer, randomness: Buffer): Buffer;
}

export const signByNoble: Sign = (template, secret, pubkey) => {
  const { id, sig, kind, tags, content, created_at } = finalizeEvent(template, secret);
  return { id, pubkey, created_at, kind, tags, content, sig };
};

/** Undefined where it is not installed, not built, or built for another platform. */
export function nativeSigner(): Sign | undefined {
  let bcrypto: BcryptoSchnorr;
  try {
    bcrypto = createRequire(import.meta.url)('bcrypto/lib/schnorr') as BcryptoSchnorr;
  } catch {
    return undefined;
  }
  if (bcrypto.native !== 2) return undefined;
  return ({ kind, tags, content, created_at }, secret, pubkey) => {
    const unsigned = { pubkey, created_at, kind, tags, content };
    const id = createHash('sha256').update(serializeEvent(unsigned)).digest();
    const sig = bcrypto.sign(id, Buffer.from(secret), randomBytes(32));
    return { id: id.toString('hex'), ...unsigned, sig: sig.toString('hex') };
  };
}

/** Signs one event and checks it with another library. */
export function isTrustworthy(sign: Sign): boolean {
  try {
    const secret = Uint8Array.from({ length: 32 }, (_, place) => place + 1);
    const template = { kind: 1, created_at: 1, tags: [['d', '']], content: 'é' };
    const signed = sign(template, secret, getPublicKey(secret));
    return verifyEvent({ ...signed, tags: signed.tags.map((tag) => [...tag]) });
  } catch {
    return false;
  }
}

let chosen: Sign | undefined;

/** Chosen at the first signature: most processes never sign. */
export const signEvent: Sign = (template, secret, pubkey) => {
  if (chosen === undefined) {
    const native = nativeSigner();
    chosen = native !== undefined && isTrustworthy(native) ? native : signByNoble;
  }
  return chosen(template, secret, pubkey);
};
