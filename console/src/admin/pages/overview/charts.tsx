/** The charts of the last day or month. */
import { Paper, SimpleGrid, Text } from '@mantine/core';
import { useMemo } from 'react';
import { Chart, type Series } from '../../../shared/components/chart.js';
import { Empty, Failure, Loading } from '../../../shared/components/states.js';
import { bytes, date, duration, number, relative, short } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { addSeries, type History, type NodeHistory, type Range, secondsOf, useHistory } from './history.js';

export function Charts({ range }: { readonly range: Range }) {
  const t = useT();
  const query = useHistory(range);
  if (query.isPending) return <Loading />;
  if (query.data === undefined) return <Failure error={query.error} retry={() => void query.refetch()} />;
  const { node, community } = query.data;
  const isEmpty = node?.connections.every((value) => value === null);
  if (isEmpty) return <Empty title={t('overview:noHistory')}>{t('overview:noHistoryAbout')}</Empty>;
  return (
    <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="sm">
      {node !== null && <OfNode node={node} history={query.data} />}
      {community.at.length > 1 && <Kept community={community} />}
      {node === null && (
        <Text size="sm" c="dimmed">
          {t('overview:otherCommunity')}
        </Text>
      )}
    </SimpleGrid>
  );
}

const perSecond = (value: number, digits?: number) => number(value, digits ?? (value < 10 ? 2 : 0));
const milliseconds = (value: number) => duration(value);
const seconds = (value: number) => duration(value * 1_000);
const whole = (value: number, digits?: number) => short(value, digits);

function OfNode({ node, history }: { readonly node: NodeHistory; readonly history: History }) {
  const t = useT();
  const step = history.step_seconds;
  // The chart is drawn again only if the figures, or the language of the labels, have changed.
  const shown = useMemo(() => {
    const { events } = node;
    const { stored, broadcast, duplicate, older, 'rate-limited': limited, ...refused } = events;
    const rate = (of: readonly ((number | null)[] | undefined)[]) =>
      addSeries(of).map((value) => (value === null ? null : value / step));
    const outcomes: Series[] = [
      { label: t('overview:stored'), values: rate([stored]) },
      { label: t('overview:broadcast'), values: rate([broadcast]) },
      { label: t('overview:duplicates'), values: rate([duplicate, older]) },
      { label: t('overview:limited'), values: rate([limited]) },
      { label: t('overview:refused'), values: rate(Object.values(refused)) },
    ].filter(({ values }) => values.length > 0);
    return {
      times: secondsOf(node.at),
      outcomes:
        outcomes.length > 0 ? outcomes : [{ label: t('overview:stored'), values: node.at.map(() => null) }],
      connections: [{ label: t('overview:connections'), values: node.connections }],
      queue: [{ label: t('overview:queue'), values: node.lane_depth }],
      ok: [
        { label: t('overview:median'), values: node.ok_p50_ms },
        { label: t('overview:p99'), values: node.ok_p99_ms },
      ],
      lag: Object.entries(node.lag_seconds).map(([label, values]) => ({ label, values })),
      size: [{ label: t('overview:size'), values: joined(node.database_bytes) }],
    };
  }, [node, step, t]);
  const disk = history.forecasts.find(({ of }) => of === 'disk');
  return (
    <>
      <Card>
        <Chart
          title={t('overview:chartEvents')}
          times={shown.times}
          series={shown.outcomes}
          format={perSecond}
        />
      </Card>
      <Card>
        <Chart title={t('overview:chartOk')} times={shown.times} series={shown.ok} format={milliseconds} />
      </Card>
      <Card>
        <Chart
          title={t('overview:chartConnections')}
          times={shown.times}
          series={shown.connections}
          format={whole}
          isFilled
        />
      </Card>
      <Card>
        <Chart
          title={t('overview:chartQueue')}
          times={shown.times}
          series={shown.queue}
          format={whole}
          isFilled
        />
      </Card>
      {shown.lag.length > 0 && (
        <Card>
          <Chart title={t('overview:chartLag')} times={shown.times} series={shown.lag} format={seconds} />
        </Card>
      )}
      <Card>
        <Chart
          title={t('overview:chartSize')}
          times={shown.times}
          series={shown.size}
          format={bytes}
          isFilled
        />
        {disk !== undefined && disk.full_at !== null && (
          <Text size="xs" c="dimmed" mt={4}>
            {`${t('overview:forecast.disk', { when: relative(disk.full_at) })} (${date(disk.full_at)})`}
          </Text>
        )}
      </Card>
    </>
  );
}

function Kept({ community }: { readonly community: History['community'] }) {
  const t = useT();
  const shown = useMemo(
    () => ({
      times: secondsOf(community.at),
      series: [{ label: t('overview:kept'), values: community.events }],
    }),
    [community, t],
  );
  return (
    <Card>
      <Chart title={t('overview:chartKept')} {...shown} format={whole} isFilled />
    </Card>
  );
}

/** It is measured every ten minutes: between two measurements the value is that of the first. */
function joined(values: readonly (number | null)[]): (number | null)[] {
  let known: number | null = null;
  return values.map((value) => {
    known = value ?? known;
    return known;
  });
}

function Card({ children }: { readonly children: React.ReactNode }) {
  return (
    <Paper withBorder p="md">
      {children}
    </Paper>
  );
}
