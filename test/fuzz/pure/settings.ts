/** Values of settings, of communities and of the node, and of rules and other values that operators write. */
import {
  checkNodeSetting,
  isNodeSettingKey,
  nodeSettingKeys,
} from '../../../src/communities/rules-node-settings.js';
import {
  checkSetting,
  isSettingKey,
  settingDefinitions,
  settingKeys,
  settingsFrom,
} from '../../../src/communities/rules-settings.js';
import type { Dice } from '../../../src/demo/rules-dice.js';
import { ingestPolicyInput } from '../../../src/events/rules/retention.js';
import { ruleSchema, selectionSchema } from '../../../src/moderation/rules.js';
import { peersSchema } from '../../../src/sync/rules-peers.js';
import { oddJson, oddNumber, oddText } from '../make/values.js';
import { must, type PureTarget } from '../target.js';

type Checked = { readonly value: unknown } | { readonly problem: string };

function make(dice: Dice): string {
  const key = dice.chance(0.7) ? dice.pick(settingKeys) : dice.pick(nodeSettingKeys);
  const usual = isSettingKey(key) ? settingDefinitions[key].default : 1;
  const kind = dice.next();
  if (kind < 0.3) return JSON.stringify([key, usual]);
  if (kind < 0.5) return JSON.stringify([key, oddNumber(dice)]);
  if (kind < 0.7)
    return JSON.stringify([key, Array.from({ length: dice.between(0, 4) }, () => oddText(dice))]);
  return JSON.stringify([key, oddJson(dice)]);
}

/** What is accepted is accepted again, unchanged, after it was stored as JSON. */
function checkStable(first: Checked, check: (value: unknown) => Checked): void {
  if ('problem' in first) {
    must(first.problem.length > 0, 'a value that is refused has a reason');
    return;
  }
  const stored = JSON.stringify(first.value);
  must(stored !== undefined, 'an accepted value can be stored');
  must(!/\\u0000/.test(stored.replaceAll('\\\\', '')), 'an accepted value has no NUL');
  const again = check(JSON.parse(stored));
  must('value' in again && JSON.stringify(again.value) === stored, 'an accepted value is not stable');
}

export const settingValues: PureTarget = {
  name: 'settings',
  corpus: [],
  make,
  run: (input) => {
    let json: unknown;
    try {
      json = JSON.parse(input);
    } catch {
      return;
    }
    const [key, value] = Array.isArray(json) ? json : [undefined, json];
    if (typeof key === 'string' && isSettingKey(key)) {
      checkStable(checkSetting(key, value), (stored) => checkSetting(key, stored));
      settingsFrom(new Map([[key, value]]));
    }
    if (typeof key === 'string' && isNodeSettingKey(key))
      checkStable(checkNodeSetting(key, value), (stored) => checkNodeSetting(key, stored));
    for (const schema of [ingestPolicyInput, ruleSchema, selectionSchema, peersSchema])
      schema.safeParse(value);
  },
};
