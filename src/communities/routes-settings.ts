/**
 * Settings over HTTP. A change names the version that its writer has read, so that nobody overwrites a change
 * that they have not seen.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pubkey } from '../api/schemas.js';
import { lastActions } from '../audit/audit.sql.js';
import type { Db } from '../postgres/values.js';
import { readNodeSettings } from './node-settings.sql.js';
import { ceilingOf, inForce, type NodeSettings } from './rules-node-settings.js';
import {
  checkSetting,
  isSettingKey,
  type SettingKey,
  settingDefinitions,
  settingKeys,
  settingsAsSet,
} from './rules-settings.js';
import {
  changeSetting,
  clearSetting,
  readSetting,
  readSettingVersions,
  type StoredSetting,
} from './settings.sql.js';

const SETTINGS = '/admin/settings';
const TAGS = ['admin: settings'] as const;
/** The longest value is a list of 10,000 keys. */
const BODY_BYTES_MAX = 1_048_576;

export const settingChange = z
  .strictObject({
    by: pubkey.nullable().describe('Null: the command line, or an erased operator'),
    at: milliseconds,
  })
  .nullable()
  .describe('The last change or reset, as far as the audit log in PostgreSQL has it');
export type SettingChange = z.output<typeof settingChange>;

/** The last change of each of these settings, from the audit log of a community. */
export async function lastSettingChanges(
  db: Db,
  community: number,
  keys: readonly string[],
): Promise<(key: string) => SettingChange> {
  const last = await lastActions(db, community, ['setting.change', 'setting.reset'], keys);
  return (key) => {
    const found = last.get(key);
    return found === undefined ? null : { by: found.actor, at: found.at };
  };
}

const setting = z.strictObject({
  key: z.string(),
  value: z.unknown().describe('As it was set'),
  in_force: z
    .unknown()
    .describe('The effective value: the set value, or the ceiling of the node if that is lower'),
  ceiling: z
    .union([z.number(), z.boolean()])
    .nullable()
    .describe('The highest value that the node allows; null: no ceiling'),
  default: z.unknown(),
  about: z.string(),
  version: z.number().int().describe('0 while it is at its default'),
  updated_at: milliseconds.nullable(),
  changed: settingChange,
});

function show(
  key: SettingKey,
  { value, version, updatedAt }: StoredSetting,
  node: NodeSettings,
  changed: SettingChange,
): z.output<typeof setting> {
  const { default: byDefault, about } = settingDefinitions[key];
  return {
    key,
    value,
    in_force: inForce(key, value, node),
    ceiling: ceilingOf(key, node)?.value ?? null,
    default: byDefault,
    about,
    version,
    updated_at: updatedAt,
    changed,
  };
}

async function showOne(
  db: Pool,
  community: number,
  key: SettingKey,
  stored: StoredSetting,
): Promise<z.output<typeof setting>> {
  const changed = await lastSettingChanges(db, community, [key]);
  return show(key, stored, await readNodeSettings(db), changed(key));
}

export const settingParams = z.strictObject({ key: z.string().max(100) });
export const settingVersion = z
  .number()
  .int()
  .min(0)
  .describe('The version that you have read; a newer one gives VERSION_MISMATCH');

export function settingRoutes(options: { readonly pool: Pool }): Route[] {
  return [...readingRoutes(options), ...changingRoutes(options)];
}

function readingRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      method: 'GET',
      url: SETTINGS,
      role: 'viewer',
      summary: 'Every setting with its value, default and meaning',
      tags: TAGS,
      who: 'operator',
      response: z.strictObject({ items: z.array(setting) }),
      errors: [],
      handler: async ({ community }) => {
        const stored = await readSettingVersions(pool, community.id);
        const node = await readNodeSettings(pool);
        const changed = await lastSettingChanges(pool, community.id, settingKeys);
        const values = settingsAsSet(new Map([...stored].map(([key, { value }]) => [key, value])));
        const items = settingKeys.map((key) => {
          const { version: at = 0, updatedAt = null } = stored.get(key) ?? {};
          return show(key, { value: values[key], version: at, updatedAt }, node, changed(key));
        });
        return { items };
      },
    }),
    route({
      method: 'GET',
      url: `${SETTINGS}/:key`,
      role: 'viewer',
      summary: 'One setting',
      tags: TAGS,
      who: 'operator',
      params: settingParams,
      response: setting,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params: { key } }) =>
        isSettingKey(key)
          ? showOne(pool, community.id, key, await readSetting(pool, community.id, key))
          : denial('NOT_FOUND'),
    }),
  ];
}

function changingRoutes({ pool }: { readonly pool: Pool }): Route[] {
  const shown = async (community: number, key: SettingKey, stored: StoredSetting | Denial) =>
    isDenial(stored) ? stored : showOne(pool, community, key, stored);
  return [
    route({
      method: 'PUT',
      url: `${SETTINGS}/:key`,
      summary: 'Change a setting; takes effect on every instance within a second',
      description:
        'A value above the ceiling of the node is INVALID_REQUEST, which names the ceiling. ' +
        'The details of VERSION_MISMATCH contain the current value and version.',
      tags: TAGS,
      who: 'operator',
      params: settingParams,
      body: z.strictObject({ value: z.unknown(), version: settingVersion }),
      bodyBytesMax: BODY_BYTES_MAX,
      response: setting,
      errors: ['NOT_FOUND', 'VERSION_MISMATCH'],
      handler: async ({ community, pubkey: actor, params: { key }, body, now }) => {
        if (!isSettingKey(key)) return denial('NOT_FOUND');
        const checked = checkSetting(key, body.value);
        if ('problem' in checked) {
          return denial('INVALID_REQUEST', { problems: [{ path: 'body/value', message: checked.problem }] });
        }
        const change = {
          community: community.id,
          key,
          value: checked.value,
          seenVersion: body.version,
          actor,
        };
        return shown(community.id, key, await changeSetting(pool, change, now));
      },
    }),
    route({
      method: 'DELETE',
      url: `${SETTINGS}/:key`,
      summary: 'Reset a setting to its default',
      tags: TAGS,
      who: 'operator',
      params: settingParams,
      query: z.strictObject({ version: z.coerce.number().pipe(settingVersion) }),
      response: setting,
      errors: ['NOT_FOUND', 'VERSION_MISMATCH'],
      handler: async ({ community, pubkey: actor, params: { key }, query, now }) => {
        if (!isSettingKey(key)) return denial('NOT_FOUND');
        const ref = { community: community.id, key, seenVersion: query.version, actor };
        return shown(community.id, key, await clearSetting(pool, ref, now));
      },
    }),
  ];
}
