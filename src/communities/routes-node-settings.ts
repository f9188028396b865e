/**
 * Settings of the whole node over HTTP, for operators of the node only: the ceilings of communities, shares
 * and the disk guard.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Call, type Route, route } from '../api/contract.js';
import { type NodeOperators, refuseOthers } from '../api/node-operators.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds } from '../api/schemas.js';
import {
  changeNodeSetting,
  clearNodeSetting,
  readNodeSetting,
  readNodeSettingVersions,
} from './node-settings.sql.js';
import {
  lastSettingChanges,
  type SettingChange,
  settingChange,
  settingParams,
  settingVersion,
} from './routes-settings.js';
import {
  checkNodeSetting,
  isNodeSettingKey,
  type NodeSettingKey,
  nodeSettingDefinitions,
  nodeSettingKeys,
  nodeSettingsFrom,
} from './rules-node-settings.js';
import type { StoredSetting } from './settings.sql.js';

const SETTINGS = '/admin/node-settings';
const WHAT = 'These settings apply to all communities';

export interface NodeSettingOptions extends NodeOperators {
  readonly pool: Pool;
}

const setting = z.strictObject({
  key: z.string(),
  value: z.unknown(),
  default: z.unknown(),
  about: z.string(),
  version: z.number().int().describe('0 while it is at its default'),
  updated_at: milliseconds.nullable(),
  changed: settingChange,
});

function show(
  key: NodeSettingKey,
  { value, version, updatedAt }: StoredSetting,
  changed: SettingChange,
): z.output<typeof setting> {
  const { default: byDefault, about } = nodeSettingDefinitions[key];
  return { key, value, default: byDefault, about, version, updated_at: updatedAt, changed };
}

export function nodeSettingRoutes(options: NodeSettingOptions): Route[] {
  const { pool } = options;
  const shared = { tags: ['admin: node settings'], who: 'operator' } as const;
  const refuse = (call: Call<'operator'>) => refuseOthers(options, call, WHAT);
  // Only operators of the node get here, at the default community, whose log has these changes.
  const shown = async (community: number, key: NodeSettingKey, stored: StoredSetting | Denial) =>
    isDenial(stored) ? stored : show(key, stored, (await lastSettingChanges(pool, community, [key]))(key));
  return [
    route({
      ...shared,
      method: 'GET',
      url: SETTINGS,
      summary: 'Every setting of the node with its value, default and meaning',
      response: z.strictObject({ items: z.array(setting) }),
      errors: [],
      handler: async (call) => {
        const refused = refuse(call);
        if (refused !== undefined) return refused;
        const stored = await readNodeSettingVersions(pool);
        const values = nodeSettingsFrom(new Map([...stored].map(([key, { value }]) => [key, value])));
        const changed = await lastSettingChanges(pool, call.community.id, nodeSettingKeys);
        const items = nodeSettingKeys.map((key) => {
          const { version = 0, updatedAt = null } = stored.get(key) ?? {};
          return show(key, { value: values[key], version, updatedAt }, changed(key));
        });
        return { items };
      },
    }),
    route({
      ...shared,
      method: 'GET',
      url: `${SETTINGS}/:key`,
      summary: 'One setting of the node',
      params: settingParams,
      response: setting,
      errors: ['NOT_FOUND'],
      handler: async (call) => {
        const { key } = call.params;
        const refused = refuse(call);
        if (refused !== undefined) return refused;
        return isNodeSettingKey(key)
          ? shown(call.community.id, key, await readNodeSetting(pool, key))
          : denial('NOT_FOUND');
      },
    }),
    route({
      ...shared,
      method: 'PUT',
      url: `${SETTINGS}/:key`,
      summary: 'Change a setting of the node; takes effect on every instance within a second',
      description: 'The details of VERSION_MISMATCH contain the current value and version.',
      params: settingParams,
      body: z.strictObject({ value: z.unknown(), version: settingVersion }),
      response: setting,
      errors: ['NOT_FOUND', 'VERSION_MISMATCH'],
      handler: async (call) => {
        const { params, body, pubkey: actor, now } = call;
        const refused = refuse(call);
        if (refused !== undefined) return refused;
        const { key } = params;
        if (!isNodeSettingKey(key)) return denial('NOT_FOUND');
        const checked = checkNodeSetting(key, body.value);
        if ('problem' in checked)
          return denial('INVALID_REQUEST', { problems: [{ path: 'body/value', message: checked.problem }] });
        const change = { key, value: checked.value, seenVersion: body.version, actor };
        return shown(call.community.id, key, await changeNodeSetting(pool, change, now));
      },
    }),
    route({
      ...shared,
      method: 'DELETE',
      url: `${SETTINGS}/:key`,
      summary: 'Reset a setting of the node to its default',
      params: settingParams,
      query: z.strictObject({ version: z.coerce.number().pipe(settingVersion) }),
      response: setting,
      errors: ['NOT_FOUND', 'VERSION_MISMATCH'],
      handler: async (call) => {
        const { params, query, pubkey: actor, now } = call;
        const refused = refuse(call);
        if (refused !== undefined) return refused;
        const { key } = params;
        if (!isNodeSettingKey(key)) return denial('NOT_FOUND');
        const ref = { key, seenVersion: query.version, actor };
        return shown(call.community.id, key, await clearNodeSetting(pool, ref, now));
      },
    }),
  ];
}
