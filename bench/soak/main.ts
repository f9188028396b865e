/**
 * `npm run test:soak`: one node under a steady load for hours, with purges, expirations, deletions, consumers
 * and erasures. It samples what the node and its database hold, and says what has grown. It can be stopped
 * and continued (`--resume`): data and samples are in its folder.
 */
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { withDatabase } from '../database.js';
import { changeSettings } from '../floods/set-up.js';
import {
  type BootedNode,
  cleanUpOnSignal,
  isEnding,
  nodeEnvironment,
  runCommand,
  startNode,
  withCleanUp,
} from '../node.js';
import { describeMachine, formatNumber } from '../report.js';
import { openSigner } from '../sign.js';
import { renderSoak, SERIES } from './chart.js';
import { Load, TOPICS, topicOf } from './load.js';
import { Operator } from './operator.js';
import { readSoakOptions, type SoakOptions } from './options.js';
import { type Sample, takeSample } from './sample.js';

const ERASE_SECONDS = 60;
const FOLLOW_MS = 1_000;
/** What the topics keep: so many seconds of posts. Then the oldest are purged. */
const KEPT_SECONDS = 120;
const OPERATOR = createHash('sha256').update('soak operator').digest();

const say = (text: string) => process.stdout.write(`${text}\n`);

async function main(): Promise<void> {
  const options = readSoakOptions(process.argv.slice(2));
  const folder = resolve(options.folder);
  const file = `${folder}/samples.jsonl`;
  if (!options.resume) rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  chmodSync(folder, 0o755);
  const samples = existsSync(file) ? readSamples(file) : [];
  cleanUpOnSignal(say);
  const wanted = options.minutes * 60;
  if ((samples.at(-1)?.at ?? 0) < wanted) await soak(options, folder, samples, file);
  report(options, samples);
}

const readSamples = (file: string) =>
  readFileSync(file, 'utf8')
    .split('\n')
    .flatMap((line) => (line === '' ? [] : [JSON.parse(line) as Sample]));

async function soak(options: SoakOptions, folder: string, samples: Sample[], file: string): Promise<void> {
  const sign = await openSigner();
  const { pubkey } = sign({ kind: 1, created_at: 0, tags: [], content: '' }, OPERATOR);
  const nodeEnv = { MINATO_ADMIN_PUBKEYS: pubkey };
  if (samples.length === 0) await changeSettings(folder, { 'deletion.mode': 'physical' }, nodeEnv);
  let node: BootedNode | undefined;
  let load: Load | undefined;
  await withCleanUp(
    async () => {
      load?.stop();
      await node?.stop();
    },
    async () => {
      node = await startNode(folder, nodeEnv);
      await node.ready();
      if (samples.length === 0) await fillTopics(folder, nodeEnv, options.rate);
      const operator = new Operator(node.url, OPERATOR, sign);
      await operator.register();
      load = new Load(node.url, sign, options.rate);
      await load.open();
      const running = load.run();
      const following = follow(operator, () => load !== undefined);
      await watch({ options, folder, nodeEnv, node, load, operator, samples, file });
      const { refusals } = load;
      load.stop();
      load = undefined;
      await Promise.all([running, following]);
      for (const [words, count] of [...refusals, ...operator.problems])
        say(`refused ${count} times: ${words}`);
    },
  );
}

/** Each topic purges its oldest events when it is full. */
async function fillTopics(folder: string, nodeEnv: Record<string, string>, rate: number): Promise<void> {
  const max = String(Math.ceil((rate * KEPT_SECONDS) / TOPICS));
  for (let number = 0; number < TOPICS; number += 1) {
    const args = ['topics', 'set', topicOf(number), '--public', '--max-events', max];
    const { code, output } = await runCommand(args, nodeEnvironment(`${folder}/data`, 0, nodeEnv));
    if (code !== 0) throw new Error(output);
  }
}

async function follow(operator: Operator, isRunning: () => boolean): Promise<void> {
  while (isRunning()) {
    await operator.follow();
    await sleep(FOLLOW_MS);
  }
}

interface Watched {
  readonly options: SoakOptions;
  readonly folder: string;
  readonly nodeEnv: Record<string, string>;
  readonly node: BootedNode;
  readonly load: Load;
  readonly operator: Operator;
  readonly samples: Sample[];
  readonly file: string;
}

async function watch({
  options,
  folder,
  nodeEnv,
  node,
  load,
  operator,
  samples,
  file,
}: Watched): Promise<void> {
  const before = samples.at(-1)?.at ?? 0;
  const began = performance.now();
  let erasedAt = 0;
  let sampledAt = 0;
  await withDatabase({ node, folder, nodeEnv }, async (client) => {
    while (before + sampledAt < options.minutes * 60) {
      await sleep(options.every * 1_000);
      if (node.hasEnded()) throw new Error('the node has ended');
      const seconds = (performance.now() - began) / 1_000;
      const times = { at: before + seconds, seconds: seconds - sampledAt };
      sampledAt = seconds;
      const sample = await takeSample(node.pid, client, load.take(), times);
      samples.push(sample);
      appendFileSync(file, `${JSON.stringify(sample)}\n`);
      say(lineOf(sample));
      if (seconds - erasedAt < ERASE_SECONDS) continue;
      erasedAt = seconds;
      await operator.erase(load.takeLeaver());
    }
  });
}

const lineOf = (sample: Sample) =>
  `${sample.at} s: ${sample.sentPerSecond}/s, p99 ${sample.p99Ms} ms, node ${sample.nodeMegabytes} MB, ` +
  `PostgreSQL ${sample.databaseMegabytes} MB, ${sample.files} files, ${sample.sockets} sockets, ` +
  `${sample.events} events, ${sample.deadTuples} dead, lag ${sample.lagRows}`;

/** The mean of the second quarter of the run beside that of the last: the first one warms up. */
function report(options: SoakOptions, samples: readonly Sample[]): void {
  if (samples.length < 8) {
    say('too few samples to compare');
    return;
  }
  const quarter = Math.floor(samples.length / 4);
  const mean = (part: readonly Sample[], name: keyof Sample) =>
    part.reduce((sum, sample) => sum + sample[name], 0) / part.length;
  say('\n| | second quarter | last quarter | ratio |\n|---|---:|---:|---:|');
  for (const [name, title] of SERIES) {
    const [early, late] = [
      mean(samples.slice(quarter, 2 * quarter), name),
      mean(samples.slice(-quarter), name),
    ];
    const ratio = early === 0 ? '–' : (late / early).toFixed(2);
    say(`| ${title} | ${formatNumber(early)} | ${formatNumber(late)} | ${ratio} |`);
  }
  if (options.svg === undefined) return;
  const minutes = Math.round(samples.at(-1)!.at / 60);
  const { cores } = describeMachine();
  const about = `${minutes} minutes at ${options.rate} events a second, ${cores} cores shared with the load`;
  writeFileSync(options.svg, renderSoak(samples, about));
}

try {
  await main();
} catch (error) {
  if (!isEnding()) throw error;
  // The clean-up ends the process.
  await new Promise(() => undefined);
}
process.exit(0);
