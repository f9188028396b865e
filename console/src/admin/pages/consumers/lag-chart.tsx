/** The lag of some consumers over a day or a month. */
import { Group, Paper, SegmentedControl, Text, Title } from '@mantine/core';
import { useMemo } from 'react';
import { Chart } from '../../../shared/components/chart.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { useFilters } from '../../../shared/filters.js';
import { duration } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { type History, type Range, range, secondsOf, useHistory } from '../overview/history.js';

const seconds = (value: number) => duration(value * 1_000);

/** Of one consumer, or of all. */
export function LagChart({ name }: { readonly name?: string }) {
  const t = useT();
  const [filters, setFilters] = useFilters(range);
  const query = useHistory(filters.range);
  return (
    <section aria-labelledby="lag">
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h4" id="lag">
          {t('consumers:history')}
        </Title>
        <SegmentedControl
          size="xs"
          aria-label={t('consumers:range')}
          value={filters.range}
          onChange={(value) => setFilters({ range: value as Range })}
          data={[
            { value: '24h', label: t('consumers:day') },
            { value: '30d', label: t('consumers:month') },
          ]}
        />
      </Group>
      {query.isPending && <Loading />}
      {query.isError && query.data === undefined && (
        <Failure error={query.error} retry={() => void query.refetch()} />
      )}
      {query.data !== undefined && <Lags history={query.data} name={name} />}
    </section>
  );
}

function Lags({ history, name }: { readonly history: History; readonly name: string | undefined }) {
  const t = useT();
  const shown = useMemo(() => {
    const all = Object.entries(history.node?.lag_seconds ?? {});
    return {
      times: secondsOf(history.node?.at ?? []),
      series: all
        .filter(([consumer]) => name === undefined || consumer === name)
        .map(([label, values]) => ({ label, values })),
    };
  }, [history, name]);
  if (shown.series.length === 0)
    return (
      <Text size="sm" c="dimmed">
        {t('consumers:noHistory')}
      </Text>
    );
  return (
    <Paper withBorder p="md">
      <Chart title={t('consumers:lag')} {...shown} format={seconds} isFilled={name !== undefined} />
    </Paper>
  );
}
