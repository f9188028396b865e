import { bytesToHex } from '@noble/hashes/utils.js';
import { Command, InvalidArgumentError, Option } from 'commander';
import { isRefusal } from '../core/reply.js';
import { ingestPolicyInput, PRIORITY_MAX, RETENTION_DAYS_MAX } from '../core/retention.js';
import { isTopic, TOPIC_LENGTH_MAX } from '../core/topic.js';
import { gossipTopic, topicId } from '../core/topic-id.js';
import {
  changeNodeTopic,
  createNodeTopic,
  deleteNodeTopic,
  listNodeTopics,
  type NodeTopic,
  readNodeTopic,
} from '../store/node-topics.js';
import { granted, printAll, wholeNumber } from './answers.js';
import { COMMUNITY_OPTION, withCommunity } from './context.js';

/** As given; `none` takes a rule away. */
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
    .description('show the topics that are carried or have rules of their own')
    .option(...COMMUNITY_OPTION)
    .action((options: { community: string }) => list(options));
  topics
    .command('resolve <name>')
    .description('the id of a topic, what nodes exchange it under, and whether it is carried here')
    .option(...COMMUNITY_OPTION)
    .addHelpText('after', '\nExample:\n  $ minato topics resolve "Harbour news"')
    .action((name: string, options: { community: string }) => resolve(name, options));
  topics
    .command('set <topic>')
    .description('carry a topic and give it rules of its own; what is not given keeps its value')
    .option(...COMMUNITY_OPTION)
    .option('--name <name>', 'what people call it')
    .addOption(
      new Option('--pin', 'carry it, also while nobody subscribes; so is a new topic').conflicts(UNPINNING),
    )
    .option('--unpin', 'carry it only while members subscribe')
    .option('--disable', 'the same as --unpin')
    .addOption(
      new Option('--public', 'nobody needs a subscription to read it or to post there').conflicts('private'),
    )
    .option('--private', 'it needs a subscription, once clients authenticate')
    .option('--retention-days <days>', 'days that its events are kept; 0 means for ever', days)
    .option('--max-events <count>', 'most events of it; then its oldest are purged', most)
    .option('--max-bytes <bytes>', 'most bytes of it; then its oldest are purged', most)
    .option('--max-delay <seconds>', 'events that are older than this on arrival are late', limit(0))
    .option(
      '--allow-backfill <yes|no>',
      'take late events; by default no where --max-delay is set, else yes',
      choice,
    )
    .option('--priority <number>', 'higher is kept longer when space runs out', priorities)
    .addHelpText(
      'after',
      `
"none" as the value of --retention-days, --max-events, --max-bytes, --max-delay or --allow-backfill takes that rule away again:
the topic then follows the settings of the community.

Examples:
  $ minato topics set kukuri:global --retention-days 365
  $ minato topics set kukuri:global --max-events none
  $ minato topics set "$(minato topics resolve chatter | sed -n 's/^id *//p')" --name chatter --public --max-events 10000`,
    )
    .action((topic: string, options: SetOptions) => set(topic, options));
  topics
    .command('remove <topic>')
    .description("take a topic's rules away; what nobody subscribes to is carried no more")
    .option(...COMMUNITY_OPTION)
    .action((topic: string, options: { community: string }) =>
      withCommunity(options.community, async ({ database }, community) => {
        const found = isTopic(topic) ? await readNodeTopic(database.pool, community.id, topic) : undefined;
        if (found === undefined) throw new Error(`"${topic}" has no rules of its own`);
        granted(await deleteNodeTopic(database.pool, { community: community.id, topic }, Date.now()));
        process.stdout.write(`${topic} follows the settings of the community\n`);
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
    printAll(
      (page) => listNodeTopics(database.pool, community.id, page),
      lineOf,
      'no topic is carried or has rules of its own',
    ),
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
    throw new Error(`a topic has 1 to ${TOPIC_LENGTH_MAX} characters and no control characters`);
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

/** By two options that say the opposite; undefined when neither was given. */
function chosen(yes: true | undefined, no: true | undefined): boolean | undefined {
  return yes ?? (no === undefined ? undefined : !no);
}

/** `none` takes a limit away. */
function limit(min: number, max = Number.MAX_SAFE_INTEGER): (text: string) => Limit {
  const number = wholeNumber(min, max, ', or "none"');
  return (text) => (text === 'none' ? text : number(text));
}

function choice(text: string): boolean | 'none' {
  if (text === 'none') return text;
  if (text !== 'yes' && text !== 'no') throw new InvalidArgumentError('"yes", "no" or "none" is needed.');
  return text === 'yes';
}
