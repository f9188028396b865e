/** The check of one event: its id, then its signature. */
import { createHash } from 'node:crypto';
import { signedPart, verbatimPreimage } from '../rules/event.js';
import type { Verdict } from './pool.js';
import type { Schnorr } from './schnorr.js';

/** `payload`: as `serializeEvent` writes it, for an event with a checked shape. */
export function checkEvent(schnorr: Schnorr, payload: string): Verdict {
  const { id, pubkey, sig, preimage } = signedPart(payload);
  if (!isIdOf(id, preimage)) return 'wrong-id';
  const isSigned = schnorr.verify(
    Buffer.from(id, 'hex'),
    Buffer.from(sig, 'hex'),
    Buffer.from(pubkey, 'hex'),
  );
  return isSigned ? 'valid' : 'wrong-signature';
}

function isIdOf(id: string, preimage: string): boolean {
  if (sha256(preimage) === id) return true;
  const verbatim = verbatimPreimage(preimage);
  return verbatim !== undefined && sha256(verbatim) === id;
}

function sha256(text: string): string {
  return createHash('sha256').update(text, 'utf8').digest('hex');
}
