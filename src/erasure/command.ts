import { access } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { Command, InvalidArgumentError } from 'commander';
import { npubEncode } from 'nostr-tools/nip19';
import { granted, printAll, pubkeyArgument } from '../cli/answers.js';
import { COMMUNITY_OPTION, chooseCommunity, withDatabase } from '../cli/context.js';
import { count, type Progress, startProgress } from '../cli/progress.js';
import { DEFAULT_SLUG } from '../communities/communities.sql.js';
import { type CommandJobs, withJobs } from '../jobs/command.js';
import type { JobContext } from '../jobs/job.js';
import { runJob } from '../jobs/run.js';
import { pubkeyOf, readConfig } from '../node/config.js';
import { prepareDatabase } from '../node/prepare.js';
import type { Assisting } from '../outbox/consumers/assist.js';
import type { Database } from '../postgres/database.js';
import { certificatesFile } from './certificates/sign.js';
import { replayCommand, unbanCommand } from './command-replay.js';
import {
  cancelErasure,
  type Erasure,
  type ErasureAsk,
  findOpenOfSlug,
  listErasures,
  readErasure,
  requestErasure,
  stepErasure,
} from './erasures.sql.js';
import { erase } from './jobs.js';
import { type Subject, sum } from './rules.js';
import { READER_WAITS_MAX, waitsForReaders } from './stores/outbox.js';
import { withRegistry } from './stores/registry.js';
import { endOf, fullText, lineOf, manifestOf } from './words.js';

const EXAMPLES = `
First it shows what is held, store by store. Then, after the grace period, nothing new is accepted, everything
is deleted, every store is counted again, and a certificate is signed. You can interrupt it at any time: a
running node continues it.

Examples:
  $ minato erase member npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6 -c art
  $ minato erase community art --grace-days 7
  $ minato erase                                     all of them, the newest first
  $ minato erase hold ID --reason "court order 7"    stops it for legal reasons; release continues it
  $ minato erase replay                              after a restore from a backup
  $ minato certificate show ID --html > proof.html   the proof of it`;

const WATCH_MS = 250;
/** How often the command waits for other jobs, about 15 seconds each, before it leaves the work to a node. */
const BUSY_MAX = 240;
/** Runs in a row without progress before the command gives up. */
const IDLE_MAX = 8;

interface Chosen {
  graceDays?: number;
  yes?: boolean;
  wait: boolean;
}

const GRACE = '--grace-days <days>';
const GRACE_ABOUT = 'days in which it can be cancelled (default: the setting of the community)';
const YES = ['-y, --yes', 'do not ask'] as const;
const NO_WAIT = ['--no-wait', 'leave it to a running node'] as const;

export function eraseCommand(): Command {
  const command = new Command('erase')
    .description('erase a member or a whole community from every store, and prove it')
    .addHelpText('after', EXAMPLES);
  command
    .command('member')
    .argument('<pubkey>', 'npub or hex', pubkeyArgument)
    .description('erase everything that is held about a key in one community')
    .option(...COMMUNITY_OPTION)
    .option(GRACE, GRACE_ABOUT, daysUpTo(30))
    .option(...YES)
    .option(...NO_WAIT)
    .addHelpText('after', EXAMPLES)
    .action(eraseMember);
  command
    .command('community <slug>')
    .description('erase a whole community, with its members, events, settings and keys')
    .option(GRACE, GRACE_ABOUT, daysUpTo(365))
    .option(...YES)
    .option(...NO_WAIT)
    .addHelpText('after', EXAMPLES)
    .action(eraseCommunity);
  command
    .command('list', { isDefault: true })
    .description('show erasures, the newest first')
    .option('--open', 'only those that have not ended')
    .action(({ open }: { open?: boolean }) =>
      withPrepared((database) =>
        printAll((page) => listErasures(database.pool, { open }, page), lineOf, 'nothing was erased'),
      ),
    );
  command
    .command('show <id>')
    .description('show one: its times, and what was counted, deleted and left in each store')
    .action((id: string) =>
      withPrepared(async (database) => {
        process.stdout.write(fullText(await known(database, id)));
      }),
    );
  addSteps(command);
  command.addCommand(replayCommand());
  command.addCommand(unbanCommand());
  return command;
}

function addSteps(command: Command): void {
  command
    .command('cancel <id>')
    .description('cancel one during its grace period')
    .action((id: string) =>
      step(id, (database, ref) => cancelErasure(database.pool, ref, Date.now()), 'taken back'),
    );
  command
    .command('hold <id>')
    .description('stop one for legal reasons, in any stage; noted in the audit log')
    .requiredOption('--reason <text>', 'why, for the audit log')
    .action((id: string, { reason }: { reason: string }) => {
      if (reason.trim() === '') throw new Error('--reason must say why');
      const hold = (database: Database, ref: Ref) =>
        stepErasure(database.pool, 'hold', { ...ref, reason }, Date.now());
      return step(id, hold, `held; to continue: minato erase release ${id}`);
    });
  command
    .command('release <id>')
    .description('continue one that is held')
    .action((id: string) =>
      step(
        id,
        (database, ref) => stepErasure(database.pool, 'release', ref, Date.now()),
        'released; a running node continues within a minute, or: minato jobs run erase',
      ),
    );
  command
    .command('retry <id>')
    .description('try the stores that failed again')
    .option(...NO_WAIT)
    .action((id: string, { wait }: { wait: boolean }) =>
      withJobs(async (context, { dataDir }) => {
        const { community, erasureId } = await known(context.database, id);
        const ref = { community, erasureId };
        const erasure = granted(await stepErasure(context.database.pool, 'retry', ref, Date.now()));
        await finish(context, erasure, { wait, dataDir, rows: sum(erasure.counted) });
      }),
    );
}

function daysUpTo(max: number): (text: string) => number {
  return (text) => {
    const days = Number(text);
    if (!/^\d+$/.test(text) || days > max)
      throw new InvalidArgumentError(`a number from 0 to ${max} is needed.`);
    return days;
  };
}

function withPrepared(work: (database: Database) => Promise<void>): Promise<void> {
  return withDatabase(async ({ database, config, log }) => {
    await prepareDatabase(database, config, Date.now, log);
    await work(database);
  });
}

async function known({ pool }: Database, id: string): Promise<Erasure> {
  const erasure = await readErasure(pool, id);
  if (erasure === undefined) throw new Error(`there is no erasure "${id}"; "minato erase list" shows them`);
  return erasure;
}

type Ref = { readonly community: number; readonly erasureId: string };

function step(
  id: string,
  work: (database: Database, ref: Ref) => ReturnType<typeof cancelErasure>,
  said: string,
): Promise<void> {
  return withPrepared(async (database) => {
    const { community, erasureId } = await known(database, id);
    granted(await work(database, { community, erasureId }));
    process.stdout.write(`${said}\n`);
  });
}

// ── Asking ─────────────────────────────────────────────────────────────────────────────────────────────────

async function eraseMember(pubkey: string, options: Chosen & { community: string }): Promise<void> {
  refuseUnasked(options);
  if (readConfig(process.env).adminPubkeys.includes(pubkey))
    throw new Error('this key is an operator by MINATO_ADMIN_PUBKEYS; remove it there first');
  await withJobs(async (context, { dataDir }) => {
    const { id, slug, settings } = chooseCommunity(context.communities, options.community);
    const npub = npubEncode(pubkey);
    const isRight = (answer: string) => pubkeyOf(answer) === pubkey;
    const rows = await show(context, `${npub} in ${slug}`, { type: 'member', community: id, pubkey });
    if (!options.yes) await confirm(npub, isRight);
    const graceDays = options.graceDays ?? settings['erasure.memberGraceDays'];
    await ask(
      context,
      { community: id, slug, pubkey, cause: 'operator', graceDays },
      { ...options, dataDir, rows },
    );
  });
}

async function eraseCommunity(given: string, options: Chosen): Promise<void> {
  refuseUnasked(options);
  if (given === DEFAULT_SLUG)
    throw new Error(
      'the default community is the node itself and is not erased; erase its members, or drop the database',
    );
  await withJobs(async (context, { dataDir }) => {
    const open = await findOpenOfSlug(context.database.pool, given);
    if (open?.fencedAt)
      throw new Error(`${given} is being erased already: minato erase show ${open.erasureId}`);
    const { id, slug, settings } = chooseCommunity(context.communities, given);
    const rows = await show(context, `community ${slug}`, { type: 'community', community: id });
    if (!options.yes) await confirm(slug, (answer) => answer === slug);
    const graceDays = options.graceDays ?? settings['erasure.communityGraceDays'];
    await ask(context, { community: id, slug, cause: 'operator', graceDays }, { ...options, dataDir, rows });
  });
}

/** Checked before anything is opened. */
function refuseUnasked({ yes }: Chosen): void {
  if (!yes && !process.stdin.isTTY)
    throw new Error('an erasure cannot be undone: without a terminal to ask on it needs --yes');
}

/** Prints what is held, before anything is requested. Returns the number of rows in all stores. */
async function show(
  { erasing, database, now, bounds }: JobContext,
  what: string,
  subject: Subject,
): Promise<number> {
  return withRegistry(erasing, database, { now, rows: bounds.rows }, async ({ registry }) => {
    const counted = await registry.countAll(subject);
    process.stdout.write(manifestOf(what, counted));
    return sum(Object.fromEntries(counted.succeeded));
  });
}

async function confirm(name: string, isRight: (answer: string) => boolean): Promise<void> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const answer = await new Promise<string>((resolve) => {
    terminal.once('close', () => resolve('')).once('SIGINT', () => terminal.close());
    terminal.question(`This cannot be undone. Type ${name} to continue: `, resolve);
  });
  terminal.close();
  if (!isRight(answer.trim())) throw new Error('that is not the same; nothing was erased');
}

interface Ending {
  readonly wait: boolean;
  readonly dataDir: string;
  /** Rows that are expected to be deleted. */
  readonly rows: number;
}

async function ask(context: CommandJobs, asked: ErasureAsk, ending: Ending): Promise<void> {
  const erasure = granted(await requestErasure(context.database.pool, asked, context.now()));
  process.stdout.write(`erasure ${erasure.erasureId}\n`);
  await finish(context, erasure, ending);
}

// ── Carrying out ───────────────────────────────────────────────────────────────────────────────────────────

async function finish(
  context: CommandJobs,
  erasure: Erasure,
  { wait, dataDir, rows }: Ending,
): Promise<void> {
  const isDue = erasure.graceUntil <= context.now() && erasure.heldAt === null;
  if (isDue && !wait) {
    process.stdout.write(`a running node carries it out; see: minato erase show ${erasure.erasureId}\n`);
    return;
  }
  const ended = isDue ? await carryOut(context, erasure, rows) : erasure;
  const { ok, text } = endOf(ended);
  (ok ? process.stdout : process.stderr).write(text);
  if (ended.stage === 'completed') process.stdout.write(await certificateText(ended.erasureId, dataDir));
  if (!ok) process.exitCode = 1;
}

/** The file is on the machine whose worker has signed the certificate. */
async function certificateText(erasureId: string, dataDir: string): Promise<string> {
  const path = certificatesFile(dataDir);
  const isHere = await access(path).then(
    () => true,
    () => false,
  );
  const lines = [`minato certificate show ${erasureId}`, ...(isHere ? [`kept in ${path}`] : [])];
  return `certificate: ${lines.join('\n             ')}\n`;
}

/**
 * Carries the erasure out in this process, together with the consumers that it waits for. While another
 * process holds the lock of the jobs, that one may carry it out, and its progress is shown.
 */
async function carryOut(context: CommandJobs, begun: Erasure, rows: number): Promise<Erasure> {
  const progress = startProgress(rows);
  const shown = { waits: '' };
  const stopWatching = watch(context, begun.erasureId, progress, shown);
  const onWait = (about: string) => {
    shown.waits = `, ${about}`;
  };
  const runs = async (consumers: Assisting): Promise<Erasure> => {
    let erasure = begun;
    for (let waits = 0; waits < READER_WAITS_MAX; waits += 1) {
      erasure = await carried(erasure);
      if (!waitsForReaders(erasure) || !(await consumers.caughtUp(context.signal, onWait))) break;
      shown.waits = '';
    }
    return erasure;
  };
  const carried = async (from: Erasure): Promise<Erasure> => {
    let erasure = from;
    for (let busy = 0, idle = 0; busy < BUSY_MAX && idle < IDLE_MAX; ) {
      if (context.signal.aborted) break;
      const result = await runJob(erase, context);
      const now = (await readErasure(context.database.pool, begun.erasureId)) ?? erasure;
      busy += result === 'busy' ? 1 : 0;
      idle = result !== 'busy' && !hasMoved(erasure, now) ? idle + 1 : 0;
      erasure = now;
      if (hasEnded(erasure)) break;
    }
    return erasure;
  };
  try {
    return await context.withConsumers(runs);
  } finally {
    stopWatching();
    progress.stop();
  }
}

const hasEnded = ({ stage, heldAt, failedAt }: Erasure) =>
  stage === 'completed' || stage === 'cancelled' || heldAt !== null || failedAt !== null;

const hasMoved = (before: Erasure, now: Erasure) =>
  now.stage !== before.stage ||
  now.done.length !== before.done.length ||
  sum(now.deleted) !== sum(before.deleted);

function watch(
  { database }: JobContext,
  erasureId: string,
  progress: Progress,
  shown: { readonly waits: string },
): () => void {
  let isOver = false;
  const timer = setInterval(() => {
    readErasure(database.pool, erasureId).then(
      (erasure) => {
        if (erasure === undefined || isOver) return;
        const gone = sum(erasure.deleted);
        progress.update(gone, `${erasure.stage}, ${count(gone)} rows are deleted${shown.waits}`);
      },
      () => undefined,
    );
  }, WATCH_MS);
  return () => {
    isOver = true;
    clearInterval(timer);
  };
}
