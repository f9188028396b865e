/** The command `minato demo`: fills a community with invented people and their data. */
import { Command, InvalidArgumentError } from 'commander';
import { npubEncode } from 'nostr-tools/nip19';
import { generateSecretKey, getPublicKey } from 'nostr-tools/pure';
import { granted, wholeNumber } from '../cli/answers.js';
import { chooseCommunity } from '../cli/context.js';
import { count, startProgress } from '../cli/progress.js';
import { addressesOf } from '../communities/addresses.js';
import type { Community } from '../communities/communities.js';
import { addCommunity, DEFAULT_SLUG, readTotals } from '../communities/communities.sql.js';
import { type CommandJobs, withJobs } from '../jobs/command.js';
import { runJob } from '../jobs/run.js';
import { partitions } from '../jobs/upkeep.js';
import { consoleLink } from '../members/command-link.js';
import { listMembers } from '../members/members.sql.js';
import { addOperator } from '../members/operators.sql.js';
import type { Config } from '../node/config.js';
import { makeLink } from '../sessions/links.sql.js';
import { FOLDER, prepareOwnNode, serveOwnNode } from './command-serve.js';
import { fillCases } from './fill-cases.js';
import { fillErasures } from './fill-erasures.js';
import { admit, fillEvents, probeGone } from './fill-events.js';
import { fillHistory } from './fill-history.js';
import { fillMembers, nameTown, prepareTopics, prepareTown, topicNamed } from './fill-town.js';
import { type Filling, Interrupted, Tally } from './filling.js';
import { makeKeys } from './keys.js';
import { type Mark, readMark, signMark } from './marker.js';
import {
  DEFAULTS,
  EVENTS_MAX,
  eventsMin,
  makeStory,
  type Sizes,
  type Story,
  WEEKS_MAX,
  WEEKS_MIN,
} from './rules.js';
import { DAY } from './rules-drafts.js';
import { MEMBERS_MAX, MEMBERS_MIN } from './rules-people.js';
import { THEMES, type Theme } from './rules-texts.js';
import { TOPICS } from './rules-town.js';

interface Options {
  community: string;
  seed: string;
  members?: number;
  weeks?: number;
  events?: number;
  until?: number;
  force?: true;
  serve?: string | true;
  json?: true;
}

const byDefault = (value: number) => `(default: ${value})`;

export function demoCommand(): Command {
  return new Command('demo')
    .description('fill a community with invented people, conversations and cases, to look around')
    .option('-c, --community <slug>', 'which community; one that does not exist is made', DEFAULT_SLUG)
    .option('--seed <text>', 'the same seed gives the same people, keys and texts', DEFAULTS.seed)
    .option('--members <n>', `how many people ${byDefault(DEFAULTS.members)}`, members)
    .option('--weeks <n>', `over how many weeks they talk ${byDefault(DEFAULTS.weeks)}`, weeks)
    .option('--events <n>', `how many events they make ${byDefault(DEFAULTS.events)}`, events)
    .option('--until <time>', 'when the story ends, such as 2031-05-17T12:00:00Z; now if not given', time)
    .option('--force', 'also fill a community that has other members or events')
    .option('--serve [folder]', `fill a node of its own, in ${FOLDER} if not given, and run it`)
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      `
It makes topics, members with profiles, follow lists, threads in English and Japanese with reactions and
reposts, articles with revisions, requests that wait or were decided, invites, plans, terms with consents,
reports, moderation cases, deletions, notes that expire, a request to vanish, and an erasure with its
certificate. Events take the same way as posts of clients, with their created_at in the past weeks.

Run it again after an interruption: it continues. After a whole run it changes nothing.

All people are invented, and their secret keys come from the seed: whoever knows the seed can sign as them.
Do not fill a community that people use.

Examples:
  $ minato demo                          the default community, if nobody else is in it
  $ minato demo -c harbour --members 100 --weeks 8 --events 5000
  $ minato demo --until 2031-05-17T12:00:00Z    the same events at every run, for pictures or tests
  $ minato demo --serve                  a node of its own in ${FOLDER}; so does: npm run demo`,
    )
    .action(demo);
}

const members = wholeNumber(MEMBERS_MIN, MEMBERS_MAX);
const weeks = wholeNumber(WEEKS_MIN, WEEKS_MAX);
const events = wholeNumber(eventsMin(MEMBERS_MIN), EVENTS_MAX);

function time(text: string): number {
  const given = /^\d{4}-\d{2}-\d{2}(T.+Z)?$/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(given)) throw new InvalidArgumentError('use a time in UTC, such as 2031-05-17T12:00:00Z.');
  if (given > Date.now()) throw new InvalidArgumentError('the story cannot end in the future.');
  return Math.floor(given / 1_000);
}

async function demo(options: Options): Promise<void> {
  const { serve } = options;
  if (serve !== undefined) await prepareOwnNode(serve === true ? FOLDER : serve);
  let isWhole = false;
  await withJobs(async (context, config) => {
    isWhole = await fill(context, config, options);
    if (serve === undefined || !isWhole) return;
    const operator = await printLink(context, config);
    // So that the link shows everything of this node, its log and its other communities too.
    process.env.MINATO_ADMIN_PUBKEYS ||= operator;
  });
  if (serve !== undefined && isWhole) await serveOwnNode();
}

/**
 * A link that signs in to the console of the node of the demo, and its key. The operator is a new key whose
 * secret nobody has: the people of the demo are no operators, because their secrets follow from the seed.
 */
async function printLink({ database, communities, now }: CommandJobs, config: Config): Promise<string> {
  const community = chooseCommunity(communities, DEFAULT_SLUG);
  const known = config.adminPubkeys[0] ?? community.operators.keys().next().value;
  const pubkey = known ?? getPublicKey(generateSecretKey());
  const wanted = { community: community.id, pubkey, role: 'operator', actor: pubkey } as const;
  if (known === undefined) granted(await addOperator(database.pool, wanted, { fixed: [] }, now()));
  const { code } = granted(await makeLink(database.pool, { community: community.id, pubkey }, now()));
  process.stdout.write(
    `\nThe console, signed in, within ten minutes:\n  ${consoleLink(community, config, code)}\n\n`,
  );
  return pubkey;
}

// ─── Where to, and how much ────────────────────────────────────────────────────────────────────────────────

/** False when the operator interrupted it. */
async function fill(context: CommandJobs, config: Config, options: Options): Promise<boolean> {
  const { database, writer, communities } = context;
  const { seed, community: slug } = options;
  const host = makeKeys(seed, 1)[0]!;
  const before = communities.find(undefined, slug);
  const mark = before && (await readMark(writer.store, before.id, host.pubkey, context.now()));
  if (before !== undefined && mark === undefined && !options.force) await refuseOthers(context, before);
  const sizes = sizesOf(options, mark);
  if (before === undefined) {
    await addCommunity(database.pool, slug, undefined, context.now());
    await communities.refresh();
  }
  const { id } = chooseCommunity(communities, slug);
  const community = () => communities.get(id)!;
  const keys = makeKeys(seed, sizes.members);
  const naming = { networkId: writer.networkId, namespace: community().settings['topic.namespace'] };
  const address = addressesOf(community(), writer.bases())[0]!;
  const topics = Object.fromEntries(
    THEMES.map((theme) => [theme, topicNamed({ naming }, TOPICS[theme].name)]),
  ) as Record<Theme, string>;
  const until = mark?.until ?? options.until ?? Math.floor(context.now() / 60_000) * 60;
  const pubkeys = keys.map(({ pubkey }) => pubkey);
  const story = makeStory({ ...sizes, until, pubkeys, topics, relayUrl: address });
  const result = { slug, address, sizes, story };
  if (mark?.done) {
    print(result, undefined, options, config);
    return true;
  }
  const progress = startProgress(sizes.events + story.joinings.length + 2 * sizes.members);
  const tally = new Tally((done, about) => progress.update(done, `${about} …`));
  const filling: Filling = {
    ...{ pool: database.pool, store: writer.store, admission: writer.admission, community, naming, keys },
    ...{ refresh: () => communities.refresh(), fixed: config.adminPubkeys, story, tally },
    ...{ now: context.now, signal: context.signal },
  };
  const marked = { members: sizes.members, weeks: sizes.weeks, events: sizes.events, until };
  const signed = (done: boolean) => signMark({ ...marked, done }, host, topics.harbour);
  try {
    await prepareTopics(filling, story.span.start);
    // Topics with other retention days need partitions that an hourly job would make.
    await runJob(partitions, context);
    await admit(filling, signed(false));
    await fillAll(filling, context);
    if (options.serve !== undefined) {
      await nameTown(filling);
      await fillHistory(filling);
    }
    await admit(filling, signed(true));
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    process.stderr.write('Interrupted. Run the same command again to continue.\n');
    return false;
  } finally {
    progress.stop();
  }
  print(result, tally, options, config);
  return true;
}

async function fillAll(filling: Filling, context: CommandJobs): Promise<void> {
  await prepareTown(filling);
  const probe = await probeGone(filling);
  await fillMembers(filling, probe.gone);
  await fillEvents(filling, probe);
  await fillCases(filling);
  await context.withConsumers((consumers) => fillErasures(filling, probe.gone, context, consumers));
}

/** Demo people beside real ones would confuse both. */
async function refuseOthers({ database }: CommandJobs, { id: community, slug }: Community): Promise<void> {
  const { items } = granted(await listMembers(database.pool, { community }, { limit: 1 }));
  const { events: kept } = await readTotals(database.pool, community);
  if (items.length === 0 && kept === 0) return;
  throw new Error(
    `the community "${slug}" has members or events of others; name another one, which is made for you ` +
      '(minato demo --community demo), or fill this one all the same with --force',
  );
}

function sizesOf(options: Options, mark: Mark | undefined): Sizes {
  const before = mark ?? DEFAULTS;
  const sizes = {
    seed: options.seed,
    members: options.members ?? before.members,
    weeks: options.weeks ?? before.weeks,
    events: options.events ?? before.events,
  };
  const isOther = (key: 'members' | 'weeks' | 'events') => sizes[key] !== before[key];
  if (mark !== undefined && (isOther('members') || isOther('weeks') || isOther('events')))
    throw new Error(
      `the demo of this seed is here with ${mark.members} members, ${mark.weeks} weeks and ` +
        `${mark.events} events; leave these options out, or choose another community or seed`,
    );
  const least = eventsMin(sizes.members);
  if (sizes.events < least) throw new Error(`${sizes.members} members need --events ${least} or more`);
  return sizes;
}

// ─── The result ────────────────────────────────────────────────────────────────────────────────────────────

interface Result {
  readonly slug: string;
  readonly address: string;
  readonly sizes: Sizes;
  readonly story: Story;
}

/** Without a tally nothing was done. */
function print(
  { slug, address, sizes, story }: Result,
  tally: Tally | undefined,
  options: Options,
  config: Config,
) {
  const { start, end } = story.span;
  const iso = (seconds: number) => new Date(seconds * 1_000).toISOString();
  if (options.json) {
    const people = story.people.map(({ name, part, language, pubkey }) => ({ name, part, language, pubkey }));
    const about = { community: slug, address, ...sizes, since: iso(start), until: iso(end) };
    const done = { changed: tally?.total ?? 0, made: Object.fromEntries(tally?.made ?? []) };
    process.stdout.write(`${JSON.stringify({ ...about, ...done, people }, null, 2)}\n`);
    return;
  }
  const made = [...(tally?.made ?? [])].map(([sort, number]) => `${sort} ${count(number)}`).join(', ');
  const first =
    tally === undefined
      ? `The demo is in "${slug}" already; nothing was changed.`
      : `Made in "${slug}": ${made}.`;
  process.stdout.write(`${[first, ...nextSteps(slug, address, story, options, config)].join('\n')}\n`);
}

function nextSteps(
  slug: string,
  address: string,
  { people, span }: Story,
  options: Options,
  config: Config,
): string[] {
  const where = slug === DEFAULT_SLUG ? '' : ` -c ${slug}`;
  const own = options.serve === undefined ? '' : `MINATO_DATA_DIR=${config.dataDir} `;
  const line = (command: string, about: string) =>
    `  ${`${own}npx minato ${command}${where}`.padEnd(48)} ${about}`;
  const days = Math.round((span.end - span.start) / DAY);
  return [
    '',
    `${people.length} invented people over ${days} days, among them ${people[0]!.shownName}:`,
    `  ${npubEncode(people[0]!.pubkey)}`,
    '',
    `Connect any Nostr client to ${address}`,
    options.serve === undefined
      ? 'The node is started by "minato serve", if it does not run yet. Then try:'
      : 'In another terminal try:',
    line('requests', 'requests for topics that wait for you'),
    line('moderation cases', 'reports, held posts and decisions'),
    line('members', 'who is here'),
    `  ${`${own}npx minato certificate list`.padEnd(48)} the proof of an erasure`,
    '',
  ];
}
