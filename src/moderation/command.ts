import { readFile } from 'node:fs/promises';
import { text as textOf } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { Argument, Command, InvalidArgumentError } from 'commander';
import type { Pool } from 'pg';
import { ERRORS, isDenial } from '../api/rules-errors.js';
import { granted, oneOf, printAll, pubkeyArgument, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { count } from '../cli/progress.js';
import type { Community } from '../communities/communities.js';
import { DAY_MS } from '../events/rules/retention.js';
import type { StoredEvents } from '../events/stored-events.js';
import { labelsAbout } from '../labels/labels.sql.js';
import { LABELS, type LabelSpec, labelSchema } from '../labels/rules.js';
import { reportsOfCase } from '../reports/reports.sql.js';
import { REPORT_REASONS, type ReportReason } from '../reports/rules.js';
import { actInBatch, BATCH_CASES_MAX, closeCaseBatch, openCaseBatch } from './case-batches.sql.js';
import { readCaseEvent } from './case-event.js';
import {
  type Acting,
  type Action,
  act as actOn,
  type Case,
  type CaseFilter,
  findAction,
  findCase,
  listActions,
  listCases,
} from './cases.sql.js';
import { batchCommands } from './command-batches.js';
import {
  CASE_ACTIONS,
  CASE_STATUSES,
  CASE_STEPS,
  type CaseAction,
  type CaseStatus,
  ruleSchema,
  TRY_EVENTS_MAX,
} from './rules.js';
import { compileRule } from './rules-match.js';
import {
  changeRule,
  createRule,
  type DeleteRule,
  deleteRule,
  type KeptRule,
  listRules,
  noteTried,
} from './stored-rules.sql.js';
import { tryRule } from './trial.js';

/** How long this command waits for a pending action: a running node carries it out within a second. */
const WAIT_MS = 10_000;
const LOOK_MS = 100;
const TRY_EVENTS = 1_000;
const DAYS_MAX = 36_500;
const PAGE_CASES = 200;

const EXAMPLES = `
A rule is JSON with a name, conditions that must all hold (kinds, authors, topics, words, patterns, tags,
rate), and an action: label, hold (hide until a moderator decides), hide, or refuse (do not store). See
docs/moderation.md.

Examples:
  $ echo '{"name":"casino","conditions":{"words":["casino"]},"action":"hold"}' | minato moderation rules add -
  $ minato moderation try casino --last 5000    show what it would have matched; nothing is done
  $ minato moderation rules enable casino
  $ minato moderation cases --status held
  $ minato moderation cases --status open --reason spam --older-than 2
  $ minato moderation case 0b6fa0a2-…           its event, reports, actions and labels
  $ minato moderation act 0b6fa0a2-… restore --note "a joke"
  $ minato moderation act all dismiss --status open --reason spam --older-than 30 --dry-run
  $ minato moderation act all dismiss --status open --reason spam --older-than 30
  $ minato moderation act 0b6fa0a2-… label --label spam --confidence 0.9 --days 30`;

interface Chosen {
  readonly community: string;
}

const write = (line: string) => process.stdout.write(`${line}\n`);

export function moderationCommand(): Command {
  const moderation = new Command('moderation')
    .description('rules, cases, and actions on them: remove, restore, label, ban')
    .addHelpText('after', EXAMPLES);
  moderation.addCommand(rulesCommand());
  moderation
    .command('try <rule>')
    .description('show what a rule would have matched among the newest events; then it can be enabled')
    .option('--last <n>', 'how many events', lastArgument, TRY_EVENTS)
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action((name: string, { community: slug, last }: Chosen & { last: number }) =>
      withCommunity(slug, ({ database, events }, community) =>
        attempt(database.pool, events.stored, community, name, last),
      ),
    );
  moderation.addCommand(
    withFilters(new Command('cases'))
      .description('show the cases, the newest first')
      .option(...COMMUNITY_OPTION)
      .addHelpText('after', EXAMPLES)
      .action((options: Chosen & CaseOptions) =>
        withCommunity(options.community, async ({ database: { pool } }, { id }) => {
          const filter = await caseFilter(pool, id, options);
          await printAll((page) => listCases(pool, filter, page), caseLine, 'there are no cases');
        }),
      ),
  );
  moderation
    .command('case <id>')
    .description('show a case with its event, reports, actions and labels')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action((id: string, { community: slug }: Chosen) =>
      withCommunity(slug, ({ database, events }, community) =>
        showCase(database.pool, events.stored, community.id, id),
      ),
    );
  moderation.addCommand(actCommand());
  for (const command of batchCommands()) moderation.addCommand(command);
  return moderation;
}

// ─── Rules ─────────────────────────────────────────────────────────────────────────────────────────────────

function rulesCommand(): Command {
  const rules = new Command('rules').description('show, write, enable, disable and delete rules');
  rules
    .command('list', { isDefault: true })
    .description('show them in the order in which they apply')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action(({ community: slug }: Chosen) =>
      withCommunity(slug, async ({ database }, { id }) => {
        const all = await listRules(database.pool, id);
        if (all.length === 0) write('there are no rules');
        for (const rule of all) write(ruleLine(rule));
      }),
    );
  rules
    .command('add')
    .argument('<file>', 'a rule as JSON; "-" reads standard input')
    .description('write a rule; it is not enabled yet')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action((file: string, { community: slug }: Chosen) =>
      withCommunity(slug, async ({ database }, { id }) => {
        const spec = await readRule(file);
        const rule = granted(await createRule(database.pool, { community: id }, spec, Date.now()));
        write(ruleLine(rule));
        write(`try it: minato moderation try ${JSON.stringify(rule.name)}`);
      }),
    );
  for (const enabled of [true, false])
    rules
      .command(enabled ? 'enable <rule>' : 'disable <rule>')
      .description(enabled ? 'apply it to new events from now on' : 'stop applying it; its actions stay')
      .option(...COMMUNITY_OPTION)
      .action((name: string, { community: slug }: Chosen) =>
        withCommunity(slug, ({ database }, { id }) => switchRule(database.pool, id, name, enabled)),
      );
  rules
    .command('remove <rule>')
    .description('delete it; a running node restores what it holds and nobody has decided about')
    .option('--keep', 'leave what it holds held')
    .option('--hidden', 'restore what it has hidden too')
    .option(...COMMUNITY_OPTION)
    .action((name: string, { community: slug, ...how }: Chosen & DeleteRule) =>
      withCommunity(slug, async ({ database: { pool } }, { id }) => {
        const { ruleId } = await ruleNamed(pool, id, name);
        const { released } = granted(await deleteRule(pool, { community: id, ruleId }, Date.now(), how));
        write(`${name} is deleted`);
        if (released !== undefined) write(`what it held is released: minato moderation batches ${released}`);
      }),
    );
  return rules;
}

async function readRule(file: string) {
  const text = file === '-' ? await textOf(process.stdin) : await readFile(file, 'utf8');
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new Error(`${file === '-' ? 'standard input' : file} is not JSON`);
  }
  const checked = ruleSchema.safeParse(json);
  if (checked.success) return checked.data;
  const problems = checked.error.issues.map(
    ({ path, message }) => `${path.join('.') || 'the rule'}: ${message}`,
  );
  throw new Error(`this is not a valid rule: ${problems.join('; ')}`);
}

/** By its name or its id. */
export async function ruleNamed(pool: Pool, community: number, name: string): Promise<KeptRule> {
  const all = await listRules(pool, community);
  const found = all.find((rule) => rule.name === name || rule.ruleId === name);
  if (found !== undefined) return found;
  const names = all.map((rule) => JSON.stringify(rule.name)).join(', ');
  throw new Error(`there is no rule ${JSON.stringify(name)}; there are: ${names || 'none'}`);
}

async function switchRule(pool: Pool, community: number, name: string, enabled: boolean): Promise<void> {
  const { ruleId } = await ruleNamed(pool, community, name);
  const asItIs = ({ label, ...before }: KeptRule) => ({ ...before, label: label ?? undefined });
  write(ruleLine(granted(await changeRule(pool, { community, ruleId }, { enabled }, asItIs, Date.now()))));
}

function ruleLine({
  ruleId,
  name,
  priority,
  enabled,
  action,
  version,
  triedVersion,
  conditions,
}: KeptRule): string {
  const state = enabled ? 'enabled' : triedVersion === version ? 'tried, not enabled' : 'not tried';
  const tail = JSON.stringify(conditions);
  return `${ruleId}  ${JSON.stringify(name)}  ${action}  priority ${priority}  ${state}  ${tail}`;
}

async function attempt(
  pool: Pool,
  events: StoredEvents,
  community: Community,
  name: string,
  last: number,
): Promise<void> {
  const rule = await ruleNamed(pool, community.id, name);
  const tried = await tryRule(pool, events, community, compileRule(rule), last);
  const { lookedAt, met, authors, kinds, samples } = tried;
  await noteTried(pool, rule);
  write(`of the last ${count(lookedAt)} events it would have matched ${count(met)}`);
  for (const [kind, events] of kinds) write(`  kind ${kind}: ${count(events)}`);
  for (const [pubkey, events] of authors) write(`  by ${pubkey}: ${count(events)}`);
  for (const { id, excerpt } of samples) write(`  ${id}  ${JSON.stringify(excerpt)}`);
  if (!rule.enabled) write(`enable it: minato moderation rules enable ${JSON.stringify(rule.name)}`);
}

// ─── Cases ─────────────────────────────────────────────────────────────────────────────────────────────────

const withFilters = (command: Command) =>
  command
    .option('--status <status>', CASE_STATUSES.join(', '), oneOf(CASE_STATUSES))
    .option('--topic <topic>', 'about an event of this topic')
    .option('--author <pubkey>', 'about this person or an event of theirs', pubkeyArgument)
    .option('--reason <reason>', `reported for: ${REPORT_REASONS.join(', ')}`, oneOf(REPORT_REASONS))
    .option('--rule <rule>', 'opened by this rule; its name or id')
    .option('--older-than <days>', 'opened more than this many days ago', daysArgument)
    .option('--newer-than <days>', 'opened in the last days', daysArgument)
    .option('--appealed', 'with an appeal that waits for a decision');

interface CaseOptions {
  readonly status?: CaseStatus;
  readonly topic?: string;
  readonly author?: string;
  readonly reason?: ReportReason;
  readonly rule?: string;
  readonly olderThan?: number;
  readonly newerThan?: number;
  readonly appealed?: boolean;
}

async function caseFilter(
  pool: Pool,
  community: number,
  { rule, olderThan, newerThan, status, topic, author, reason, appealed }: CaseOptions,
): Promise<CaseFilter> {
  const ago = (days?: number) => (days === undefined ? undefined : Date.now() - days * DAY_MS);
  return {
    community,
    status,
    topic,
    author,
    reason,
    appealed,
    ruleId: rule === undefined ? undefined : (await ruleNamed(pool, community, rule)).ruleId,
    since: ago(newerThan),
    until: ago(olderThan),
  };
}

function caseLine(found: Case): string {
  const { caseId, status, openedAt, targetEvent, targetPubkey, reason } = found;
  const about = targetEvent === null ? `person ${targetPubkey}` : `event ${targetEvent}`;
  const tail = `${reportWords(found)}  ${JSON.stringify(reason)}`;
  return `${caseId}  ${status.padEnd(9)}  ${timeText(openedAt)}  ${about}${tail}`;
}

function reportWords({ reports, reportsWithStanding, reportWeight }: Case): string {
  if (reports === 0) return '';
  const all = `${count(reports)} ${reports === 1 ? 'report' : 'reports'}`;
  const weight = reportsWithStanding === 0 ? '' : `, weight ${reportWeight}`;
  return `  ${all}, ${count(reportsWithStanding)} with standing${weight}`;
}

function actionLine({ at, action, actor, ruleId, outcome, note }: Action): string {
  const by = actor ?? (ruleId === null ? 'the command line' : 'a rule');
  const tail = note ? `  ${JSON.stringify(note)}` : '';
  return `  ${timeText(at)}  ${action} by ${by}: ${outcome ?? 'not carried out yet'}${tail}`;
}

async function showCase(pool: Pool, events: StoredEvents, community: number, id: string): Promise<void> {
  const found = granted(await findCase(pool, community, id));
  const { targetEvent: event, targetPubkey: pubkey } = found;
  write(caseLine(found));
  write(`author ${pubkey}`);
  if (found.appeal !== null && found.appealedAt !== null)
    write(`appealed ${timeText(found.appealedAt)}: ${JSON.stringify(found.appeal)}`);
  if (event !== null) {
    const shown = await readCaseEvent(pool, events, { community, id: event });
    write(shown === undefined ? 'the event was deleted by its author or purged' : JSON.stringify(shown));
  }
  for (const { createdAt, reason, comment } of await reportsOfCase(pool, found.caseId))
    write(
      `  ${timeText(createdAt)}  reported: ${reason}${comment === '' ? '' : `  ${JSON.stringify(comment)}`}`,
    );
  for (const action of await listActions(pool, found, community)) write(actionLine(action));
  for (const put of await labelsAbout(pool, { community, event: event ?? undefined, pubkey })) {
    const until = `${timeText(put.lapsesAt * 1_000)}${put.withdrawnAt === null ? '' : ', withdrawn'}`;
    write(`  ${timeText(put.createdAt)}  label ${put.label} ${put.confidence}, until ${until}`);
  }
}

interface ActOptions extends Chosen, CaseOptions {
  readonly dryRun?: boolean;
  readonly note: string;
  readonly label?: LabelSpec['label'];
  readonly confidence?: number;
  readonly days?: number;
  readonly policy?: string;
}

function actCommand(): Command {
  const act = new Command('act')
    .argument('<case>', 'its id, or "all" for every case that the filters find')
    .addArgument(new Argument('<action>', CASE_ACTIONS.join(', ')).argParser(oneOf(CASE_ACTIONS)))
    .description(
      'act on a case, or on every case found; a running node carries out what removes or restores events',
    );
  return withFilters(act)
    .option('--dry-run', 'with "all": count the cases; nothing is done')
    .option('--note <text>', 'the reason, stored for operators', '')
    .option('--label <label>', LABELS.join(', '), oneOf(LABELS))
    .option('--confidence <number>', 'how sure, up to 1', Number)
    .option('--days <n>', 'days until the label lapses', Number)
    .option('--policy <text>', 'the community policy that it is based on')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action((caseId: string, action: CaseAction, options: ActOptions) =>
      withCommunity(options.community, async ({ database: { pool }, config, events }, { id, settings }) => {
        const label = labelOf(action, options);
        const privateKinds = settings['auth.privateKinds'];
        const same = {
          community: id,
          action,
          note: options.note,
          label,
          privateKinds,
          events: events.stored,
        };
        const fixed = { fixed: config.adminPubkeys };
        if (caseId === 'all') {
          const found = await findAll(pool, await caseFilter(pool, id, options));
          if (options.dryRun === true) previewAll(found, action);
          else await actOnAll(pool, found, same, fixed);
          return;
        }
        if (options.dryRun === true) throw new Error('--dry-run works only with "all"');
        const taken = granted(await actOn(pool, { ...same, caseId }, fixed, Date.now()));
        write(actionLine(await settled(pool, taken)));
      }),
    );
}

/** Reads all cases before it changes the first one, because an action may change what the filter matches. */
async function findAll(pool: Pool, filter: CaseFilter): Promise<Case[]> {
  const found: Case[] = [];
  for (let cursor: string | undefined; found.length < BATCH_CASES_MAX; ) {
    const page = granted(await listCases(pool, filter, { limit: PAGE_CASES, cursor }));
    found.push(...page.items);
    cursor = page.cursor;
    if (cursor === undefined) break;
  }
  return found.slice(0, BATCH_CASES_MAX);
}

const moreThan = (found: readonly Case[]) =>
  found.length < BATCH_CASES_MAX ? '' : '; there may be more: run it again';

function previewAll(found: readonly Case[], action: CaseAction): void {
  const possible = found.filter(({ status }) => CASE_STEPS[action][status] !== undefined);
  write(`it would ${action} ${count(possible.length)} of ${count(found.length)} cases${moreThan(found)}`);
}

async function actOnAll(
  pool: Pool,
  found: readonly Case[],
  same: Omit<Acting, 'caseId'>,
  fixed: { readonly fixed: readonly string[] },
): Promise<void> {
  const caseIds = found.map(({ caseId }) => caseId);
  const batch = await openCaseBatch(pool, { ...same, caseIds }, Date.now());
  let refused = 0;
  for (const caseId of caseIds) {
    const taken = await actInBatch(pool, batch, { ...same, caseId }, fixed, Date.now());
    if (!isDenial(taken)) continue;
    refused += 1;
    write(`${caseId}  ${ERRORS[taken.denied].message}`);
  }
  const done = `${count(found.length - refused)} of ${count(found.length)} cases`;
  write(`${done}; a running node carries out what is pending${moreThan(found)}`);
  const kept = await closeCaseBatch(pool, batch);
  if (kept !== undefined) write(`undo all of it: minato moderation undo ${kept}`);
}

function labelOf(action: CaseAction, { label, confidence, days, policy }: ActOptions): LabelSpec | undefined {
  const isLabelling = action === 'label' || action === 'unlabel';
  if (isLabelling !== (label !== undefined))
    throw new Error('the actions label and unlabel need --label; other actions do not take it');
  if (label === undefined) return undefined;
  const given = Object.entries({ label, confidence, days, policy }).filter(
    ([, value]) => value !== undefined,
  );
  const checked = labelSchema.safeParse(Object.fromEntries(given));
  if (checked.success) return checked.data;
  throw new Error(
    checked.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; '),
  );
}

/** Waits until a running node has carried out the action. */
async function settled(pool: Pool, taken: Action): Promise<Action> {
  const deadline = performance.now() + WAIT_MS;
  let action = taken;
  while (action.doneAt === null && performance.now() < deadline) {
    await delay(LOOK_MS);
    action = await findAction(pool, action.actionId);
  }
  if (action.doneAt === null) write('no running node has carried it out; the next node that starts will');
  return action;
}

function daysArgument(text: string): number {
  const days = Number(text);
  if (text.trim() !== '' && days >= 0 && days <= DAYS_MAX) return days;
  throw new InvalidArgumentError(`a number of days between 0 and ${DAYS_MAX} is needed.`);
}

function lastArgument(text: string): number {
  const last = Number(text);
  if (Number.isInteger(last) && last >= 1 && last <= TRY_EVENTS_MAX) return last;
  throw new InvalidArgumentError(`a number between 1 and ${TRY_EVENTS_MAX} is needed.`);
}
