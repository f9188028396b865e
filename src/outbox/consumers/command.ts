import { setTimeout as delay } from 'node:timers/promises';
import { Command, InvalidArgumentError } from 'commander';
import type { Pool } from 'pg';
import { isDenial } from '../../api/rules-errors.js';
import { granted, printAll, timeText } from '../../cli/answers.js';
import { withCommunity } from '../../cli/context.js';
import { count, type Progress, startProgress, watchInterruption } from '../../cli/progress.js';
import { DEFAULT_SLUG, readCommunities } from '../../communities/communities.sql.js';
import { type ConsumerState, pageLetters, progressOf, readConsumer, readConsumers } from './admin.sql.js';
import type { DeadLetter } from './consumers.sql.js';
import { pause, rebuild, replay, resume, retry, type Steered } from './steps.sql.js';
import { lagText, problemsOf, rowsText, stateText, type Watched, watchConsumers } from './words.js';

const LOOK_MS = 500;

const EXAMPLES = `
Examples:
  $ minato consumers                            the state of each, and what to do about problems
  $ minato consumers pause search               stops it; what it has is still served
  $ minato consumers resume search
  $ minato consumers replay search --from 120   applies the outbox again from offset 120 on
  $ minato consumers rebuild search --wait      rebuilds it beside the old one, and shows the progress
  $ minato consumers dead-letters search        the changes that it could not apply, and why
  $ minato consumers retry search 120           retries one of them; --all retries all`;

export function consumersCommand(): Command {
  const consumers = new Command('consumers')
    .description('consumers of the outbox, such as search: lag, failures, pause, replay, rebuild')
    .addHelpText('after', EXAMPLES);
  consumers
    .command('list', { isDefault: true })
    .description('show the state of each consumer')
    .option('--json', 'print JSON')
    .addHelpText('after', EXAMPLES)
    .action(({ json = false }: { json?: boolean }) => list(json));
  consumers
    .command('pause <name>')
    .description('stop it at its offset; it falls behind until it is resumed')
    .action((name: string) =>
      steering(name, async (pool, steered) => {
        granted(await pause(pool, steered));
        process.stdout.write(`${name} is paused; to continue: minato consumers resume ${name}\n`);
      }),
    );
  consumers
    .command('resume <name>')
    .description('continue at its offset')
    .action((name: string) =>
      steering(name, async (pool, steered) => {
        const { lagRows } = granted(await resume(pool, steered));
        process.stdout.write(`${name} continues; ${rowsText(lagRows)} to apply\n`);
      }),
    );
  consumers
    .command('replay <name>')
    .description('move it back, and apply rows of the outbox again')
    .requiredOption('--from <seq>', 'the first offset that is applied again', seqArgument)
    .addHelpText('after', `\nExamples:\n  $ minato consumers replay search --from 120`)
    .action((name: string, { from }: { from: number }) =>
      steering(name, async (pool, steered) => {
        const { lagRows } = granted(await replay(pool, steered, from));
        process.stdout.write(`${name} is moved back to ${count(from)}; ${rowsText(lagRows)} to apply\n`);
      }),
    );
  consumers.addCommand(rebuildCommand());
  consumers
    .command('dead-letters <name>')
    .description('show the changes that it could not apply, of every community')
    .action(letters);
  consumers
    .command('retry <name> [seq]')
    .description('retry the dead letter of an offset, or all of them')
    .option('--all', 'retry all dead letters')
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
    .description('rebuild it from the effective events; the old one is served until the new one is complete')
    .option('--wait', 'wait until it is complete, and show the progress')
    .option('--reason <text>', 'the reason, for the audit log', 'an operator asked for it')
    .addHelpText(
      'after',
      `
Ctrl-C only ends the waiting: the rebuild continues.

Examples:
  $ minato consumers rebuild search
  $ minato consumers rebuild search --wait --reason "restored from a backup"`,
    )
    .action((name: string, { wait = false, reason }: { wait?: boolean; reason: string }) =>
      steering(name, async (pool, steered) => {
        const asked = granted(await rebuild(pool, steered, reason));
        if (wait) return awaitRebuild(pool, asked);
        process.stdout.write(`the rebuild of ${name} is requested; "minato consumers" shows the progress\n`);
        for (const { text, advice } of await problems(pool, name))
          process.stdout.write(`${text}\n→ ${advice}\n`);
      }),
    );
}

/** A consumer belongs to the whole node, so its audit rows belong to the default community. */
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

const NONE = 'the first node with the role worker creates them';

function seqArgument(text: string): number {
  const seq = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(seq) || seq === 0)
    throw new InvalidArgumentError('must be an offset of the outbox, such as 120.');
  return seq;
}

// ─── State ─────────────────────────────────────────────────────────────────────────────────────────────────

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

/** Below each line: its problems and what to do about them. */
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

// ─── A rebuild, watched ────────────────────────────────────────────────────────────────────────────────────

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
    process.stderr.write(`the rebuild of ${consumer} continues; "minato consumers" shows the progress\n`);
    process.exitCode = interruption.exitCode() ?? 1;
  } finally {
    bar.stop();
    interruption.done();
  }
}

/** Starts as soon as the number of events to scan is known. */
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

// ─── Dead letters ──────────────────────────────────────────────────────────────────────────────────────────

function letters(name: string): Promise<void> {
  return steering(name, async (pool) => {
    const slugs = new Map((await readCommunities(pool)).map(({ id, slug }) => [id, slug]));
    await printAll(
      (page) => pageLetters(pool, { consumer: name }, page),
      (letter) => letterLine(letter, slugs.get(letter.community) ?? `${letter.community}`),
      `${name} has no dead letters`,
    );
  });
}

function letterLine(letter: DeadLetter, slug: string): string {
  const { seq, op, kind, id, attempts, failedAt, retryAsked, error } = letter;
  const asked = retryAsked ? '  retry requested' : '';
  // Quoted: an error may contain any characters.
  const failed = `${attempts} tries, ${timeText(failedAt)}${asked}`;
  return `${seq}  ${op}  kind ${kind}  ${id}  ${slug}  ${failed}  ${JSON.stringify(error)}`;
}

function tryAgain(name: string, text: string | undefined, all: boolean): Promise<void> {
  if ((text === undefined) === !all)
    throw new Error('give the offset of a dead letter, or --all, and not both');
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
        : `${count(asked)} ${asked === 1 ? 'is' : 'are'} retried within seconds; ` +
            `"minato consumers dead-letters ${name}" shows those that fail again\n`,
    );
  });
}
