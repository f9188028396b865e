/** The command `minato policies`: writes texts from files, publishes versions and makes them current. */
import { readFile } from 'node:fs/promises';
import { Argument, Command, InvalidArgumentError } from 'commander';
import { isDenial } from '../api/rules-errors.js';
import { granted, printAll, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import {
  createPolicy,
  listPolicies,
  makeCurrent,
  type PolicyVersion,
  publishPolicy,
  readPolicy,
  readText,
  writeText,
} from './policies.sql.js';
import {
  canonicalLocale,
  findTextProblem,
  POLICY_TYPES,
  POLICY_VERSION,
  type PolicyRef,
  type PolicyType,
} from './rules.js';

interface Where {
  community: string;
}

const typeArgument = () => new Argument('<type>', 'which policy').choices(POLICY_TYPES);

export function policiesCommand(): Command {
  const policies = new Command('policies').description(
    'the texts that members agree to: write, publish, make current',
  );
  policies
    .command('list', { isDefault: true })
    .description('show all versions with their languages, newest first')
    .option(...COMMUNITY_OPTION)
    .action(({ community: slug }: Where) =>
      withCommunity(slug, ({ database }, { id }) =>
        printAll((page) => listPolicies(database.pool, id, page), lineOf, 'no policies'),
      ),
    );
  policies
    .command('show')
    .addArgument(typeArgument())
    .argument('<version>', 'which version', versionArgument)
    .argument('[locale]', 'only this language', localeArgument)
    .description('show one version and its texts, with the hash that a consent stores')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', '\nExamples:\n  $ minato policies show terms 2026-04 en')
    .action((type: PolicyType, version: string, locale: string | undefined, { community }: Where) =>
      show({ type, version }, locale, community),
    );
  policies
    .command('write')
    .addArgument(typeArgument())
    .argument('<version>', 'the version; a new one starts as a draft', versionArgument)
    .argument('<locale>', 'its language, as a BCP 47 tag', localeArgument)
    .argument('<file>', 'the text, in UTF-8')
    .requiredOption('--title <title>', 'the title of the text')
    .description('write a text of a draft, or add a language to a published version')
    .option(...COMMUNITY_OPTION)
    .addHelpText(
      'after',
      `
Examples:
  $ minato policies write terms 2026-04 en terms.en.md --title "Terms of use"
  $ minato policies write terms 2026-04 ja terms.ja.md --title 利用規約 -c art`,
    )
    .action(write);
  for (const each of STEPS) policies.addCommand(stepCommand(each));
  return policies;
}

const STEPS = [
  {
    name: 'publish',
    about: 'let everyone read a version; its texts can no longer change',
    act: publishPolicy,
  },
  {
    name: 'make-current',
    about: 'require the consent of every member to a published version',
    act: makeCurrent,
  },
] as const;

function stepCommand({ name, about, act }: (typeof STEPS)[number]): Command {
  return new Command(name)
    .addArgument(typeArgument())
    .argument('<version>', 'which version', versionArgument)
    .description(about)
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', `\nExamples:\n  $ minato policies ${name} terms 2026-04`)
    .action((type: PolicyType, version: string, { community: slug }: Where) =>
      withCommunity(slug, async ({ database }, { id }) => {
        const done = granted(await act(database.pool, { community: id, type, version }, Date.now()));
        process.stdout.write(`${lineOf(done)}\n`);
      }),
    );
}

async function write(
  type: PolicyType,
  version: string,
  locale: string,
  file: string,
  { title, community: slug }: Where & { title: string },
): Promise<void> {
  const content = await readContent(file);
  const problem = findTextProblem(title, content);
  if (problem !== undefined) throw new Error(problem);
  await withCommunity(slug, async ({ database: { pool } }, { id }) => {
    const ref = { community: id, type, version };
    const made = await createPolicy(pool, ref, Date.now());
    if (isDenial(made) && made.denied !== 'POLICY_EXISTS') granted(made);
    const text = granted(await writeText(pool, { ...ref, locale }, { title, content }, Date.now()));
    process.stdout.write(`${type} ${version}  ${text.locale}  ${text.contentHash}\n`);
  });
}

async function readContent(file: string): Promise<string> {
  const bytes = await readFile(file);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`${file} is not UTF-8`);
  }
}

async function show(ref: PolicyRef, only: string | undefined, slug: string): Promise<void> {
  await withCommunity(slug, async ({ database: { pool } }, { id }) => {
    const policy = await readPolicy(pool, id, ref);
    const chosen = policy?.texts.filter(({ locale }) => only === undefined || locale === only) ?? [];
    if (policy === undefined || (only !== undefined && chosen.length === 0)) {
      throw new Error(`${ref.type} ${ref.version}${only === undefined ? '' : ` in ${only}`} not found`);
    }
    process.stdout.write(`${lineOf(policy)}\n`);
    for (const { locale } of chosen) {
      const text = (await readText(pool, id, ref, locale))!;
      process.stdout.write(`\n${locale}  ${text.contentHash}\n${text.title}\n\n${text.content.trimEnd()}\n`);
    }
  });
}

function lineOf({ type, version, status, createdAt, publishedAt, currentAt, texts }: PolicyVersion): string {
  const since = status === 'current' ? currentAt : status === 'published' ? publishedAt : createdAt;
  const locales = texts.length === 0 ? 'no text yet' : texts.map(({ locale }) => locale).join(', ');
  const time = timeText(since ?? createdAt);
  return `${type.padEnd(7)}  ${version}  ${status.padEnd(9)}  since ${time}  ${locales}`;
}

function versionArgument(text: string): string {
  if (POLICY_VERSION.test(text)) return text;
  throw new InvalidArgumentError(
    'use up to 64 letters, digits, dots, dashes and underscores, such as 2026-04.',
  );
}

function localeArgument(text: string): string {
  const locale = canonicalLocale(text);
  if (locale === undefined) throw new InvalidArgumentError('use a BCP 47 tag, such as en or pt-BR.');
  return locale;
}
