import { Command } from 'commander';
import {
  checkSetting,
  isSettingKey,
  type SettingKey,
  settingDefinitions,
  settingKeys,
} from '../core/settings.js';
import { changeSetting, clearSetting } from '../store/settings.js';
import { granted } from './answers.js';
import { COMMUNITY_OPTION, withCommunity } from './context.js';

interface Options {
  community: string;
  json?: boolean;
}

export function settingsCommand(): Command {
  const settings = new Command('settings').description(
    "a community's settings; a change takes effect on every instance within a second",
  );
  settings
    .command('list', { isDefault: true })
    .description('show every setting, its value and what it means')
    .option(...COMMUNITY_OPTION)
    .option('--json', 'as one JSON object')
    .action((options: Options) =>
      withCommunity(options.community, async (_context, community) => {
        if (options.json) process.stdout.write(`${JSON.stringify(community.settings, null, 2)}\n`);
        else for (const key of settingKeys) process.stdout.write(line(key, community.settings[key]));
      }),
    );
  settings
    .command('get <key>')
    .description('show one value, as JSON')
    .option(...COMMUNITY_OPTION)
    .action((key: string, options: Options) =>
      withCommunity(options.community, async (_context, community) => {
        process.stdout.write(`${JSON.stringify(community.settings[known(key)])}\n`);
      }),
    );
  settings
    .command('set <key> <value>')
    .description('change one value; a value is JSON, or plain text where the setting is text')
    .option(...COMMUNITY_OPTION)
    .addHelpText(
      'after',
      `
Examples:
  $ minato settings set topic.mode open
  $ minato settings set limits.eventBytesMax 131072
  $ minato settings set relay.urls '["wss://relay.example.org"]'`,
    )
    .action((key: string, value: string, options: Options) => set(known(key), value, options.community));
  settings
    .command('reset <key>')
    .description('back to the default')
    .option(...COMMUNITY_OPTION)
    .action((key: string, options: Options) =>
      withCommunity(options.community, async ({ database }, community) => {
        const ref = { community: community.id, key: known(key) };
        granted(await clearSetting(database.pool, ref, Date.now()));
        process.stdout.write(line(known(key), settingDefinitions[known(key)].default));
      }),
    );
  return settings;
}

async function set(key: SettingKey, text: string, slug: string): Promise<void> {
  const checked = checkSetting(key, parseValue(key, text));
  if ('problem' in checked) throw new Error(checked.problem);
  await withCommunity(slug, async ({ database }, community) => {
    const change = { community: community.id, key, value: checked.value };
    granted(await changeSetting(database.pool, change, Date.now()));
    process.stdout.write(line(key, checked.value));
  });
}

/** JSON where it is JSON; a text setting takes the words as they are, also when they happen to be a number. */
function parseValue(key: SettingKey, text: string): unknown {
  if (typeof settingDefinitions[key].default === 'string') return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function known(key: string): SettingKey {
  if (isSettingKey(key)) return key;
  const close = settingKeys.filter((other) => other.toLowerCase().includes(key.toLowerCase()));
  const hint =
    close.length > 0 ? `; did you mean ${close.join(', ')}?` : '; "minato settings" lists them all';
  throw new Error(`there is no setting "${key}"${hint}`);
}

function line(key: SettingKey, value: unknown): string {
  return `${key.padEnd(34)} ${JSON.stringify(value).padEnd(24)} ${settingDefinitions[key].about}\n`;
}
