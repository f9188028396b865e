/**
 * `minato import` and `minato export` on a separate data folder, after the node has stopped. The time is that
 * of the whole command, so it includes starting and stopping the database. The folder exists before.
 */
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isReplaceable } from '../generate.js';
import { type Bench, type Findings, type Row, ratioTo, Skip } from '../measure.js';
import { freePort, nodeEnvironment, runCommand } from '../node.js';

export const importFile: Row = {
  id: 'import',
  title: 'minato import',
  headline: 'perSecond',
  unit: 'events/s',
  afterNode: true,
  ratio: (summary, yardsticks) =>
    ratioTo('× verify/s', summary.perSecond?.median, yardsticks.verificationsPerSecond),
  async measure(bench) {
    await makeDataFolder(bench);
    const count = bench.sizes.ingestEvents;
    return { perSecond: count / (await importNext(bench, count)) };
  },
};

export const exportFile: Row = {
  id: 'export',
  title: 'minato export',
  headline: 'perSecond',
  unit: 'events/s',
  afterNode: true,
  async measure(bench, findings) {
    await makeDataFolder(bench);
    if (bench.imported === 1) await importNext(bench, bench.sizes.ingestEvents);
    const file = join(bench.folder, 'export.jsonl');
    rmSync(file, { force: true });
    const seconds = await timeCommand(bench, ['export', file]);
    const exported = checkExport(file, bench, findings);
    return { perSecond: exported / seconds };
  },
};

/** Importing one event creates the database, which is not measured. */
async function makeDataFolder(bench: Bench): Promise<void> {
  if (bench.node === undefined) throw new Skip('only for a node that the bench booted');
  if (bench.nodeEnv.DATABASE_URL !== undefined)
    throw new Skip('needs an empty store, but DATABASE_URL is set');
  if (bench.imported > 0) return;
  await requireCommands(bench);
  await importNext(bench, 1);
}

async function requireCommands(bench: Bench): Promise<void> {
  const { output } = await runCommand(['--help'], await filesEnvironment(bench), bench.program);
  for (const command of ['import', 'export']) {
    if (!new RegExp(`^\\s*${command}\\b`, 'm').test(output))
      throw new Skip(`this node has no ${command} command`);
  }
}

/** Imports the next corpus events. Returns the seconds it took. */
async function importNext(bench: Bench, count: number): Promise<number> {
  const to = bench.imported + count;
  if (to > bench.corpus.size) throw new Error('the corpus is too small for this run');
  const file = join(bench.folder, 'import.jsonl');
  writeFileSync(file, bench.corpus.lines(bench.imported, to));
  const seconds = await timeCommand(bench, ['import', file]);
  bench.imported = to;
  return seconds;
}

async function timeCommand(bench: Bench, args: readonly string[]): Promise<number> {
  const env = await filesEnvironment(bench);
  const startMs = performance.now();
  const { code, output } = await runCommand(args, env, bench.program);
  if (code !== 0) throw new Error(`minato ${args[0]} ended with ${code}:\n${output}`);
  return (performance.now() - startMs) / 1000;
}

async function filesEnvironment(bench: Bench): Promise<NodeJS.ProcessEnv> {
  return nodeEnvironment(join(bench.folder, 'files-data'), await freePort(), bench.nodeEnv);
}

/** Every imported event that cannot have been superseded is in the file, and no event is there twice. */
function checkExport(file: string, bench: Bench, findings: Findings): number {
  if (!existsSync(file)) throw new Error('minato export wrote no file');
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
  const seen = new Set(lines.map((line) => (JSON.parse(line) as { id: string }).id));
  if (seen.size !== lines.length) findings.fail(`${lines.length - seen.size} events were exported twice`);
  let missing = 0;
  for (let index = 0; index < bench.imported; index++) {
    const due = !isReplaceable(bench.corpus.kinds[index]!);
    if (due && !seen.has(bench.corpus.ids[index]!)) missing++;
  }
  if (missing > 0) findings.fail(`${missing} imported events were not exported`);
  return lines.length;
}
