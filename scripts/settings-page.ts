/** Makes docs/settings.md from the definitions of the settings. */
import { z } from 'zod';
import { bootVariables } from '../src/cli/variables.js';
import { nodeSettingDefinitions } from '../src/communities/rules-node-settings.js';
import type { Definition } from '../src/communities/rules-setting.js';
import { settingDefinitions } from '../src/communities/rules-settings.js';

type Definitions = Readonly<Record<string, Definition<unknown>>>;

const HEAD = `# Settings

Made by \`npm run docs:settings\` from the definitions of the settings; a test fails when it is out of date.
Do not edit it.

A setting belongs to a community and is stored in the database. A change takes effect on every instance
within a second, without a restart:

\`\`\`sh
minato settings list                              # every setting with its value
minato settings set topic.mode default            # of the default community; --community NAME for another
minato settings reset topic.mode
\`\`\`
Over HTTP: \`/v1/admin/settings\`.
`;
const BOOT = `## Boot settings

Environment variables. The node checks them once, at its start, and names an invalid one.

| variable | default | what it does |
|---|---|---|
`;
const NODE = `## Settings of the node

They limit the settings of the communities: \`node.<key>\` is the highest value that a community may set
\`<key>\` to ([ceilings](limits.md#ceilings-of-the-node)). Only operators of the node change them:
\`minato settings set node.… VALUE\`, or \`/v1/admin/node-settings\`.
`;

export function settingsPage(): string {
  const all = Object.entries(settingDefinitions as Definitions);
  const groupOf = (key: string) => key.split('.')[0]!;
  const groups = new Set(all.map(([key]) => groupOf(key)));
  const own = [...groups].map(
    (name) => `## ${name}\n\n${table(all.filter(([key]) => groupOf(key) === name))}`,
  );
  const node = `${NODE}\n${table(Object.entries(nodeSettingDefinitions as Definitions))}`;
  return [HEAD, bootTable(), ...own, node].join('\n');
}

function bootTable(): string {
  const rows = bootVariables().map(
    ({ name, about, otherwise }) => `| \`${name}\` | ${cell(otherwise)} | ${cell(about)} |\n`,
  );
  return BOOT + rows.join('');
}

function table(entries: readonly (readonly [string, Definition<unknown>])[]): string {
  const rows = entries.map(
    ([key, definition]) =>
      `| \`${key}\` | ${code(definition.default)} | ${valuesOf(definition)} | ${cell(definition.about)} |`,
  );
  return `| setting | default | values | what it does |\n|---|---|---|---|\n${rows.join('\n')}\n`;
}

/** The allowed values, in a few words. */
const valuesOf = ({ schema }: Definition<unknown>) =>
  wordsOf(z.toJSONSchema(schema, { unrepresentable: 'any', io: 'input' }));

function wordsOf(json: z.core.JSONSchema.BaseSchema): string {
  const { type, anyOf, minimum, maximum } = json;
  if (anyOf !== undefined)
    return anyOf.map((one) => wordsOf(one as z.core.JSONSchema.BaseSchema)).join(' or ');
  if (json.const !== undefined) return code(json.const);
  if (json.enum !== undefined) return json.enum.map(code).join(', ');
  if (type === 'boolean') return '`true`, `false`';
  if (type === 'integer' || type === 'number') return `${number(minimum)} to ${number(maximum)}`;
  return type === 'array' ? 'a list' : type === 'object' ? 'an object' : 'a text';
}

const number = (value: number | undefined) =>
  value === undefined ? '…' : value === Number.MAX_SAFE_INTEGER ? 'any' : value.toLocaleString('en-US');
const cell = (text: string) => text.replaceAll('|', '\\|');
const code = (value: unknown) => `\`${cell(JSON.stringify(value))}\``;
