/**
 * `minato moderation apply`, `remove`, `hold`, `label`, `batches` and `undo`: one action on many stored
 * events. A running node carries it out.
 */
import { Command, InvalidArgumentError } from 'commander';
import type { Pool } from 'pg';
import { granted, oneOf, printAll, pubkeyArguments, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { count } from '../cli/progress.js';
import type { Community } from '../communities/communities.js';
import type { StoredEvents } from '../events/stored-events.js';
import { LABELS, type LabelSpec, labelSchema } from '../labels/rules.js';
import type { SearchPools } from '../search/search.sql.js';
import { type Batch, findBatch, listBatches, startBatch, undoBatch } from './batches.sql.js';
import { findCase } from './cases.sql.js';
import {
  BATCH_ACTIONS,
  type BatchAction,
  type BatchSpec,
  batchOfRule,
  type Selection,
  selectionSchema,
} from './rules.js';
import { previewBatch, selectBySearch } from './selection.sql.js';
import { listRules } from './stored-rules.sql.js';

const EXAMPLES = `
Examples:
  $ minato moderation apply casino --dry-run         count what it would act on; nothing is done
  $ minato moderation apply casino                   apply the rule's action to stored events
  $ minato moderation remove --author npub1…         remove every event of an author
  $ minato moderation remove --words "casino bonus" --topic kukuri:global --dry-run
  $ minato moderation hold --search 'casino -novel' --dry-run   what members find, in every topic
  $ minato moderation hold --search 'casino -novel' --as-of 1794852000000   nothing that arrived later
  $ minato moderation label --label spam --search 'casino -novel' --as-of now
  $ minato moderation batches                        show their progress
  $ minato moderation undo 0b6fa0a2-…                undo a whole batch`;

interface Chosen {
  readonly community: string;
}

interface HowOptions extends Chosen {
  readonly dryRun?: boolean;
  readonly note: string;
}

interface SelectOptions extends HowOptions {
  readonly author?: readonly string[];
  readonly topic?: readonly string[];
  readonly words?: readonly string[];
  readonly search?: string;
  readonly asOf?: number;
  readonly case?: string;
  readonly label?: LabelSpec['label'];
  readonly confidence?: number;
  readonly days?: number;
}

const write = (line: string) => process.stdout.write(`${line}\n`);
const several = (text: string, before: readonly string[] = []) => [...before, text];

export function batchCommands(): Command[] {
  return [applyCommand(), ...BATCH_ACTIONS.map(selectCommand), batchesCommand(), undoCommand()];
}

const withHow = (command: Command) =>
  command
    .option('--dry-run', 'count what it would act on; nothing is done')
    .option('--note <text>', 'the reason, stored for operators', '')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES);

function applyCommand(): Command {
  return withHow(
    new Command('apply')
      .argument('<rule>', 'its name or id')
      .description('apply a rule to stored events; a running node carries it out'),
  ).action((name: string, options: HowOptions) =>
    withCommunity(options.community, async ({ database: { pool }, events }, community) => {
      const all = await listRules(pool, community.id);
      const rule = all.find((one) => one.name === name || one.ruleId === name);
      if (rule === undefined) throw new Error(`there is no rule ${JSON.stringify(name)}`);
      const own = batchOfRule(rule);
      if (own === undefined) throw new Error('a rule with a rate cannot be applied to stored events');
      const note = options.note === '' ? `rule: ${rule.name}` : options.note;
      const spec = { ...own, conditions: rule.conditions, byRule: true, note };
      await start(pool, events.stored, community, spec, options);
    }),
  );
}

const ABOUT: Record<BatchAction, string> = {
  remove: 'remove every event that matches all conditions; a running node carries it out',
  hold: 'hide every event that matches all conditions, with a held case each; a running node carries it out',
  label: 'label every event that matches all conditions; a running node carries it out',
};

function selectCommand(action: BatchAction): Command {
  const command = new Command(action)
    .description(ABOUT[action])
    .option('--author <pubkey>', 'of this author; may be given several times', pubkeyArguments)
    .option('--topic <topic>', 'of this topic; may be given several times', several)
    .option('--words <text>', 'with these words in the content; may be given several times', several)
    .option('--search <text>', 'what members find with it, in every topic; needs --dry-run or --as-of')
    .option(
      '--as-of <time>',
      'only events that arrived up to this time: milliseconds, as a dry run prints, or "now"',
      timeArgument,
    )
    .option('--case <id>', 'events of the person whom this case is about');
  if (action === 'label')
    command
      .requiredOption('--label <label>', LABELS.join(', '), oneOf(LABELS))
      .option('--confidence <number>', 'how sure, up to 1', Number)
      .option('--days <n>', 'days until the label lapses', Number);
  return withHow(command).action((options: SelectOptions) =>
    withCommunity(options.community, async ({ database, tagHash, events }, community) => {
      const { pool, searchPool } = database;
      const conditions = await conditionsOf(pool, community.id, options);
      const { note, asOf, dryRun } = options;
      const spec = { action, conditions, label: labelOf(options), byRule: false, note, asOf };
      if (conditions.search === undefined) return start(pool, events.stored, community, spec, options);
      if (asOf === undefined && dryRun !== true)
        throw new Error('--search needs --as-of: the time that --dry-run prints, or "now"');
      // Taken before the search, because events that arrive while it runs are not part of its result.
      const upTo = asOf ?? Date.now();
      const pools = { pool, searchPool, tagHash, elsewhere: events.elsewhere };
      const found = await searched(pools, community, conditions);
      return start(pool, events.stored, community, { ...spec, found, asOf: upTo }, options);
    }),
  );
}

async function searched(pools: SearchPools, community: Community, conditions: Selection) {
  const found = granted(await selectBySearch(pools, community, conditions, { now: Date.now() }));
  if (found.behind > 0)
    write(`the search index is ${count(found.behind)} changes behind: some events may be missing`);
  if (found.isRebuilding) write('the search index is being rebuilt: older events may be missing');
  return found;
}

function timeArgument(text: string): number {
  const time = text === 'now' ? Date.now() : Number(text);
  if (text.trim() !== '' && Number.isSafeInteger(time) && time >= 0) return time;
  throw new InvalidArgumentError('milliseconds since 1970, or "now".');
}

function labelOf({ label, confidence, days }: SelectOptions): LabelSpec | undefined {
  if (label === undefined) return undefined;
  const given = Object.entries({ label, confidence, days }).filter(([, value]) => value !== undefined);
  const checked = labelSchema.safeParse(Object.fromEntries(given));
  if (checked.success) return checked.data;
  throw new Error(
    checked.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; '),
  );
}

async function conditionsOf(
  pool: Pool,
  community: number,
  { author, topic, words, search, case: caseId }: SelectOptions,
): Promise<Selection> {
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
    ...(search === undefined ? {} : { search }),
  };
  const checked = selectionSchema.safeParse(given);
  if (checked.success) return checked.data;
  const problems = checked.error.issues.map(({ path, message }) => [...path, message].join(' '));
  throw new Error(`--author, --topic, --words, --search or --case: ${problems.join('; ')}`);
}

async function start(
  pool: Pool,
  events: StoredEvents,
  community: Community,
  spec: BatchSpec,
  { dryRun = false }: HowOptions,
): Promise<void> {
  if (!dryRun) {
    write(batchLine(granted(await startBatch(pool, { community: community.id }, spec, Date.now()))));
    return;
  }
  const found = await previewBatch(pool, events, community, spec, Date.now());
  const early = found.stoppedEarly ? ', and there are more' : '';
  write(`of ${count(found.lookedAt)} events${early} it would ${spec.action} ${count(found.met)}`);
  if (spec.found !== undefined) write(`to exclude events that arrive later, use: --as-of ${spec.asOf}`);
  for (const [kind, events] of found.kinds) write(`  kind ${kind}: ${count(events)}`);
  for (const [pubkey, events] of found.authors) write(`  by ${pubkey}: ${count(events)}`);
  for (const { id, excerpt } of found.samples) write(`  ${id}  ${JSON.stringify(excerpt)}`);
}

function batchLine({ batchId, status, action, createdAt, matched, outcomes, note }: Batch): string {
  const became = Object.entries(outcomes).map(([what, actions]) => `${what} ${count(actions)}`);
  const counts = [`${count(matched)} matched`, ...became].join(', ');
  const tail = note === '' ? '' : `  ${JSON.stringify(note)}`;
  return `${batchId}  ${status.padEnd(7)}  ${timeText(createdAt)}  ${action}  ${counts}${tail}`;
}

function batchesCommand(): Command {
  return new Command('batches')
    .argument('[id]', 'one of them')
    .description('show batches with their progress, the newest first')
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
    .description('undo a whole batch, within moderation.undoDays; a running node carries it out')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action((batchId: string, { community: slug }: Chosen) =>
      withCommunity(slug, async ({ database: { pool } }, { id: community, settings }) => {
        const undoDays = settings['moderation.undoDays'];
        write(batchLine(granted(await undoBatch(pool, { community, batchId }, undoDays, Date.now()))));
      }),
    );
}
