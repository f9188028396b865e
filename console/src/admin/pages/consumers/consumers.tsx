/** All consumers with their state and lag. */
import { Group, Progress, Stack, Text } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { duration, number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { StateBadge } from '../jobs/state-badge.js';
import { LagChart } from './lag-chart.js';
import { type Consumer, stateOf, useConsumers } from './list.js';
import './texts.js';

export default function Consumers() {
  const t = useT();
  const query = useConsumers();
  return (
    <>
      <PageHead title={t('consumers:title')} about={t('consumers:intro')} />
      <Stack gap="xl">
        <DataTable
          label={t('consumers:title')}
          list={{
            items: query.data?.items ?? [],
            isPending: query.isPending,
            error: query.error,
            hasNextPage: false,
            isFetchingNextPage: false,
            fetchNextPage: () => undefined,
            refetch: () => void query.refetch(),
          }}
          keyOf={({ name }) => name}
          empty={<Empty title={t('consumers:notFound')}>{t('consumers:notFoundAbout')}</Empty>}
          columns={[
            {
              label: t('consumers:name'),
              show: ({ name }) => (
                <Link to="/consumers/$name" params={{ name }} className="table-link">
                  {name}
                </Link>
              ),
            },
            { label: t('consumers:state'), show: (consumer) => <State of={consumer} /> },
            {
              label: t('consumers:lag'),
              isNumber: true,
              show: ({ lag_seconds: lag }) => duration(lag * 1_000),
            },
            {
              label: t('consumers:lagRows'),
              isNumber: true,
              isMinor: true,
              show: ({ lag_rows: rows }) => number(rows),
            },
            {
              label: t('consumers:speed'),
              isNumber: true,
              isMinor: true,
              show: ({ rows_per_second: rate }) => number(rate, 1),
            },
            {
              label: t('consumers:letters'),
              isNumber: true,
              show: ({ dead_letters: letters }) => number(letters),
            },
          ]}
        />
        <LagChart />
      </Stack>
    </>
  );
}

export function State({ of }: { readonly of: Consumer }) {
  const t = useT();
  const { state, color } = stateOf(of);
  const { rebuild } = of;
  return (
    <Stack gap={4}>
      <Group gap="xs">
        <StateBadge color={color}>{t(`consumers:states.${state}`)}</StateBadge>
        {rebuild !== null && (
          <Text size="xs" c="dimmed">
            {t(`consumers:phase.${rebuild.phase}`)}
          </Text>
        )}
      </Group>
      {rebuild !== null && (
        <Progress
          value={rebuild.percent}
          size="sm"
          maw={220}
          aria-label={t(`consumers:phase.${rebuild.phase}`)}
        />
      )}
    </Stack>
  );
}
