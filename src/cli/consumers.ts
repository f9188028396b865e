import { setTimeout as delay } from 'node:timers/promises';
import { Command, InvalidArgumentError } from 'commander';
import type { Pool } from 'pg';
import { isDenial } from '../core/errors.js';
import { DEFAULT_SLUG, readCommunities } from '../store/communities.js';
import {
  type ConsumerState,
  pageLetters,
  progressOf,
  readConsumer,
  readConsumers,
} from '../store/consumer-admin.js';
import { pause, rebuild, replay, resume, retry, type Steered } from '../store/consumer-steps.js';
import type { DeadLetter } from '../store/consumers.js';
import { granted, printAll, timeText } from './answers.js';
import { lagText, problemsOf, rowsText, stateText, type Watched, watchConsumers } from './consumer-words.js';
import { withCommunity } from './context.js';
import { count, type Progress, startProgress, watchInterruption } from './progress.js';

const LOOK_MS = 500;

const EXAMPLES = `
Examples:
  $ minato consumers                            how each stands, and what to do when something is wrong
  $ minato consumers pause search               it rests; what it keeps is served as it is
  $ minato consumers resume search
  $ minato consumers replay search --from 120   applies the row 120 of the outbox and all after it again
  $ minato consumers rebuild search --wait      builds it anew beside the old one, and shows how far it is
  $ minato consumers dead-letters search        what it could not take, and why
  $ minato consumers retry search 120           tries one of them again; --all tries all`;

export function consumersCommand(): Command {
  const consumers = new Command('consumers')
    .description('what follows the outbox, such as search: lag, failures, pause, replay, rebuild')
    .addHelpText('after', EXAMPLES);
  consumers
    .command('list', { isDefault: true })
    .description('show how each consumer stands')
    .option('--json', 'as JSON')
    .addHelpText('after', EXAMPLES)
    .action(({ json = false }: { json?: boolean }) => list(json));
  consumers
    .command('pause <name>')
    .description('let it rest where it is; it falls behind until it is resumed')
    .action((name: string) =>
      steering(name, async (pool, steered) => {
        granted(await pause(pool, steered));
        process.stdout.write(`${name} is paused; go on with: minato consumers resume ${name}\n`);
      }),
    );
  consumers
    .command('resume <name>')
    .description('let it go on where it was')
    .action((name: string) =>
      steering(name, async (pool, steered) => {
        const { lagRows } = granted(await resume(pool, steered));
        process.stdout.write(`${name} goes on; ${rowsText(lagRows)} to go\n`);
      }),
    );
  consumers
    .command('replay <name>')
    .description('go back, and apply rows of the outbox again')
    .requiredOption('--from <seq>', 'the first number that is applied again', seqArgument)
    .addHelpText('after', `\nExamples:\n  $ minato consumers replay search --from 120`)
    .action((name: string, { from }: { from: number }) =>
      steering(name, async (pool, steered) => {
        const { lagRows } = granted(await replay(pool, steered, from));
        process.stdout.write(`${name} goes back to ${count(from)}; ${rowsText(lagRows)} to go\n`);
      }),
    );
  consumers.addCommand(rebuildCommand());
  consumers
    .command('dead-letters <name>')
    .description('show the rows that it failed at, of every community')
    .action(letters);
  consumers
    .command('retry <name> [seq]')
    .description('try the dead letter of a number again, or all of them')
    .option('--all', 'all of them')
    .addHelpText(
      'after',
      `\nExamples:\n  $ minato consumers retry search 120\n  $ minato consumers retry search --all`,
    )
    .action((name: string, seq: string | undefined, { all = false }: { all?: boolean }) =>
      tryAgain(name, seq, all),
    );
  return consumers;
}

function rebuildCommand(): Command {
  return new Command('rebuild')
    .argument('<name>', 'which consumer')
    .description('build it anew from what is effective; the old one is served until the new one is whole')
    .option('--wait', 'stay until it is whole, and show how far it is')
    .option('--reason <text>', 'why; for the audit log', 'an operator asked for it')
    .addHelpText(
      'after',
      `
Ctrl-C ends the waiting only: the rebuild goes on.

Examples:
  $ minato consumers rebuild search
  $ minato consumers rebuild search --wait --reason "restored from a backup"`,
    )
    .action((name: string, { wait = false, reason }: { wait?: boolean; reason: string }) =>
      steering(name, async (pool, steered) => {
        const asked = granted(await rebuild(pool, steered, reason));
        if (wait) return awaitRebuild(pool, asked);
        process.stdout.write(`${name} is rebuilt; "minato consumers" shows how far it is\n`);
        for (const { text, advice } of await problems(pool, name))
          process.stdout.write(`${text}\n→ ${advice}\n`);
      }),
    );
}

/** A consumer belongs to the whole node, so what is done to it is noted in the default community. */
function steering(name: string, work: (pool: Pool, steered: Steered) => Promise<void>): Promise<void> {
  return withCommunity(DEFAULT_SLUG, async ({ database }, { id }) => {
    const known = await readConsumers(database.pool, Date.now());
    if (known.every(({ consumer }) => consumer !== name)) throw new Error(unknown(name, known));
    await work(database.pool, { community: id, consumer: name, now: Date.now() });
  });
}

function unknown(name: string, known: readonly ConsumerState[]): string {
  if (known.length === 0) return `there is no consumer "${name}"; ${NONE}`;
  return `there is no consumer "${name}"; there are: ${known.map(({ consumer }) => consumer).join(', ')}`;
}

const NONE = 'the first node with the role worker that runs here makes them';

function seqArgument(text: string): number {
  const seq = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(seq) || seq === 0)
    throw new InvalidArgumentError('a number of the outbox is needed, such as 120.');
  return seq;
}

// ─── How they stand ────────────────────────────────────────────────────────────────────────────────────────────

function list(json: boolean): Promise<void> {
  return withCommunity(DEFAULT_SLUG, async ({ database }) => {
    const watched = await watchConsumers(database.pool, Date.now);
    if (json) {
      const all = watched.map((state) => ({ ...state, problems: problemsOf(state) }));
      process.stdout.write(`${JSON.stringify(all, null, 2)}\n`);
      return;
    }
    if (watched.length === 0) process.stdout.write(`there are no consumers yet; ${NONE}\n`);
    else process.stdout.write(tableOf(watched));
  });
}

const COLUMNS: readonly [string, (state: Watched) => string][] = [
  ['consumer', ({ consumer }) => consumer],
  ['state', stateText],
  ['lag', lagText],
  ['rate', ({ rowsPerSecond, worked }) => (worked ? `${Math.round(rowsPerSecond)}/s` : '–')],
  ['dead letters', ({ deadLetters }) => count(deadLetters)],
  ['at', ({ lastSeq, headSeq }) => `${count(lastSeq)} of ${count(headSeq)}`],
];

/** Under each line what is wrong with it, and what to do. */
function tableOf(watched: readonly Watched[]): string {
  const rows = watched.map((state) => COLUMNS.map(([, text]) => text(state)));
  const widths = COLUMNS.map(([title], at) =>
    Math.max(title.length, ...rows.map((cells) => cells[at]!.length)),
  );
  const line = (cells: readonly string[]) =>
    `${cells
      .map((cell, at) => cell.padEnd(widths[at]!))
      .join('  ')
      .trimEnd()}\n`;
  const wrong = (state: Watched) => problemsOf(state).map(({ text, advice }) => `  ${text}\n  → ${advice}\n`);
  return [
    line(COLUMNS.map(([title]) => title)),
    ...watched.flatMap((state, at) => [line(rows[at]!), ...wrong(state)]),
  ].join('');
}

async function problems(pool: Pool, name: string) {
  const state = (await watchConsumers(pool, Date.now)).find(({ consumer }) => consumer === name);
  return state === undefined ? [] : problemsOf(state);
}

// ─── A rebuild, watched ────────────────────────────────────────────────────────────────────────────────────────

async function awaitRebuild(pool: Pool, asked: ConsumerState): Promise<void> {
  const { consumer } = asked;
  const generation = asked.rebuild?.generation ?? asked.generation;
  const interruption = watchInterruption();
  const bar = new Bar();
  try {
    for (const { text, advice } of await problems(pool, consumer))
      process.stderr.write(`${text}\n→ ${advice}\n`);
    while (!interruption.signal.aborted) {
      const state = granted(await readConsumer(pool, consumer, Date.now()));
      if (state.generation >= generation) {
        bar.stop();
        process.stdout.write(`${consumer} is rebuilt: generation ${state.generation}\n`);
        return;
      }
      bar.show(state);
      await delay(LOOK_MS, undefined, { signal: interruption.signal }).catch(() => undefined);
    }
    bar.stop();
    process.stderr.write(`the rebuild of ${consumer} goes on; "minato consumers" shows how far it is\n`);
    process.exitCode = interruption.exitCode() ?? 1;
  } finally {
    bar.stop();
    interruption.done();
  }
}

/** Begins once it is known how much there is to scan. */
class Bar {
  private progress: Progress | undefined;

  show({ rebuild, headSeq }: ConsumerState): void {
    if (rebuild === undefined || rebuild.startedAt === null) return;
    const { scanned, expected, lastSeq } = rebuild;
    const { phase, percent } = progressOf(rebuild, headSeq);
    this.progress ??= startProgress(expected);
    const about =
      phase === 'replaying'
        ? `replaying the outbox, ${rowsText(Math.max(0, headSeq - (lastSeq ?? 0)))} left`
        : `${count(scanned)} of ${count(expected)} events scanned, ${percent} %`;
    this.progress.update(phase === 'replaying' ? expected : scanned, about);
  }

  stop(): void {
    this.progress?.stop();
    this.progress = undefined;
  }
}

// ─── Dead letters ──────────────────────────────────────────────────────────────────────────────────────────────

function letters(name: string): Promise<void> {
  return steering(name, async (pool) => {
    const slugs = new Map((await readCommunities(pool)).map(({ id, slug }) => [id, slug]));
    await printAll(
      (page) => pageLetters(pool, { consumer: name }, page),
      (letter) => letterLine(letter, slugs.get(letter.community) ?? `${letter.community}`),
      `${name} has taken everything`,
    );
  });
}

function letterLine(letter: DeadLetter, slug: string): string {
  const { seq, op, kind, id, attempts, failedAt, retryAsked, error } = letter;
  const asked = retryAsked ? '  to be tried again' : '';
  // Quoted: an error may hold anything.
  return `${seq}  ${op}  kind ${kind}  ${id}  ${slug}  ${attempts} tries, ${timeText(failedAt)}${asked}  ${JSON.stringify(error)}`;
}

function tryAgain(name: string, text: string | undefined, all: boolean): Promise<void> {
  if ((text === undefined) === !all)
    throw new Error('name the number of a dead letter, or all of them with --all, and not both');
  const seq = text === undefined ? undefined : seqArgument(text);
  return steering(name, async (pool, steered) => {
    const tried = await retry(pool, steered, seq);
    if (isDenial(tried) && seq !== undefined)
      throw new Error(
        `${name} has no dead letter ${seq}; "minato consumers dead-letters ${name}" lists them`,
      );
    const { asked } = granted(tried);
    process.stdout.write(
      asked === 0
        ? `${name} has no dead letters\n`
        : `${count(asked)} ${asked === 1 ? 'is' : 'are'} tried again within a moment; "minato consumers dead-letters ${name}" shows what is left\n`,
    );
  });
}
