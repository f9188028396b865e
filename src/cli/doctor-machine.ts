/** The part of `minato doctor` about this program and its signature checks. */
import { finalizeEvent, generateSecretKey } from 'nostr-tools/pure';
import { serializeEvent } from '../events/rules/event.js';
import { startVerifier, type VerifyJob } from '../events/verify/pool.js';
import { type Finding, fail, ok } from '../health/finding.js';
import { verifierFinding } from '../health/machine.js';
import { NODE_VERSIONS, runsOnNode, SOFTWARE_VERSION } from '../node/version.js';
import { count } from './progress.js';

const MEASURE_MS = 200;
const MEASURE_BATCH = 256;

export function* checkProgram(): Generator<Finding> {
  const node = process.versions.node;
  if (runsOnNode(node)) yield ok(`Minato ${SOFTWARE_VERSION} on Node.js ${node}`);
  else
    yield fail(`Node.js ${node} is not supported`, `Install Node.js ${NODE_VERSIONS} (https://nodejs.org).`);
}

export async function* checkVerifier(): AsyncGenerator<Finding> {
  const verifier = await startVerifier();
  try {
    const perSecond = await measure((job) => verifier.verify(job));
    const threads = `${verifier.workers} ${verifier.workers === 1 ? 'thread' : 'threads'}`;
    const text = `signatures: ${verifier.backend}, ${threads}, about ${count(perSecond)} a second`;
    yield verifierFinding(verifier.backend, text);
  } finally {
    await verifier.close();
  }
}

async function measure(verify: (job: VerifyJob) => Promise<string>): Promise<number> {
  const template = { kind: 1, created_at: 1_700_000_000, tags: [], content: 'minato doctor' };
  const job = { payload: serializeEvent(finalizeEvent(template, generateSecretKey())) };
  const startedAt = performance.now();
  let verified = 0;
  while (performance.now() - startedAt < MEASURE_MS) {
    const verdicts = await Promise.all(Array.from({ length: MEASURE_BATCH }, () => verify(job)));
    if (verdicts.some((one) => one !== 'valid')) throw new Error('the verifier refused a valid signature');
    verified += verdicts.length;
  }
  return Math.round((verified * 1_000) / (performance.now() - startedAt));
}
