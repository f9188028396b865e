/** Settings over HTTP. A change names the version that its writer has read, so that nobody overwrites what they have not seen. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Denial, denial, isDenial } from '../core/errors.js';
import {
  checkSetting,
  isSettingKey,
  type SettingKey,
  settingDefinitions,
  settingKeys,
  settingsFrom,
} from '../core/settings.js';
import {
  changeSetting,
  clearSetting,
  readSetting,
  readSettingVersions,
  type StoredSetting,
} from '../store/settings.js';
import { type Route, route } from './contract.js';
import { milliseconds } from './schemas.js';

const SETTINGS = '/admin/settings';
const TAGS = ['admin: settings'] as const;
/** A list of 10,000 keys is the longest value. */
const BODY_BYTES_MAX = 1_048_576;

const setting = z.strictObject({
  key: z.string(),
  value: z.unknown(),
  default: z.unknown(),
  about: z.string(),
  version: z.number().int().describe('0 while it is at its default'),
  updated_at: milliseconds.nullable(),
});

function show(key: SettingKey, { value, version, updatedAt }: StoredSetting): z.output<typeof setting> {
  const { default: byDefault, about } = settingDefinitions[key];
  return { key, value, default: byDefault, about, version, updated_at: updatedAt };
}

const params = z.strictObject({ key: z.string().max(100) });
const version = z.number().int().min(0).describe('What was read; another one by now is VERSION_MISMATCH');

export function settingRoutes(options: { readonly pool: Pool }): Route[] {
  return [...readingRoutes(options), ...changingRoutes(options)];
}

function readingRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      method: 'GET',
      url: SETTINGS,
      summary: 'Every setting with its value, its default and what it means',
      tags: TAGS,
      who: 'operator',
      response: z.strictObject({ items: z.array(setting) }),
      errors: [],
      handler: async ({ community }) => {
        const stored = await readSettingVersions(pool, community.id);
        const values = settingsFrom(new Map([...stored].map(([key, { value }]) => [key, value])));
        const items = settingKeys.map((key) => {
          const { version: at = 0, updatedAt = null } = stored.get(key) ?? {};
          return show(key, { value: values[key], version: at, updatedAt });
        });
        return { items };
      },
    }),
    route({
      method: 'GET',
      url: `${SETTINGS}/:key`,
      summary: 'One setting',
      tags: TAGS,
      who: 'operator',
      params,
      response: setting,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params: { key } }) =>
        isSettingKey(key) ? show(key, await readSetting(pool, community.id, key)) : denial('NOT_FOUND'),
    }),
  ];
}

function changingRoutes({ pool }: { readonly pool: Pool }): Route[] {
  const shown = (key: SettingKey, stored: StoredSetting | Denial) =>
    isDenial(stored) ? stored : show(key, stored);
  return [
    route({
      method: 'PUT',
      url: `${SETTINGS}/:key`,
      summary: 'Change a setting; in force on every instance within a second',
      description: 'VERSION_MISMATCH has the value and the version of now in its details.',
      tags: TAGS,
      who: 'operator',
      params,
      body: z.strictObject({ value: z.unknown(), version }),
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
        return shown(key, await changeSetting(pool, change, now));
      },
    }),
    route({
      method: 'DELETE',
      url: `${SETTINGS}/:key`,
      summary: 'Take a setting back to its default',
      tags: TAGS,
      who: 'operator',
      params,
      query: z.strictObject({ version: z.coerce.number().pipe(version) }),
      response: setting,
      errors: ['NOT_FOUND', 'VERSION_MISMATCH'],
      handler: async ({ community, pubkey: actor, params: { key }, query, now }) => {
        if (!isSettingKey(key)) return denial('NOT_FOUND');
        const ref = { community: community.id, key, seenVersion: query.version, actor };
        return shown(key, await clearSetting(pool, ref, now));
      },
    }),
  ];
}
