import { Command, InvalidArgumentError } from 'commander';
import { type IngestPolicy, ingestPolicySchema } from '../core/retention.js';
import { isTopic, TOPIC_LENGTH_MAX } from '../core/topic.js';
import { removeTopic, writeTopic } from '../store/topics.js';
import { COMMUNITY_OPTION, withCommunity } from './context.js';

interface SetOptions extends IngestPolicy {
  community: string;
  disable?: boolean;
  priority?: number;
}

export function topicsCommand(): Command {
  const topics = new Command('topics').description('the topics that this node carries, and how each is kept');
  topics
    .command('list', { isDefault: true })
    .description('show the topics that have rules of their own')
    .option(...COMMUNITY_OPTION)
    .action((options: { community: string }) =>
      withCommunity(options.community, async (_context, community) => {
        if (community.topics.size === 0) process.stdout.write('no topic has rules of its own\n');
        for (const [topic, { enabled, priority, policy }] of community.topics) {
          const state = enabled ? 'enabled' : 'disabled';
          process.stdout.write(
            `${topic.padEnd(40)} ${state.padEnd(9)} priority ${priority}  ${JSON.stringify(policy)}\n`,
          );
        }
      }),
    );
  topics
    .command('set <topic>')
    .description('give a topic its own rules; what is not given keeps its value')
    .option(...COMMUNITY_OPTION)
    .option('--retention-days <days>', 'days that its events are kept; 0 means for ever', wholeNumber)
    .option('--max-events <count>', 'most events of it', wholeNumber)
    .option('--max-bytes <bytes>', 'most bytes of it', wholeNumber)
    .option('--priority <number>', 'higher is kept longer when space runs out', wholeNumber)
    .option('--disable', 'do not carry it')
    .addHelpText(
      'after',
      `
Examples:
  $ minato topics set kukuri:news --retention-days 365
  $ minato topics set kukuri:chatter --retention-days 3 --max-events 10000`,
    )
    .action((topic: string, options: SetOptions) => set(topic, options));
  topics
    .command('remove <topic>')
    .description("take a topic's rules away; it then follows the community's settings")
    .option(...COMMUNITY_OPTION)
    .action((topic: string, options: { community: string }) =>
      withCommunity(options.community, async ({ database }, community) => {
        const removed = await removeTopic(database.pool, community.id, topic);
        if (!removed) throw new Error(`"${topic}" has no rules of its own`);
        process.stdout.write(`${topic} follows the settings of the community\n`);
      }),
    );
  return topics;
}

async function set(topic: string, options: SetOptions): Promise<void> {
  if (!isTopic(topic)) {
    throw new Error(`a topic has 1 to ${TOPIC_LENGTH_MAX} characters and no control characters`);
  }
  await withCommunity(options.community, async ({ database }, community) => {
    const { community: _slug, disable, priority, ...given } = options;
    const before = community.topics.get(topic);
    const policy = ingestPolicySchema.parse({ ...before?.policy, ...given });
    const rules = {
      pinned: disable === undefined ? (before?.enabled ?? true) : !disable,
      public: before?.public ?? false,
      priority: priority ?? before?.priority ?? 0,
      policy,
    };
    await writeTopic(database.pool, community.id, topic, rules, Date.now());
    process.stdout.write(`${topic} ${JSON.stringify(rules)}\n`);
  });
}

function wholeNumber(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('a whole number is needed.');
  return Number(text);
}
