/** The tables of communities, declared (I12): names, settings, and the version that instances poll. */
import { declareTable } from '../postgres/table.js';

export const communitiesTable = declareTable('communities', {
  row: 'A community of the node.',
  erased: { never: 'The erasure deletes its row last, after everything that refers to it.' },
});

export const communitySettingsTable = declareTable('community_settings', {
  row: 'A setting of a community that is not its default.',
  files: {
    settings: {
      about: 'Settings of the community that name you, such as the list of keys that need no review.',
      names: ['value'],
      columns: 'key, updated_at',
      where: 'strpos(value::text, :hex) > 0',
    },
  },
  inNoFile: { key: 'The name of a setting, from a fixed list.' },
  erased: {
    store: 'settings',
    member: [
      {
        where: `jsonb_typeof(t.value) = 'array' AND t.value ? :hex
          AND strpos((t.value - :hex)::text, :hex) = 0
          AND t.updated_at <= :ms`,
        release: 'value = u.value - :hex',
      },
      'strpos(t.value::text, :hex) > 0 AND t.updated_at <= :ms',
    ],
  },
});

export const nodeSettingsTable = declareTable('node_settings', {
  row: 'A setting of the whole node that is not its default.',
  inNoFile: {
    key: 'The name of a setting, from a fixed list.',
    value: 'A number or a boolean; no setting of the node is a text.',
  },
  erased: { never: 'It holds numbers and booleans of the whole node, nothing about a person.' },
});

export const configVersionTable = declareTable('config_version', {
  row: 'One row: the version of all settings and rights, which every instance polls.',
  erased: { never: 'It holds two numbers of the whole node, nothing about a person.' },
});
