/** docs/settings.md lists every setting as it is defined. */
import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { settingsPage } from '../../scripts/settings-page.js';
import { nodeSettingKeys } from '../../src/communities/rules-node-settings.js';
import { settingKeys } from '../../src/communities/rules-settings.js';

it('docs/settings.md is up to date ("npm run docs:settings" makes it)', async () => {
  const page = new URL('../../docs/settings.md', import.meta.url);
  expect(settingsPage()).toBe(await readFile(page, 'utf8'));
});

it('has every setting of a community and of the node', () => {
  const page = settingsPage();
  expect([...settingKeys, ...nodeSettingKeys].filter((key) => !page.includes(`| \`${key}\` |`))).toEqual([]);
});
