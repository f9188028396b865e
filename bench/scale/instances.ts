/**
 * `node --import tsx bench/scale/instances.ts [0,1,2,4] [events]`, after `npm run build`: throughput by the
 * number of instances (`minato serve --instances N`; 0 is one process without them). For each it stores
 * events, queries them and delivers live ones, with the rows `ingest`, `author` and `fanout` of the bench.
 * Beside the figure: the CPU of each process, and how long the lock of the lane is held and waited for.
 */
import { loadCorpus } from '../corpus.js';
import { connectionOf } from '../database.js';
import { Findings, type Row } from '../measure.js';
import { cleanUpOnSignal } from '../node.js';
import { readOptions } from '../options.js';
import { ingest } from '../rows/ingest.js';
import { fanout } from '../rows/live.js';
import { author } from '../rows/queries.js';
import { corpusSize, withRelay } from '../run.js';
import { untilQuiet, untilUpToDate } from '../settle.js';
import { LockWatch, lockText } from './lock.js';
import { useDuring, useText } from './use.js';

const STORED = Number(process.argv[3] ?? 20_000);
const ROWS: readonly Row[] = [ingest, author, fanout];
const say = (text: string) => process.stdout.write(`${text}\n`);
const whisper = (text: string) => process.stderr.write(`${text}\n`);

async function main(): Promise<void> {
  const counts = (process.argv[2] ?? '0,1,2,4').split(',').map(Number);
  const options = readOptions(['--repeat', '1', '--stored', `${STORED}`, '--events', `${STORED}`], []);
  const { corpus } = await loadCorpus(options.seed, corpusSize(options.sizes), whisper);
  const findings = new Findings();
  for (const count of counts) {
    const serveArgs = count === 0 ? [] : ['--instances', `${count}`];
    await withRelay({ options, corpus, serveArgs, say: whisper }, async (bench) => {
      say(`\n${count === 0 ? 'one process' : `--instances ${count}`}`);
      for (const row of ROWS) {
        const watch = await LockWatch.start(connectionOf(bench));
        const measure = () => row.measure(bench, findings, 0);
        const { result, use } = await useDuring([bench.node!.pid], measure);
        const lock = await watch.stop();
        const p99 = result.p99Ms === undefined ? '' : `, p99 ${result.p99Ms.toFixed(0)} ms`;
        say(`  ${row.id}: ${Math.round(result.perSecond!).toLocaleString('en')} ${row.unit}${p99}`);
        say(`    ${useText(use)}`);
        if (row !== author) say(`    ${lockText(lock)}`);
        await untilUpToDate(bench);
        await untilQuiet(bench);
      }
    });
  }
  for (const failure of findings.failures) say(`FAILED: ${failure}`);
  process.exitCode = findings.failed > 0 ? 1 : 0;
}

cleanUpOnSignal(whisper);
await main();
