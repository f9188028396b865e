/** The command `minato topics`: lists carried topics, resolves names and sets the rules of a topic. */
import { bytesToHex } from '@noble/hashes/utils.js';
import { Command, InvalidArgumentError, Option } from 'commander';
import { granted, printAll, wholeNumber } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { isRefusal } from '../events/rules/reply.js';
import { ingestPolicyInput, PRIORITY_MAX, RETENTION_DAYS_MAX } from '../events/rules/retention.js';
import {
  changeNodeTopic,
  createNodeTopic,
  deleteNodeTopic,
  listNodeTopics,
  type NodeTopic,
  readNodeTopic,
} from './node-topics.sql.js';
import { isTopic, TOPIC_LENGTH_MAX } from './rules.js';
import { gossipTopic, topicId } from './rules-id.js';

/** As the option gives it; `none` removes the rule. */
type Limit = number | 'none';

interface SetOptions {
  community: string;
  retentionDays?: Limit;
  maxEvents?: Limit;
  maxBytes?: Limit;
  maxDelay?: Limit;
  allowBackfill?: boolean | 'none';
  name?: string;
  pin?: true;
  unpin?: true;
  disable?: true;
  public?: true;
  private?: true;
  priority?: number;
}

export function topicsCommand(): Command {
  const topics = new Command('topics').description('the topics that this node carries, and how each is kept');
  topics
    .command('list', { isDefault: true })
    .description('show the topics that are carried or have their own rules')
    .option(...COMMUNITY_OPTION)
    .action((options: { community: string }) => list(options));
  topics
    .command('resolve <name>')
    .description('show the id of a topic, its gossip topic, and whether this node carries it')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', '\nExample:\n  $ minato topics resolve "Harbour news"')
    .action((name: string, options: { community: string }) => resolve(name, options));
  topics
    .command('set <topic>')
    .description('carry a topic and set its rules; options that are not given keep their values')
    .option(...COMMUNITY_OPTION)
    .option('--name <name>', 'the name to show')
    .addOption(
      new Option('--pin', 'carry it even without subscribers (default for a new topic)').conflicts(UNPINNING),
    )
    .option('--unpin', 'carry it only while members subscribe')
    .option('--disable', 'the same as --unpin')
    .addOption(new Option('--public', 'reading and posting need no subscription').conflicts('private'))
    .option('--private', 'reading and posting need a subscription, if clients must authenticate')
    .option('--retention-days <days>', 'how many days its events are kept; 0 means for ever', days)
    .option('--max-events <count>', 'event limit; above it the oldest are purged', most)
    .option('--max-bytes <bytes>', 'byte limit; above it the oldest are purged', most)
    .option('--max-delay <seconds>', 'events older than this on arrival are late', limit(0))
    .option(
      '--allow-backfill <yes|no>',
      'accept late events; default: no if --max-delay is set, else yes',
      choice,
    )
    .option(
      '--priority <number>',
      'topics with a higher priority are kept longer when space runs out',
      priorities,
    )
    .addHelpText(
      'after',
      `
The value "none" for --retention-days, --max-events, --max-bytes, --max-delay or --allow-backfill removes
that rule: the topic then follows the settings of the community.

Examples:
  $ minato topics set kukuri:global --retention-days 365
  $ minato topics set kukuri:global --max-events none
  $ minato topics set "$(minato topics resolve chatter | sed -n 's/^id *//p')" \\
      --name chatter --public --max-events 10000`,
    )
    .action((topic: string, options: SetOptions) => set(topic, options));
  topics
    .command('remove <topic>')
    .description("remove a topic's rules; without subscribers it is no longer carried")
    .option(...COMMUNITY_OPTION)
    .action((topic: string, options: { community: string }) =>
      withCommunity(options.community, async ({ database }, community) => {
        const found = isTopic(topic) ? await readNodeTopic(database.pool, community.id, topic) : undefined;
        if (found === undefined) throw new Error(`"${topic}" has no own rules`);
        granted(await deleteNodeTopic(database.pool, { community: community.id, topic }, Date.now()));
        process.stdout.write(`${topic} now follows the settings of the community\n`);
      }),
    );
  return topics;
}
const UNPINNING = ['unpin', 'disable'];
const days = limit(0, RETENTION_DAYS_MAX);
const most = limit(1);
const priorities = wholeNumber(-PRIORITY_MAX, PRIORITY_MAX);

async function list(options: { community: string }): Promise<void> {
  await withCommunity(options.community, ({ database }, community) =>
    printAll((page) => listNodeTopics(database.pool, community.id, page), lineOf, 'no topics'),
  );
}

function lineOf(row: NodeTopic): string {
  const state = row.blocked ? 'blocked' : row.enabled ? 'enabled' : 'disabled';
  const facts = [
    row.topic.padEnd(40),
    state.padEnd(8),
    (row.pinned ? 'pinned' : '').padEnd(6),
    (row.public ? 'public' : 'private').padEnd(7),
    `subscribers ${row.refCount}`,
    `priority ${row.priority}`,
    JSON.stringify(row.policy),
    row.name === null ? '' : JSON.stringify(row.name),
  ];
  return facts.join('  ').trimEnd();
}

async function resolve(name: string, options: { community: string }): Promise<void> {
  await withCommunity(options.community, async ({ networkId }, { settings, topics }) => {
    const namespace = settings['topic.namespace'];
    const id = topicId(name, { networkId, namespace });
    if (isRefusal(id)) throw new Error(id.why);
    const gossip = bytesToHex(gossipTopic(id, namespace));
    const carried = topics.get(id)?.enabled ? 'yes' : 'no';
    process.stdout.write(`id       ${id}\ngossip   ${gossip}\ncarried  ${carried}\n`);
  });
}

async function set(topic: string, options: SetOptions): Promise<void> {
  if (!isTopic(topic)) {
    throw new Error(`a topic must have 1 to ${TOPIC_LENGTH_MAX} characters and no control characters`);
  }
  await withCommunity(options.community, async ({ database }, community) => {
    const { community: _slug, name, pin, unpin, disable, priority, ...given } = options;
    const { public: isPublic, private: isPrivate, maxDelay, ...limits } = given;
    const rulesGiven = { ...limits, ...(maxDelay === undefined ? {} : { maxDelaySeconds: maxDelay }) };
    const wanted = Object.fromEntries(
      Object.entries(rulesGiven).map(([rule, value]) => [rule, value === 'none' ? null : value]),
    );
    const before = await readNodeTopic(database.pool, community.id, topic);
    const rules = {
      pinned: chosen(pin, unpin ?? disable) ?? before?.pinned ?? true,
      public: chosen(isPublic, isPrivate) ?? before?.public ?? false,
      ...(name === undefined ? {} : { name }),
      priority: priority ?? before?.priority ?? 0,
      policy: ingestPolicyInput.parse({ ...before?.policy, ...wanted }),
    };
    const ref = { community: community.id, topic };
    const cap = { enabledMax: community.settings['topic.enabledMax'] };
    granted(
      before === undefined
        ? await createNodeTopic(database.pool, { ...ref, ...rules }, cap, Date.now())
        : await changeNodeTopic(database.pool, { ...ref, changes: rules }, cap, Date.now()),
    );
    process.stdout.write(`${topic} ${JSON.stringify(rules)}\n`);
  });
}

/** The value of two opposite options; undefined when neither was given. */
function chosen(yes: true | undefined, no: true | undefined): boolean | undefined {
  return yes ?? (no === undefined ? undefined : !no);
}

/** `none` removes a limit. */
function limit(min: number, max = Number.MAX_SAFE_INTEGER): (text: string) => Limit {
  const number = wholeNumber(min, max, ', or "none"');
  return (text) => (text === 'none' ? text : number(text));
}

function choice(text: string): boolean | 'none' {
  if (text === 'none') return text;
  if (text !== 'yes' && text !== 'no') throw new InvalidArgumentError('use "yes", "no" or "none".');
  return text === 'yes';
}
