/**
 * `npm run test:faults:broken`: runs the fault model against copies of the program in each of which one rule
 * is broken, and shows which check sees it. A rule that no check sees fails the command: a check that cannot
 * fail proves nothing. So does a check that sees something in the unbroken copy, which comes first.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { BROKEN_RULES, type BrokenRule } from './broken-rules.js';

/** What a healthy node does within seconds. A broken one never does it. */
const SETTLE_SECONDS = 60;
const PARTS = ['bin', 'dist', 'migrations', 'package.json'];

interface Seen {
  readonly rule: BrokenRule;
  /** The round and the checks; undefined if nothing was seen. */
  readonly by: { readonly round: number; readonly checks: readonly string[] } | undefined;
}

const say = (text: string) => process.stdout.write(`${text}\n`);

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      only: { type: 'string', default: '' },
      // One copy in which all of them are broken, with the seed of the last: each has a check of its own.
      together: { type: 'boolean', default: false },
    },
  });
  const only = values.only.split(',').filter((name) => name !== '');
  const chosen = BROKEN_RULES.filter(({ name }) => only.length === 0 || only.includes(name));
  const rules = values.together ? [together(chosen)] : chosen;
  const seen: Seen[] = [];
  for (const rule of rules) {
    say(`broken: ${rule.name}: ${rule.what}`);
    // A port that was free may be taken a moment later; then nothing starts.
    seen.push({ rule, by: await tryRule(rule).catch(() => tryRule(rule)) });
  }
  say('\n| broken rule | seen by | round |\n|---|---|---|');
  for (const { rule, by } of seen)
    say(`| ${rule.what} | ${by === undefined ? '**nothing**' : by.checks.join(', ')} | ${by?.round ?? ''} |`);
  const isWrong = ({ rule, by }: Seen) => (by === undefined) !== (rule.changes.length === 0);
  process.exitCode = seen.some(isWrong) ? 1 : 0;
}

function together(rules: readonly BrokenRule[]): BrokenRule {
  const join = (part: 'name' | 'what') => rules.map((rule) => rule[part]).join('; ');
  const changes = rules.flatMap((rule) => rule.changes);
  return { ...rules.at(-1)!, name: join('name'), what: join('what'), changes };
}

async function tryRule(rule: BrokenRule): Promise<Seen['by']> {
  const folder = await mkdtemp(join(tmpdir(), 'minato-broken-'));
  try {
    for (const part of PARTS) await cp(part, join(folder, part), { recursive: true });
    await symlink(resolve('node_modules'), join(folder, 'node_modules'));
    for (const { file, from, to } of rule.changes) await change(join(folder, 'dist', file), from, to);
    return await run(rule, folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function change(file: string, from: string, to: string): Promise<void> {
  const text = await readFile(file, 'utf8');
  if (!text.includes(from)) throw new Error(`${file} has no longer: ${from}`);
  await writeFile(file, text.replace(from, to));
}

async function run({ seed, from = 0, rounds }: BrokenRule, folder: string): Promise<Seen['by']> {
  const place = ['--seed', `${seed}`, '--from', `${from}`, '--rounds', `${rounds}`];
  const rest = ['--state', join(folder, 'state.json'), '--settle', `${SETTLE_SECONDS}`];
  const child = spawn(process.execPath, ['--import', 'tsx', 'test/faults/main.ts', ...place, ...rest], {
    env: { ...process.env, MINATO_FAULTS_PROGRAM: join(folder, 'bin/minato.js') },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let said = '';
  child.stdout.on('data', (chunk: Buffer) => {
    said += chunk;
    process.stdout.write(chunk);
  });
  await once(child, 'close');
  // Nodes that do not start show nothing about the checks.
  if (!/^round \d+: /m.test(said)) throw new Error('the run has not come to the end of a round');
  return seenIn(said);
}

/** The lines of the first round with violations: `round 3: 2 VIOLATIONS`, then `  I5: …` for each. */
export function seenIn(output: string): Seen['by'] {
  const lines = output.split('\n');
  const at = lines.findIndex((line) => /^round \d+: \d+ VIOLATIONS/.test(line));
  if (at < 0) return undefined;
  const checks = lines
    .slice(at + 1)
    .map((line) => /^ {2}(I\d[I\d ]*|topics|progress|gossip): /.exec(line)?.[1]);
  return {
    round: Number(/\d+/.exec(lines[at]!)![0]),
    checks: [...new Set(checks.filter((check) => check !== undefined))],
  };
}

if (process.argv[1]?.endsWith('broken.ts')) await main();
