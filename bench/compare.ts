/**
 * `--compare` with a commit: measures that commit's node and this tree's in one run, alternately (A B B A …),
 * each booted on an empty folder. So other work of the machine affects both. The commit is checked out as a
 * git worktree in a temporary folder and built there.
 */
import { type ChildProcess, execFile } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Comparison, readComparison } from './comparison.js';
import { loadCorpus } from './corpus.js';
import { drawProfiles } from './flame.js';
import type { Bench, Row } from './measure.js';
import { withCleanUp } from './node.js';
import type { Options } from './options.js';
import { describeMachine, type RowReport } from './report.js';
import { chosenRows, corpusSize, expectedSeconds, minutesText, RowRun, withRelay } from './run.js';
import { measureYardsticks, type Yardsticks } from './yardsticks.js';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const ROUNDS_MIN = 3;
const GIT_MS_MAX = 60_000;
/** For the announced time only: checking out, building, reading the corpus. */
const BUILD_SECONDS = 60;
const BUILD_MS_MAX = 20 * 60_000;
const OUTPUT_BYTES_MAX = 16 * 1024 * 1024;

type Say = (text: string) => void;

export async function measureComparison(given: Options, say: Say): Promise<Comparison> {
  if (given.target !== undefined || given.peer !== undefined)
    throw new Error('--compare with a commit boots its own nodes and takes neither --target nor --peer');
  const repeat = Math.max(given.quick ? 1 : ROUNDS_MIN, given.sizes.repeat);
  const options = { ...given, sizes: { ...given.sizes, repeat } };
  const revision = given.compare?.with === 'revision' ? given.compare.revision : undefined;
  const commit = await resolveRevision(revision);
  const chosen = chosenRows(options.only, 'main');
  const run = await beginOrResume(options, commit, chosen, say);
  const rows = chosen.filter((row) => !row.fromSource && !run.before.some(({ id }) => id === row.id));
  const seconds = 2 * expectedSeconds(rows, options.sizes) + BUILD_SECONDS;
  say(
    `${rows.length} rows, two nodes, up to ${repeat} rounds: ` +
      `about ${minutesText(seconds)} on a quiet machine`,
  );
  if (rows.length === 0) return run;
  await withTree(commit, options.temp, say, async (tree) => {
    const { corpus } = await loadCorpus(options.seed, corpusSize(options.sizes), say);
    let yardsticks: Yardsticks;
    const prepare = async (folder: string): Promise<void> => {
      say('measuring the yardsticks');
      yardsticks = await measureYardsticks(corpus, folder, options.sizes.yardstickSeconds);
    };
    const old = {
      options: { ...options, label: 'the commit before' },
      corpus,
      program: join(tree, 'bin/minato.js'),
      profileFolder: profileFolder(options, 'before'),
      prepare,
      say,
    };
    const young = {
      options: { ...options, label: 'this tree' },
      corpus,
      profileFolder: profileFolder(options, 'after'),
      say,
    };
    await withRelay(old, (before) =>
      withRelay(young, async (after) => {
        for (const row of rows) {
          const reports = await measureBoth(row, before, after, say);
          run.before.push(reports.before.report(yardsticks));
          run.after.push(reports.after.report(yardsticks));
          keep(options.json, run);
        }
      }),
    );
  });
  for (const side of ['before', 'after'] as const) {
    const folder = profileFolder(options, side);
    const drawn = folder === undefined ? undefined : drawProfiles(folder, titleOf(side, run));
    if (drawn !== undefined) say(`flame graph: ${drawn}`);
  }
  return run;
}

interface Running extends Comparison {
  readonly before: RowReport[];
  readonly after: RowReport[];
}

async function beginOrResume(
  options: Options,
  commit: string,
  chosen: readonly Row[],
  say: Say,
): Promise<Running> {
  const name = await git(['log', '-1', '--format=%h %s', commit]);
  const changed = (await git(['status', '--porcelain', '--untracked-files=no'])) !== '';
  const begun: Running = {
    format: 2,
    command: options.command,
    date: new Date().toISOString(),
    quick: options.quick,
    machine: describeMachine(),
    commit: name,
    tree: changed ? undefined : await git(['rev-parse', '--short', 'HEAD']),
    rounds: options.sizes.repeat,
    consumers: options.consumers,
    loadBefore: loadavg()[0]!,
    before: [],
    after: [],
    left: chosen.filter(({ fromSource }) => fromSource).map(({ id }) => id),
  };
  if (!options.resume || !existsSync(options.json!)) return begun;
  const earlier = readComparison(options.json!);
  for (const key of ['commit', 'tree', 'quick', 'consumers'] as const) {
    if (earlier[key] !== begun[key]) throw new Error(`--resume: ${options.json} has another ${key}`);
  }
  // Rows that broke or failed a check are measured again.
  const whole = earlier.before.flatMap((row, place) =>
    row.failed === 0 && earlier.after[place]?.failed === 0 ? [place] : [],
  );
  say(`resuming: ${whole.length} rows are measured already`);
  return {
    ...begun,
    before: whole.map((place) => earlier.before[place]!),
    after: whole.map((place) => earlier.after[place]!),
  };
}

/** Called after each row, so that an interrupted run keeps its results. */
function keep(file: string | undefined, run: Comparison): void {
  if (file !== undefined) writeFileSync(file, `${JSON.stringify(run, undefined, 2)}\n`);
}

function profileFolder({ profile }: Options, side: 'before' | 'after'): string | undefined {
  return profile === undefined ? undefined : join(profile, side);
}

function titleOf(side: 'before' | 'after', { commit, tree }: Comparison): string {
  return side === 'before' ? `Before: ${commit}` : `After: ${tree ?? 'this tree'}`;
}

async function measureBoth(
  row: Row,
  before: Bench,
  after: Bench,
  say: Say,
): Promise<{ before: RowRun; after: RowRun }> {
  const runs = { before: new RowRun(row, before), after: new RowRun(row, after) };
  await runs.before.prepare();
  await runs.after.prepare();
  for (let round = 0; round < runs.before.repeats; round++) {
    say(`${row.id} ${round + 1}/${runs.before.repeats}`);
    // The second one runs on a warmer machine, so the order alternates.
    const order = round % 2 === 0 ? (['before', 'after'] as const) : (['after', 'before'] as const);
    for (const side of order) {
      // The other node stops while one is booted for this row alone.
      if (row.fresh) await (side === 'before' ? after : before).rest();
      await runs[side].measure(round);
    }
  }
  // Both are booted again for the next row, so that neither is warmer than the other.
  if (row.fresh) await Promise.all([before.rest(), after.rest()]);
  return runs;
}

/** The default shows what this tree changes: uncommitted work, else the branch, else the last commit. */
async function resolveRevision(revision: string | undefined): Promise<string> {
  if (revision !== undefined) {
    return git(['rev-parse', '--verify', '--quiet', '--end-of-options', `${revision}^{commit}`]).catch(() => {
      throw new Error(`${revision} is neither a file nor a revision of this repository`);
    });
  }
  if ((await git(['status', '--porcelain', '--untracked-files=no'])) !== '')
    return git(['rev-parse', 'HEAD']);
  const head = await git(['rev-parse', 'HEAD']);
  const base = await git(['merge-base', 'HEAD', 'main']).catch(() => head);
  return base === head ? git(['rev-parse', 'HEAD~1']) : base;
}

/** A built worktree of the commit, removed in every case. */
async function withTree<T>(
  commit: string,
  temp: string,
  say: Say,
  work: (tree: string) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(temp, 'minato-compare-'));
  // Other users can enter it: a node started by root changes to another user only if that user can read its
  // program.
  chmodSync(folder, 0o755);
  const tree = join(folder, 'tree');
  let building: Command | undefined;
  const build = (command: string, args: readonly string[]): Promise<string> => {
    building = run(command, args, tree, BUILD_MS_MAX);
    return building.output;
  };
  const cleanUp = async (): Promise<void> => {
    building?.child.kill();
    await building?.output.catch(() => undefined);
    // Forced twice, because git locks a worktree while it makes it.
    await git(['worktree', 'remove', '--force', '--force', tree]).catch(() => undefined);
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  return withCleanUp(cleanUp, async () => {
    say(`checking out ${commit.slice(0, 10)}`);
    await git(['worktree', 'add', '--detach', tree, commit]);
    if (hasSameDependencies(tree)) {
      // npm installs some packages of a workspace in its own folder.
      for (const folder of ['node_modules', 'console/node_modules'])
        if (existsSync(join(ROOT, folder))) symlinkSync(join(ROOT, folder), join(tree, folder));
    } else {
      say('its dependencies differ: npm ci');
      await build('npm', ['ci', '--no-audit', '--no-fund']);
    }
    say('building it');
    await build('npm', ['run', 'build']);
    return work(tree);
  });
}

function hasSameDependencies(tree: string): boolean {
  const [theirs, ours] = [tree, ROOT].map((folder) => join(folder, 'package-lock.json')) as [string, string];
  return existsSync(theirs) && readFileSync(theirs).equals(readFileSync(ours));
}

async function git(args: readonly string[]): Promise<string> {
  return (await run('git', args, ROOT, GIT_MS_MAX).output).trim();
}

interface Command {
  readonly child: ChildProcess;
  readonly output: Promise<string>;
}

function run(command: string, args: readonly string[], cwd: string, withinMs: number): Command {
  let child!: ChildProcess;
  const output = new Promise<string>((resolve, reject) => {
    child = execFile(
      command,
      [...args],
      { cwd, timeout: withinMs, maxBuffer: OUTPUT_BYTES_MAX },
      (error, stdout, stderr) => {
        if (error === null) resolve(stdout);
        else reject(new Error(`${command} ${args.join(' ')}: ${stderr || stdout || error.message}`));
      },
    );
  });
  return { child, output };
}
