import { describe, expect, it } from 'vitest';
import {
  ceilingOf,
  ceilingProblem,
  checkNodeSetting,
  inForce,
  NODE_DEFAULTS,
  type NodeSettings,
  nodeSettingDefinitions,
  nodeSettingKeys,
} from './rules-node-settings.js';
import {
  type SettingKey,
  settingDefinitions,
  settingKeys,
  settingsAsSet,
  settingsFrom,
} from './rules-settings.js';

const nodeWith = (values: Partial<NodeSettings>): NodeSettings => ({ ...NODE_DEFAULTS, ...values });
const ceilings = settingKeys.filter((key) => `node.${key}` in nodeSettingDefinitions);

describe('ceilings of the node', () => {
  it('exist for every rate, and for every limit of what a client may hold or send', () => {
    const rated = settingKeys.filter((key) => key.startsWith('rate.'));
    const held: SettingKey[] = [
      'limits.messageBytesMax',
      'limits.eventBytesMax',
      'limits.listBytesMax',
      'limits.tagsMax',
      'limits.tagBytesMax',
      'limits.connectionsPerAddressMax',
      'limits.subscriptionsMax',
      'limits.subscriptionValuesMax',
      'limits.filtersMax',
      'limits.filterValuesMax',
      'limits.limitDefault',
      'limits.limitMax',
      'limits.countMax',
      'capacity.maxEvents',
      'capacity.maxBytes',
    ];
    expect(ceilings).toEqual(expect.arrayContaining([...rated, ...held]));
  });

  it('have valid defaults, and no default of a community is above them', () => {
    for (const key of nodeSettingKeys)
      expect(checkNodeSetting(key, nodeSettingDefinitions[key].default)).toEqual({
        value: NODE_DEFAULTS[key],
      });
    expect(settingsFrom(new Map())).toEqual(settingsAsSet(new Map()));
  });

  it.each(ceilings)('%s: the lower value is effective, and a value above the ceiling is refused', (key) => {
    const name = `node.${key}` as keyof NodeSettings;
    const max = settingDefinitions[key].default;
    if (typeof max !== 'number') return;
    const ceiling = Math.max(1, max === 0 ? 10 : max);
    const node = nodeWith({ [name]: ceiling });
    expect(inForce(key, ceiling + 1, node)).toBe(ceiling);
    expect(inForce(key, ceiling, node)).toBe(ceiling);
    expect(inForce(key, ceiling - 0.5, node)).toBe(ceiling - 0.5);
    expect(ceilingProblem(key, ceiling, node)).toBeUndefined();
    expect(ceilingProblem(key, ceiling + 1, node)).toMatch(new RegExp(`ceiling of the node is ${ceiling} `));
  });

  it('apply when a community sets no limit', () => {
    const node = nodeWith({ 'node.rate.eventsPerSecond': 7, 'node.capacity.maxBytes': 1_000 });
    const settings = settingsFrom(new Map([['rate.eventsPerSecond', 0]]), node);
    expect(settings['rate.eventsPerSecond']).toBe(7);
    expect(settings['capacity.maxBytes']).toBe(1_000);
    expect(ceilingProblem('rate.eventsPerSecond', 0, node)).toMatch(/0 would mean no limit/);
    // For these settings 0 is an ordinary number.
    expect(inForce('limits.tagsMax', 0, node)).toBe(0);
  });

  it('of capacity are off at 0', () => {
    expect(ceilingOf('capacity.maxBytes', NODE_DEFAULTS)).toBeUndefined();
    expect(inForce('capacity.maxBytes', 0, NODE_DEFAULTS)).toBe(0);
    expect(ceilingProblem('capacity.maxBytes', 1e15, NODE_DEFAULTS)).toBeUndefined();
  });

  it('decide whether clients on this machine may be exempt', () => {
    const node = nodeWith({ 'node.rate.exemptLoopback': false });
    expect(settingsFrom(new Map(), node)['rate.exemptLoopback']).toBe(false);
    expect(inForce('rate.exemptLoopback', true, NODE_DEFAULTS)).toBe(true);
    expect(inForce('rate.exemptLoopback', false, NODE_DEFAULTS)).toBe(false);
    expect(ceilingProblem('rate.exemptLoopback', true, node)).toMatch(/does not allow it/);
  });
});
