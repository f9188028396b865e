/** The list of batches with their progress; each can be undone. */
import { Button, Stack, Text } from '@mantine/core';
import { IconPlus, IconStack2 } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { api, dataOf, useList } from '../../../shared/api.js';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { Someone } from '../../someone.js';
import { useWaiting } from '../cases/waiting.js';
import { useSummary } from '../rules/summary.js';
import { BatchStatus, UndoBatch } from './parts.js';
import './texts.js';
import type { Batch } from './types.js';

const READ_AGAIN_MS = 2_000;

export default function Batches() {
  const t = useT();
  const columns = useColumns();
  const waiting = useWaiting();
  const list = useList(
    ['batches'],
    (cursor) =>
      dataOf(
        api.GET('/v1/admin/moderation/batches', {
          params: { query: cursor === undefined ? {} : { cursor } },
        }),
      ),
    // Only while a worker has something to do.
    (waiting?.batches.count ?? 0) > 0 ? { refetchInterval: READ_AGAIN_MS } : {},
  );
  const create = (
    <Button component={Link} to="/batches/new" leftSection={<IconPlus size={16} />}>
      {t('batches:create')}
    </Button>
  );
  return (
    <>
      <PageHead title={t('batches:title')} about={t('batches:about')}>
        {create}
      </PageHead>
      <DataTable
        label={t('batches:title')}
        list={list}
        columns={columns}
        keyOf={({ batch_id: id }) => id}
        empty={
          <Empty title={t('batches:none')} icon={<IconStack2 size={26} />} action={create}>
            {t('batches:noneAbout')}
          </Empty>
        }
      />
    </>
  );
}

function useColumns(): readonly Column<Batch>[] {
  const t = useT();
  const summaryOf = useSummary();
  return [
    {
      label: t('batches:what'),
      show: (batch) => (
        <Stack gap={2}>
          <Link to={`/batches/${batch.batch_id}`} className="table-link">
            {t(`batches:actions.${batch.action}`)}
          </Link>
          <Text size="sm" c="dimmed" lineClamp={2}>
            {[summaryOf(batch.conditions), batch.note].filter((part) => part !== '').join(' · ')}
          </Text>
        </Stack>
      ),
    },
    {
      label: t('batches:matched'),
      isNumber: true,
      width: 110,
      show: (batch) => number(batch.matched),
    },
    { label: t('batches:state'), width: 120, show: (batch) => <BatchStatus status={batch.status} /> },
    {
      label: t('batches:who'),
      width: 190,
      isMinor: true,
      show: (batch) => (batch.actor === null ? t('batches:commandLine') : <Someone pubkey={batch.actor} />),
    },
    {
      label: t('batches:started'),
      width: 130,
      isMinor: true,
      show: (batch) => <When at={batch.created_at} />,
    },
    { label: t('batches:undo'), width: 130, show: (batch) => <UndoBatch batch={batch} /> },
  ];
}
