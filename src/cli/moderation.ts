import { readFile } from 'node:fs/promises';
import { text as textOf } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { Argument, Command, InvalidArgumentError } from 'commander';
import type { Pool } from 'pg';
import type { Community } from '../communities.js';
import { type Denial, ERRORS, isDenial } from '../core/errors.js';
import { LABELS, type LabelSpec, labelSchema } from '../core/labels.js';
import {
  CASE_ACTIONS,
  CASE_STATUSES,
  type CaseAction,
  type CaseStatus,
  ruleSchema,
  TRY_EVENTS_MAX,
} from '../core/moderation.js';
import { REPORT_REASONS, type ReportReason } from '../core/report.js';
import { DAY_MS } from '../core/retention.js';
import { compileRule } from '../core/rule-match.js';
import { labelsAbout } from '../store/labels.js';
import {
  type Action,
  act as actOn,
  type Case,
  type CaseFilter,
  findAction,
  findCase,
  listActions,
  listCases,
} from '../store/moderation-cases.js';
import { readCaseEvent } from '../store/moderation-event.js';
import {
  changeRule,
  createRule,
  type DeleteRule,
  deleteRule,
  type KeptRule,
  listRules,
  noteTried,
} from '../store/moderation-rules.js';
import { tryRule } from '../store/moderation-try.js';
import { reportsOfCase } from '../store/reports.js';
import { granted, oneOf, printAll, pubkeyArgument, timeText } from './answers.js';
import { COMMUNITY_OPTION, withCommunity } from './context.js';
import { batchCommands } from './moderation-batches.js';
import { count } from './progress.js';

/** How long an order of this command is waited for: a running node carries it out within a second. */
const WAIT_MS = 10_000;
const LOOK_MS = 100;
const TRY_EVENTS = 1_000;
const DAYS_MAX = 36_500;
/** Cases that one command acts on, at most. */
const ALL_MAX = 10_000;
const PAGE_CASES = 200;

const EXAMPLES = `
A rule is JSON: a name, conditions that must all hold (kinds, authors, topics, words, patterns, tags, rate), and an action:
label, hold (out of view until a moderator decides), hide, or refuse (at the door). See docs/moderation.md.

Examples:
  $ echo '{"name":"casino","conditions":{"words":["casino"]},"action":"hold"}' | minato moderation rules add -
  $ minato moderation try casino --last 5000    what it would have met; nothing is done
  $ minato moderation rules enable casino
  $ minato moderation cases --status held
  $ minato moderation cases --status open --reason spam --older-than 2
  $ minato moderation case 0b6fa0a2-…           its event, reports, actions and labels
  $ minato moderation act 0b6fa0a2-… restore --note "a joke"
  $ minato moderation act all dismiss --status open --reason spam --older-than 30
  $ minato moderation act 0b6fa0a2-… label --label spam --confidence 0.9 --days 30`;

interface Chosen {
  readonly community: string;
}

const write = (line: string) => process.stdout.write(`${line}\n`);

export function moderationCommand(): Command {
  const moderation = new Command('moderation')
    .description('rules, cases, and what is done about them: remove, restore, label, ban')
    .addHelpText('after', EXAMPLES);
  moderation.addCommand(rulesCommand());
  moderation
    .command('try <rule>')
    .description('show what a rule would have met among the newest events; then it can be enabled')
    .option('--last <n>', 'how many events', lastArgument, TRY_EVENTS)
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action((name: string, { community: slug, last }: Chosen & { last: number }) =>
      withCommunity(slug, ({ database }, community) => attempt(database.pool, community, name, last)),
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
      withCommunity(slug, ({ database }, community) => showCase(database.pool, community.id, id)),
    );
  moderation.addCommand(actCommand());
  for (const command of batchCommands()) moderation.addCommand(command);
  return moderation;
}

// ─── Rules ─────────────────────────────────────────────────────────────────────────────────────────────────────

function rulesCommand(): Command {
  const rules = new Command('rules').description('show, write, enable, disable and delete rules');
  rules
    .command('list', { isDefault: true })
    .description('show them in the order in which they are asked')
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
      .description(enabled ? 'let it judge what comes in from now on' : 'let it rest; what it did stays done')
      .option(...COMMUNITY_OPTION)
      .action((name: string, { community: slug }: Chosen) =>
        withCommunity(slug, ({ database }, { id }) => switchRule(database.pool, id, name, enabled)),
      );
  rules
    .command('remove <rule>')
    .description('delete it; a running node restores what it holds and nobody has decided about')
    .option('--keep', 'what it holds stays held')
    .option('--hidden', 'what it has hidden comes back too')
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
  throw new Error(`this is no rule: ${problems.join('; ')}`);
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
  return `${ruleId}  ${JSON.stringify(name)}  ${action}  priority ${priority}  ${state}  ${JSON.stringify(conditions)}`;
}

async function attempt(pool: Pool, community: Community, name: string, last: number): Promise<void> {
  const rule = await ruleNamed(pool, community.id, name);
  const { lookedAt, met, authors, kinds, samples } = await tryRule(pool, community, compileRule(rule), last);
  await noteTried(pool, rule);
  write(`of the last ${count(lookedAt)} events it would have met ${count(met)}`);
  for (const [kind, events] of kinds) write(`  kind ${kind}: ${count(events)}`);
  for (const [pubkey, events] of authors) write(`  by ${pubkey}: ${count(events)}`);
  for (const { id, excerpt } of samples) write(`  ${id}  ${JSON.stringify(excerpt)}`);
  if (!rule.enabled) write(`enable it: minato moderation rules enable ${JSON.stringify(rule.name)}`);
}

// ─── Cases ─────────────────────────────────────────────────────────────────────────────────────────────────────

const withFilters = (command: Command) =>
  command
    .option('--status <status>', CASE_STATUSES.join(', '), oneOf(CASE_STATUSES))
    .option('--topic <topic>', 'about an event of this topic')
    .option('--author <pubkey>', 'about this person or an event of theirs', pubkeyArgument)
    .option('--reason <reason>', `with a report of it: ${REPORT_REASONS.join(', ')}`, oneOf(REPORT_REASONS))
    .option('--rule <rule>', 'opened by this rule; its name or id')
    .option('--older-than <days>', 'opened longer ago', daysArgument)
    .option('--newer-than <days>', 'opened since', daysArgument)
    .option('--appealed', 'with an appeal of the author that waits');

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
  return `${caseId}  ${status.padEnd(9)}  ${timeText(openedAt)}  ${about}${reportWords(found)}  ${JSON.stringify(reason)}`;
}

function reportWords({ reports, reportsWithStanding, reportWeight }: Case): string {
  if (reports === 0) return '';
  const all = `${count(reports)} ${reports === 1 ? 'report' : 'reports'}`;
  const weight = reportsWithStanding === 0 ? '' : `, weight ${reportWeight}`;
  return `  ${all}, ${count(reportsWithStanding)} with standing${weight}`;
}

function actionLine({ at, action, actor, ruleId, outcome, note }: Action): string {
  const by = actor ?? (ruleId === null ? 'the command line' : 'a rule');
  return `  ${timeText(at)}  ${action} by ${by}: ${outcome ?? 'not carried out yet'}${note ? `  ${JSON.stringify(note)}` : ''}`;
}

async function showCase(pool: Pool, community: number, id: string): Promise<void> {
  const found = granted(await findCase(pool, community, id));
  const { targetEvent: event, targetPubkey: pubkey } = found;
  write(caseLine(found));
  write(`author ${pubkey}`);
  if (found.appeal !== null && found.appealedAt !== null)
    write(`appealed ${timeText(found.appealedAt)}: ${JSON.stringify(found.appeal)}`);
  if (event !== null) {
    const shown = await readCaseEvent(pool, { community, id: event });
    write(shown === undefined ? 'the event is gone, or its author deleted it' : JSON.stringify(shown));
  }
  for (const { createdAt, reason, comment } of await reportsOfCase(pool, found.caseId))
    write(
      `  ${timeText(createdAt)}  reported: ${reason}${comment === '' ? '' : `  ${JSON.stringify(comment)}`}`,
    );
  for (const action of await listActions(pool, found, community)) write(actionLine(action));
  for (const put of await labelsAbout(pool, { community, event: event ?? undefined, pubkey }))
    write(
      `  ${timeText(put.createdAt)}  label ${put.label} ${put.confidence}, until ${timeText(put.lapsesAt * 1_000)}${put.withdrawnAt === null ? '' : ', withdrawn'}`,
    );
}

interface ActOptions extends Chosen, CaseOptions {
  readonly note: string;
  readonly label?: LabelSpec['label'];
  readonly confidence?: number;
  readonly days?: number;
  readonly policy?: string;
}

function actCommand(): Command {
  const act = new Command('act')
    .argument('<case>', 'its id, or "all" of those that the filters find')
    .addArgument(new Argument('<action>', CASE_ACTIONS.join(', ')).argParser(oneOf(CASE_ACTIONS)))
    .description(
      'do something about a case, or about all that are found; a running node carries out what changes the view',
    );
  return withFilters(act)
    .option('--note <text>', 'why; for operators, and kept', '')
    .option('--label <label>', LABELS.join(', '), oneOf(LABELS))
    .option('--confidence <number>', 'how sure, up to 1', Number)
    .option('--days <n>', 'after so many days the label lapses', Number)
    .option('--policy <text>', 'by which rule of the community')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', EXAMPLES)
    .action((caseId: string, action: CaseAction, options: ActOptions) =>
      withCommunity(options.community, async ({ database: { pool }, config }, { id, settings }) => {
        const label = labelOf(action, options);
        const privateKinds = settings['auth.privateKinds'];
        const same = { community: id, action, note: options.note, label, privateKinds };
        const one = (which: string) =>
          actOn(pool, { ...same, caseId: which }, { fixed: config.adminPubkeys }, Date.now());
        if (caseId === 'all') await actOnAll(pool, await caseFilter(pool, id, options), one);
        else write(actionLine(await settled(pool, granted(await one(caseId)))));
      }),
    );
}

/** Found before the first is changed: what an action changes may be what is asked for. */
async function actOnAll(
  pool: Pool,
  filter: CaseFilter,
  one: (caseId: string) => Promise<Action | Denial>,
): Promise<void> {
  const found: Case[] = [];
  for (let cursor: string | undefined; found.length < ALL_MAX; ) {
    const page = granted(await listCases(pool, filter, { limit: PAGE_CASES, cursor }));
    found.push(...page.items);
    cursor = page.cursor;
    if (cursor === undefined) break;
  }
  let refused = 0;
  for (const { caseId } of found.slice(0, ALL_MAX)) {
    const taken = await one(caseId);
    if (!isDenial(taken)) continue;
    refused += 1;
    write(`${caseId}  ${ERRORS[taken.denied].message}`);
  }
  const more = found.length >= ALL_MAX ? '; there may be more: run it again' : '';
  write(
    `${count(found.length - refused)} of ${count(found.length)} cases; a running node does the rest${more}`,
  );
}

function labelOf(action: CaseAction, { label, confidence, days, policy }: ActOptions): LabelSpec | undefined {
  const isLabelling = action === 'label' || action === 'unlabel';
  if (isLabelling !== (label !== undefined))
    throw new Error('label and unlabel need --label, and nothing else has one');
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

/** Carried out by a node that runs; without one it waits for the next. */
async function settled(pool: Pool, taken: Action): Promise<Action> {
  const deadline = Date.now() + WAIT_MS;
  let action = taken;
  while (action.doneAt === null && Date.now() < deadline) {
    await delay(LOOK_MS);
    action = await findAction(pool, action.actionId);
  }
  if (action.doneAt === null) write('no node carries it out now; the next one that runs will');
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
