/**
 * One thread of the verifier: receives messages of serialized events and answers each with one code per
 * event, in order. Its first message says that it is ready and names its backend. Any exception ends the
 * thread; the pool then decides about its jobs.
 */
import { createHash } from 'node:crypto';
import { parentPort, workerData } from 'node:worker_threads';
import { type Signed, signedPart, verbatimPreimage } from '../rules/event.js';
import { VERDICTS, type Verdict } from './pool.js';
import { loadSchnorr, type SchnorrBackend } from './schnorr.js';

if (!parentPort) throw new Error('this file runs as a worker thread only');
const port = parentPort;
const schnorr = await loadSchnorr(workerData as SchnorrBackend | undefined);

port.on('message', (payloads: readonly string[]) => {
  port.postMessage(Uint8Array.from(payloads, (payload) => VERDICTS.indexOf(check(signedPart(payload)))));
});
port.postMessage(schnorr.backend);

function check({ id, pubkey, sig, preimage }: Signed): Verdict {
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
