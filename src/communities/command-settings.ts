/** The command `minato settings`: reads and changes settings of a community and of the node. */
import { Command } from 'commander';
import { granted } from '../cli/answers.js';
import { COMMUNITY_OPTION, withCommunity } from '../cli/context.js';
import { changeNodeSetting, clearNodeSetting, readNodeSettings } from './node-settings.sql.js';
import {
  ceilingOf,
  ceilingProblem,
  checkNodeSetting,
  inForce,
  isNodeSettingKey,
  type NodeSettingKey,
  type NodeSettings,
  nodeSettingDefinitions,
  nodeSettingKeys,
} from './rules-node-settings.js';
import {
  checkSetting,
  isSettingKey,
  type SettingKey,
  settingDefinitions,
  settingKeys,
  settingsAsSet,
} from './rules-settings.js';
import { changeSetting, clearSetting, readSettingVersions } from './settings.sql.js';

interface Options {
  community: string;
  json?: boolean;
}

type AnyKey = SettingKey | NodeSettingKey;

export function settingsCommand(): Command {
  const settings = new Command('settings').description(
    'settings of a community and of the node (node.…); changes reach every instance within a second',
  );
  settings
    .command('list', { isDefault: true })
    .description('show every setting, its value and what it means')
    .option(...COMMUNITY_OPTION)
    .option('--json', 'print one JSON object')
    .action((options: Options) =>
      withCommunity(options.community, async ({ database }, community) => {
        const node = await readNodeSettings(database.pool);
        if (options.json) {
          process.stdout.write(`${JSON.stringify({ ...community.settings, ...node }, null, 2)}\n`);
          return;
        }
        const stored = await readSettingVersions(database.pool, community.id);
        const asSet = settingsAsSet(new Map([...stored].map(([key, { value }]) => [key, value])));
        for (const key of settingKeys)
          process.stdout.write(line(key, community.settings[key], ceilingNote(key, asSet[key], node)));
        for (const key of nodeSettingKeys) process.stdout.write(line(key, node[key]));
      }),
    );
  settings
    .command('get <key>')
    .description('show the effective value as JSON')
    .option(...COMMUNITY_OPTION)
    .action((key: string, options: Options) => get(known(key), options.community));
  settings
    .command('set <key> <value>')
    .description('change one value; the value is JSON, or plain text for text settings')
    .option(...COMMUNITY_OPTION)
    .addHelpText(
      'after',
      `
Settings that begin with "node." apply to the whole node. Some are ceilings of community settings: the node
refuses a community value above its ceiling.

Examples:
  $ minato settings set topic.mode open
  $ minato settings set limits.eventBytesMax 131072
  $ minato settings set relay.urls '["wss://relay.example.org"]'
  $ minato settings set node.rate.eventsPerSecond 1000`,
    )
    .action((key: string, value: string, options: Options) => set(known(key), value, options.community));
  settings
    .command('reset <key>')
    .description('reset to the default')
    .option(...COMMUNITY_OPTION)
    .action((key: string, options: Options) => reset(known(key), options.community));
  return settings;
}

async function get(key: AnyKey, slug: string): Promise<void> {
  await withCommunity(slug, async ({ database }, community) => {
    const node = await readNodeSettings(database.pool);
    process.stdout.write(`${JSON.stringify(isSettingKey(key) ? community.settings[key] : node[key])}\n`);
    if (!isSettingKey(key)) return;
    const stored = (await readSettingVersions(database.pool, community.id)).get(key);
    const note = stored === undefined ? '' : ceilingNote(key, stored.value, node);
    if (note !== '') process.stderr.write(`${note}\n`);
  });
}

async function set(key: AnyKey, text: string, slug: string): Promise<void> {
  const given = parseValue(key, text);
  const checked = isSettingKey(key) ? checkSetting(key, given) : checkNodeSetting(key, given);
  if ('problem' in checked) throw new Error(checked.problem);
  const { value } = checked;
  await withCommunity(slug, async ({ database: { pool } }, community) => {
    if (isSettingKey(key)) {
      const problem = ceilingProblem(key, value, await readNodeSettings(pool));
      if (problem !== undefined) throw new Error(problem);
      granted(await changeSetting(pool, { community: community.id, key, value }, Date.now()));
    } else granted(await changeNodeSetting(pool, { key, value }, Date.now()));
    process.stdout.write(line(key, value));
  });
}

async function reset(key: AnyKey, slug: string): Promise<void> {
  await withCommunity(slug, async ({ database: { pool } }, community) => {
    if (isSettingKey(key)) granted(await clearSetting(pool, { community: community.id, key }, Date.now()));
    else granted(await clearNodeSetting(pool, { key }, Date.now()));
    process.stdout.write(line(key, definitionOf(key).default));
  });
}

/** Says that the node's ceiling is used instead of the set value; empty when it is not. */
function ceilingNote(key: SettingKey, asSet: unknown, node: NodeSettings): string {
  if (inForce(key, asSet, node) === asSet) return '';
  return `set to ${JSON.stringify(asSet)}; limited by the ceiling of the node (${ceilingOf(key, node)?.key})`;
}

const definitionOf = (key: AnyKey) =>
  isSettingKey(key) ? settingDefinitions[key] : nodeSettingDefinitions[key];

/** Parses JSON. A text setting takes the text as it is, even if it looks like a number. */
function parseValue(key: AnyKey, text: string): unknown {
  if (typeof definitionOf(key).default === 'string') return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function known(key: string): AnyKey {
  if (isSettingKey(key) || isNodeSettingKey(key)) return key;
  const close = [...settingKeys, ...nodeSettingKeys].filter((other) =>
    other.toLowerCase().includes(key.toLowerCase()),
  );
  const hint =
    close.length > 0 ? `; did you mean ${close.join(', ')}?` : '; "minato settings" lists them all';
  throw new Error(`unknown setting "${key}"${hint}`);
}

function line(key: AnyKey, value: unknown, note = ''): string {
  const about = definitionOf(key).about + (note === '' ? '' : ` [${note}]`);
  return `${key.padEnd(34)} ${JSON.stringify(value).padEnd(24)} ${about}\n`;
}
