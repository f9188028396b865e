/** `minato moderation apply`, `remove`, `batches` and `undo`: many stored events as one. A running node carries them out. */
import { Command } from 'commander';
import type { Pool } from 'pg';
import type { Community } from '../communities.js';
import { type BatchSpec, batchOfRule, type Conditions, conditionsSchema } from '../core/moderation.js';
import {
  type Batch,
  findBatch,
  listBatches,
  previewBatch,
  startBatch,
  undoBatch,
} from '../store/moderation-batches.js';
import { findCase } from '../store/moderation-cases.js';
import { listRules } from '../store/moderation-rules.js';
import { granted, printAll, pubkeyArguments, timeText } from './answers.js';
import { COMMUNITY_OPTION, withCommunity } from './context.js';
import { count } from './progress.js';

const EXAMPLES = `
Examples:
  $ minato moderation apply casino --dry-run         in numbers; nothing is done
  $ minato moderation apply casino                   to what is stored, by the rule's own action
  $ minato moderation remove --author npub1…         everything of an author
  $ minato moderation remove --words "casino bonus" --topic kukuri:global --dry-run
  $ minato moderation batches                        how far they have come
  $ minato moderation undo 0b6fa0a2-…                as one`;

interface Chosen {
  readonly community: string;
}

interface HowOptions extends Chosen {
  readonly dryRun?: boolean;
  readonly note: string;
}

interface RemoveOptions extends HowOptions {
  readonly author?: readonly string[];
  readonly topic?: readonly string[];
  readonly words?: readonly string[];
  readonly case?: string;
}

const write = (line: string) => process.stdout.write(`${line}\n`);
const several = (text: string, before: readonly string[] = []) => [...before, text];

export function batchCommands(): Command[] {
  return [applyCommand(), removeCommand(), batchesCommand(), undoCommand()];
}

const withHow = (command: Command) =>
  command
    .option('--dry-run', 'what it would act on, in numbers; nothing is done')
    .option('--note <text>', 'why; for operators, and kept', '')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES);

function applyCommand(): Command {
  return withHow(
    new Command('apply')
      .argument('<rule>', 'its name or id')
      .description('apply a rule to what is stored; a running node carries it out'),
  ).action((name: string, options: HowOptions) =>
    withCommunity(options.community, async ({ database: { pool } }, community) => {
      const all = await listRules(pool, community.id);
      const rule = all.find((one) => one.name === name || one.ruleId === name);
      if (rule === undefined) throw new Error(`there is no rule ${JSON.stringify(name)}`);
      const own = batchOfRule(rule);
      if (own === undefined) throw new Error('this rule has a rate, which stored events do not have');
      const note = options.note === '' ? `rule: ${rule.name}` : options.note;
      await start(pool, community, { ...own, conditions: rule.conditions, byRule: true, note }, options);
    }),
  );
}

function removeCommand(): Command {
  return withHow(
    new Command('remove')
      .description('remove everything that meets all of this; a running node carries it out')
      .option('--author <pubkey>', 'of this author; may be given several times', pubkeyArguments)
      .option('--topic <topic>', 'of this topic; may be given several times', several)
      .option('--words <text>', 'with these words in the content; may be given several times', several)
      .option('--case <id>', 'of the person whom this case is about'),
  ).action((options: RemoveOptions) =>
    withCommunity(options.community, async ({ database: { pool } }, community) => {
      const conditions = await conditionsOf(pool, community.id, options);
      const { note } = options;
      await start(pool, community, { action: 'remove', conditions, byRule: false, note }, options);
    }),
  );
}

async function conditionsOf(
  pool: Pool,
  community: number,
  { author, topic, words, case: caseId }: RemoveOptions,
): Promise<Conditions> {
  const authors = [...(author ?? [])];
  if (caseId !== undefined) {
    const found = granted(await findCase(pool, community, caseId));
    if (found.targetEvent !== null)
      throw new Error(`this case is about one event: minato moderation act ${caseId} remove`);
    authors.push(found.targetPubkey);
  }
  const given = {
    ...(authors.length === 0 ? {} : { authors }),
    ...(topic === undefined ? {} : { topics: topic }),
    ...(words === undefined ? {} : { words }),
  };
  const checked = conditionsSchema.safeParse(given);
  if (checked.success) return checked.data;
  const problems = checked.error.issues.map(({ path, message }) => [...path, message].join(' '));
  throw new Error(`--author, --topic, --words or --case: ${problems.join('; ')}`);
}

async function start(
  pool: Pool,
  community: Community,
  spec: BatchSpec,
  { dryRun = false }: HowOptions,
): Promise<void> {
  if (!dryRun) {
    write(batchLine(granted(await startBatch(pool, { community: community.id }, spec, Date.now()))));
    return;
  }
  const found = await previewBatch(pool, community, spec, Date.now());
  const early = found.stoppedEarly ? ', and there are more' : '';
  write(`of ${count(found.lookedAt)} events${early} it would ${spec.action} ${count(found.met)}`);
  for (const [kind, events] of found.kinds) write(`  kind ${kind}: ${count(events)}`);
  for (const [pubkey, events] of found.authors) write(`  by ${pubkey}: ${count(events)}`);
  for (const { id, excerpt } of found.samples) write(`  ${id}  ${JSON.stringify(excerpt)}`);
}

function batchLine({ batchId, status, action, createdAt, matched, outcomes, note }: Batch): string {
  const became = Object.entries(outcomes).map(([what, actions]) => `${what} ${count(actions)}`);
  const tail = [`${count(matched)} matched`, ...became].join(', ');
  return `${batchId}  ${status.padEnd(7)}  ${timeText(createdAt)}  ${action}  ${tail}${note === '' ? '' : `  ${JSON.stringify(note)}`}`;
}

function batchesCommand(): Command {
  return new Command('batches')
    .argument('[id]', 'one of them')
    .description('show what was done to many events as one, the newest first')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action((batchId: string | undefined, { community: slug }: Chosen) =>
      withCommunity(slug, async ({ database: { pool } }, { id }) => {
        if (batchId !== undefined) write(batchLine(granted(await findBatch(pool, id, batchId))));
        else await printAll((page) => listBatches(pool, id, page), batchLine, 'there are no batches');
      }),
    );
}

function undoCommand(): Command {
  return new Command('undo')
    .argument('<batch>', 'its id')
    .description('undo a batch as one, within moderation.undoDays; a running node carries it out')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action((batchId: string, { community: slug }: Chosen) =>
      withCommunity(slug, async ({ database: { pool } }, { id: community, settings }) => {
        const undoDays = settings['moderation.undoDays'];
        write(batchLine(granted(await undoBatch(pool, { community, batchId }, undoDays, Date.now()))));
      }),
    );
}
