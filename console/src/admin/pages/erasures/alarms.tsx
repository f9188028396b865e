/** Rows of erased members that the daily check has found again. */
import { Alert, Stack } from '@mantine/core';
import { IconShieldCheck } from '@tabler/icons-react';
import { api, dataOf, useList } from '../../../shared/api.js';
import { DataTable } from '../../../shared/components/data-table.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';

export function Alarms() {
  const t = useT();
  const list = useList(['erasure-alarms'], async () => {
    const { alarms } = await dataOf(api.GET('/v1/admin/erasure-alarms'));
    return { items: alarms, next_cursor: null };
  });
  return (
    <Stack>
      {list.items.length > 0 && (
        <Alert color="red" variant="light" role="alert">
          {t('erasures:alarmsAbout')}
        </Alert>
      )}
      <DataTable
        label={t('erasures:alarms')}
        list={list}
        keyOf={({ store, subject }) => `${store}/${subject}`}
        empty={
          <Empty title={t('erasures:noAlarms')} icon={<IconShieldCheck size={26} />}>
            {t('erasures:noAlarmsAbout')}
          </Empty>
        }
        columns={[
          { label: t('erasures:store'), show: ({ store }) => store },
          { label: t('erasures:found'), isNumber: true, show: ({ found }) => number(found) },
          { label: t('erasures:firstSeen'), show: ({ at }) => <When at={at} /> },
          { label: t('erasures:lastSeen'), isMinor: true, show: ({ seen_at }) => <When at={seen_at} /> },
        ]}
      />
    </Stack>
  );
}
