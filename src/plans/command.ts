/** The command `minato plans`: manages plans, assigns them, and makes the webhook secret. */
import { Command, InvalidArgumentError } from 'commander';
import { isDenial } from '../api/rules-errors.js';
import { granted, printAll, pubkeyArgument, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { assignPlan, deletePlan, listPlans, type Plan, setPlan } from './plans.sql.js';
import { LIMIT_KEYS, type LimitChanges, type LimitKey, limitSchema, PLAN_ID } from './rules.js';
import { createWebhookSecret, deleteWebhookSecret } from './webhook-secrets.sql.js';

const FLAGS: Record<LimitKey, { readonly flag: string; readonly about: string }> = {
  maxTopics: { flag: '--max-topics <n>', about: 'topics at a time' },
  searchPerDay: { flag: '--search-per-day <n>', about: 'searches a day' },
  trustPerDay: { flag: '--trust-per-day <n>', about: 'trust queries a day' },
  reportsPerDay: { flag: '--reports-per-day <n>', about: 'reports a day' },
  exportsPerDay: { flag: '--exports-per-day <n>', about: 'exports of personal data a day' },
};

const UNLIMITED = 'unlimited';
type GivenLimit = number | typeof UNLIMITED;
type GivenLimits = { readonly [K in LimitKey]?: GivenLimit };

interface Chosen {
  readonly community: string;
}

export function plansCommand(): Command {
  const plans = new Command('plans').description(
    'limits of what members may use: show, set, remove and assign plans',
  );
  plans
    .command('list', { isDefault: true })
    .description('show the plans with their limits')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', `\nExamples:\n  $ minato plans\n  $ minato plans list -c art`)
    .action(({ community: slug }: Chosen) =>
      withCommunity(slug, ({ database }, { id }) =>
        printAll((page) => listPlans(database.pool, id, page), lineOf, 'no plans'),
      ),
    );
  plans.addCommand(setCommand());
  plans
    .command('remove')
    .argument('<plan>', 'its id', planArgument)
    .description('remove a plan without members; for "free", restore the built-in plan')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', `\nExamples:\n  $ minato plans remove supporter`)
    .action((planId: string, { community: slug }: Chosen) =>
      withCommunity(slug, async ({ database }, { id }) => {
        granted(await deletePlan(database.pool, { community: id, planId }, Date.now()));
        process.stdout.write(`${planId} was removed\n`);
      }),
    );
  plans.addCommand(assignCommand());
  plans.addCommand(secretCommand());
  return plans;
}

function setCommand(): Command {
  const set = new Command('set')
    .argument('<plan>', 'its id: lower-case letters, digits and -', planArgument)
    .description('make or change a plan; options that are not given keep their values')
    .option(...COMMUNITY_OPTION)
    .option('--name <text>', 'the name to show');
  for (const key of LIMIT_KEYS)
    set.option(FLAGS[key].flag, `${FLAGS[key].about}, or ${UNLIMITED}`, limitArgument);
  return set
    .addHelpText(
      'after',
      `
Examples:
  $ minato plans set supporter --name "Supporter" --max-topics 500 --search-per-day unlimited
  $ minato plans set free --max-topics 20`,
    )
    .action(
      (planId: string, { community: slug, name, ...limits }: Chosen & { name?: string } & GivenLimits) =>
        withCommunity(slug, async ({ database }, { id }) => {
          const write = { community: id, planId, name, limits: limitsFrom(limits) };
          process.stdout.write(`${lineOf(granted(await setPlan(database.pool, write, Date.now())))}\n`);
        }),
    );
}

function assignCommand(): Command {
  return new Command('assign')
    .argument('<pubkey>', 'hex or npub', pubkeyArgument)
    .argument('<plan>', 'its id', planArgument)
    .description('give a member a plan; takes effect at once')
    .option(...COMMUNITY_OPTION)
    .option(
      '--until <time>',
      'when the plan ends and "free" follows, such as 2031-05-17 or 2031-05-17T12:00:00Z',
      timeArgument,
    )
    .addHelpText(
      'after',
      `
Examples:
  $ minato plans assign npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6 \\
      supporter --until 2031-05-17`,
    )
    .action((pubkey: string, planId: string, { community: slug, until }: Chosen & { until?: number }) =>
      withCommunity(slug, async ({ database }, { id }) => {
        const wanted = { community: id, pubkey, planId, until };
        const given = await assignPlan(database.pool, wanted, Date.now());
        if (isDenial(given) && given.denied === 'NOT_FOUND') throw new Error(`plan "${planId}" not found`);
        const { until: end } = granted(given);
        process.stdout.write(`${pubkey}  ${planId}${end === null ? '' : `  until ${timeText(end)}`}\n`);
      }),
    );
}

function secretCommand(): Command {
  return new Command('webhook-secret')
    .description(
      'make the secret that a payment provider signs with, and show it once; replaces the previous one',
    )
    .option(...COMMUNITY_OPTION)
    .option('--remove', 'remove the secret: no call is accepted any more')
    .addHelpText(
      'after',
      `\nExamples:\n  $ minato plans webhook-secret\n  $ minato plans webhook-secret --remove`,
    )
    .action(({ community: slug, remove }: Chosen & { remove?: true }) =>
      withCommunity(slug, async ({ database }, { id }) => {
        const caller = { community: id };
        if (remove) granted(await deleteWebhookSecret(database.pool, caller, Date.now()));
        const text = remove
          ? 'the secret was removed'
          : granted(await createWebhookSecret(database.pool, caller, Date.now())).secret;
        process.stdout.write(`${text}\n`);
      }),
    );
}

function planArgument(text: string): string {
  if (!PLAN_ID.test(text)) throw new InvalidArgumentError('use lower-case letters, digits and -.');
  return text;
}

/** The word stays until the command reads it, because an option cannot be null. */
function limitArgument(text: string): GivenLimit {
  if (text === UNLIMITED) return UNLIMITED;
  const limit = limitSchema.safeParse(/^\d+$/.test(text) ? Number(text) : undefined);
  if (!limit.success) throw new InvalidArgumentError(`use 0 or a larger whole number, or "${UNLIMITED}".`);
  return limit.data;
}

function limitsFrom(given: GivenLimits): LimitChanges {
  const entries = LIMIT_KEYS.map((key) => [key, given[key] === UNLIMITED ? null : given[key]]);
  return Object.fromEntries(entries);
}

function timeArgument(text: string): number {
  const time = /^\d{4}-\d{2}-\d{2}(T.+Z)?$/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(time)) throw new InvalidArgumentError('use a time in UTC, such as 2031-05-17T12:00:00Z.');
  return time;
}

function lineOf({ planId, name, limits, createdAt }: Plan): string {
  const words = LIMIT_KEYS.map((key) => `${limits[key] ?? UNLIMITED} ${FLAGS[key].about}`);
  return `${planId}  ${JSON.stringify(name)}${createdAt === null ? '  (built in)' : ''}  ${words.join(', ')}`;
}
