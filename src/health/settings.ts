/** Checks the stored settings. */
import { readCommunities } from '../communities/communities.sql.js';
import { readNodeSettings, readNodeSettingVersions } from '../communities/node-settings.sql.js';
import { ceilingProblem, checkNodeSetting, isNodeSettingKey } from '../communities/rules-node-settings.js';
import { checkSetting, isSettingKey } from '../communities/rules-settings.js';
import type { Db } from '../postgres/values.js';
import { type Finding, info, ok, warn } from './finding.js';

export async function* checkSettings(client: Db): AsyncGenerator<Finding> {
  let problems = 0;
  const node = await readNodeSettings(client);
  for (const [key, { value }] of await readNodeSettingVersions(client)) {
    const checked = isNodeSettingKey(key) ? checkNodeSetting(key, value) : undefined;
    if (checked === undefined)
      yield info(`the stored setting ${key} is unknown to this version and has no effect`);
    else if ('problem' in checked) {
      problems += 1;
      const advice =
        `Its default applies. Run "minato settings set ${key} VALUE" ` + `or "minato settings reset ${key}".`;
      yield warn(`the stored setting is no longer valid: ${checked.problem}`, advice);
    }
  }
  for (const { slug, settings } of await readCommunities(client)) {
    for (const [key, value] of settings) {
      const beyond = isSettingKey(key) ? ceilingProblem(key, value, node) : undefined;
      if (beyond !== undefined)
        yield info(`community ${slug}: set to ${JSON.stringify(value)}, but the ceiling applies: ${beyond}`);
      const checked = isSettingKey(key) ? checkSetting(key, value) : undefined;
      if (checked === undefined) {
        yield info(
          `community ${slug}: the stored setting ${key} is unknown to this version and has no effect`,
        );
      } else if ('problem' in checked) {
        problems += 1;
        const advice =
          `Its default applies. Run "minato settings set ${key} VALUE -c ${slug}" ` +
          `or "minato settings reset ${key} -c ${slug}".`;
        yield warn(`community ${slug}: the stored setting is no longer valid: ${checked.problem}`, advice);
      }
    }
  }
  if (problems === 0) yield ok('stored settings are valid');
}
