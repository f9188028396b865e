/**
 * One thread of the verifier: receives messages of serialized events and answers each with one code per
 * event, in order. Its first message says that it is ready and names its backend. Any exception ends the
 * thread; the pool then decides about its jobs.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { checkEvent } from './event-check.js';
import { VERDICTS } from './pool.js';
import { loadSchnorr, type SchnorrBackend } from './schnorr.js';

if (!parentPort) throw new Error('this file runs as a worker thread only');
const port = parentPort;
const schnorr = await loadSchnorr(workerData as SchnorrBackend | undefined);

port.on('message', (payloads: readonly string[]) => {
  port.postMessage(Uint8Array.from(payloads, (payload) => VERDICTS.indexOf(checkEvent(schnorr, payload))));
});
port.postMessage(schnorr.backend);
