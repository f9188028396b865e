/**
 * `npm run test:faults -- --seed N --rounds M`: drives real nodes while things break, and checks the
 * invariants after each round. A run is a seed; docs/reliability.md describes it.
 */
import { availableParallelism, loadavg } from 'node:os';
import { preparePrograms, runApart } from './environment.js';
import { readOptions } from './options.js';
import { ROUNDS_PER_WORLD } from './plan.js';
import { type RoundResult, runWorld, type WorldOptions } from './run-world.js';
import { addRound, loadTotals, newTotals, saveTotals, type Totals } from './totals.js';

const say = (text: string) => process.stdout.write(`${text}\n`);

async function main(): Promise<void> {
  const options = readOptions(process.argv.slice(2));
  const code = await runApart();
  if (code !== undefined) {
    process.exitCode = code;
    return;
  }
  const { seed, rounds, state } = options;
  const totals = options.resume
    ? loadTotals(state)
    : newTotals(seed, worldOf(options.from) * ROUNDS_PER_WORLD);
  say(`faults: seed ${seed}, rounds ${totals.next} to ${options.from + rounds - 1}, state in ${state}`);
  const stopping = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const)
    process.on(name, () => {
      // The second one ends it at once.
      if (stopping.signal.aborted) process.exit(130);
      say('faults: stopping after this round; --resume continues');
      stopping.abort();
    });
  const programs = await preparePrograms();
  try {
    while (totals.next < options.from + rounds && !stopping.signal.aborted) {
      const left = options.from + rounds - totals.next;
      await runOne(totals, Math.min(left, ROUNDS_PER_WORLD), {
        programs,
        signal: stopping.signal,
        settleMs: options.settleSeconds * 1_000,
      });
      if (!stopping.signal.aborted) saveTotals(state, totals);
    }
  } finally {
    await programs.remove();
  }
  summarise(totals);
  process.exitCode = totals.violations.length > 0 ? 1 : 0;
}

const worldOf = (round: number) => Math.floor(round / ROUNDS_PER_WORLD);

async function runOne(
  totals: Totals,
  rounds: number,
  parts: Pick<WorldOptions, 'programs' | 'signal' | 'settleMs'>,
): Promise<void> {
  const { seed, next: first } = totals;
  const results: RoundResult[] = [];
  await runWorld({
    ...parts,
    seed,
    world: worldOf(first),
    rounds,
    say,
    onRound: (result) => {
      results.push(result);
      report(seed, first, result);
    },
  });
  // A world that was stopped on the way is repeated from its beginning.
  if (parts.signal.aborted) return;
  for (const result of results) addRound(totals, first + result.round, result);
  totals.next = first + rounds;
}

function report(seed: number, first: number, result: RoundResult): void {
  const { round, seconds, faults, events, violations, said } = result;
  const list = [...faults].map(([name, count]) => (count > 1 ? `${name} ×${count}` : name)).join(', ');
  const outcome = violations.length === 0 ? 'ok' : `${violations.length} VIOLATIONS`;
  say(`round ${first + round}: ${outcome}, ${events} events, ${seconds.toFixed(1)} s; ${list || 'no fault'}`);
  for (const { invariant, what } of violations) say(`  ${invariant}: ${what}`);
  if (violations.length > 0)
    for (const [name, log] of said) say(`  ${name} logged last:\n${log.replace(/^/gm, '    ')}`);
  // A machine that is overloaded breaks deadlines that a node keeps.
  if (violations.length > 0)
    say(`  load average ${loadavg()[0]!.toFixed(1)} on ${availableParallelism()} cores`);
  if (violations.length > 0)
    say(`  replay: npm run test:faults -- --seed ${seed} --from ${first} --rounds ${round + 1}`);
}

function summarise({ seed, rounds, seconds, events, faults, skipped, violations }: Totals): void {
  const sum = (counts: Record<string, number>) => Object.values(counts).reduce((all, one) => all + one, 0);
  say(
    `faults: seed ${seed}: ${rounds} rounds, ${sum(faults)} faults (${sum(skipped)} not possible here), ` +
      `${events} events sent, ${Math.round(seconds)} s, ${violations.length} violations`,
  );
}

await main();
