/**
 * What `minato doctor` checks and a running node can check as well. The findings are kept for a minute:
 * several people may look at them.
 */
import type { Pool } from 'pg';
import { missingPartitions } from '../events/postgres/partitions.js';
import { type Finding, messageOf, warn } from './finding.js';
import { checkKeys } from './keys.js';
import { checkMachine, verifierFinding } from './machine.js';
import { checkServer } from './server.js';
import { checkSettings } from './settings.js';

const KEPT_MS = 60_000;

export interface RunningChecks {
  readonly pool: Pool;
  readonly dataDir: string;
  readonly verifier: 'native' | 'wasm';
  readonly now: () => number;
}

/** Only what an operator should do something about. */
export function checkRunning(options: RunningChecks): () => Promise<readonly Finding[]> {
  let kept: { readonly until: number; readonly findings: Promise<readonly Finding[]> } | undefined;
  return () => {
    const at = performance.now();
    if (kept === undefined || kept.until < at) kept = { until: at + KEPT_MS, findings: problems(options) };
    return kept.findings;
  };
}

async function problems(options: RunningChecks): Promise<Finding[]> {
  const found: Finding[] = [];
  try {
    for await (const finding of examine(options))
      if (finding.level === 'warn' || finding.level === 'fail') found.push(finding);
  } catch (error) {
    found.push(warn(`the node could not be checked: ${messageOf(error)}`, 'Read the log of the node.'));
  }
  return found;
}

async function* examine({ pool, dataDir, verifier, now }: RunningChecks): AsyncGenerator<Finding> {
  yield* checkMachine();
  yield verifierFinding(verifier, `signatures are checked by ${verifier}`);
  yield* checkServer(pool, 'as configured');
  const missing = await missingPartitions(pool, now());
  if (missing.length > 0)
    yield warn(`partitions are missing: ${missing.join(', ')}`, 'Run the job "partitions" now.');
  yield* checkSettings(pool);
  yield* checkKeys(pool, dataDir);
}
