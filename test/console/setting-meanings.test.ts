/** The meanings of the settings in Japanese are those of the settings that exist. */
import { expect, it } from 'vitest';
import { MEANINGS_JA } from '../../console/src/admin/pages/settings/meanings-ja.js';
import { nodeSettingDefinitions } from '../../src/communities/rules-node-settings.js';
import { settingDefinitions } from '../../src/communities/rules-settings.js';

it('every setting has its meaning in Japanese, and none is of a setting that does not exist', () => {
  // A ceiling says only which setting it limits; the page has one text for all of them.
  const ofNode = Object.entries(nodeSettingDefinitions)
    .filter(([, { about }]) => !about.startsWith('The highest value that a community may set'))
    .map(([key]) => key);
  const wanted = [...Object.keys(settingDefinitions), ...ofNode];
  expect(Object.keys(MEANINGS_JA).sort()).toEqual(wanted.sort());
});
