/** The figures of this moment. */
import { Group, Paper, SimpleGrid, Text, Title } from '@mantine/core';
import { duration, number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';

export interface Figures {
  readonly at: number;
  readonly per_second: Readonly<Record<string, number>> | null;
  readonly connections: number;
  readonly lane_depth: number;
  readonly ok_p50_ms: number | null;
  readonly ok_p99_ms: number | null;
  readonly lag_seconds: Readonly<Record<string, number>>;
}

const NONE = '–';

export function Now({ figures }: { readonly figures: Figures | undefined }) {
  const t = useT();
  const rates = figures?.per_second;
  const rate = rates ? Object.values(rates).reduce((sum, each) => sum + each, 0) : undefined;
  const lags = Object.values(figures?.lag_seconds ?? {});
  const p50 = figures?.ok_p50_ms;
  const p99 = figures?.ok_p99_ms;
  return (
    <section aria-labelledby="now">
      <Group align="baseline" gap="sm" mb="sm">
        <Title order={2} size="h4" id="now">
          {t('overview:now')}
        </Title>
        <Text size="xs" c="dimmed">
          {t('overview:nowAbout')}
        </Text>
      </Group>
      <SimpleGrid cols={{ base: 2, sm: 3, lg: 5 }} spacing="sm">
        <Figure label={t('overview:perSecond')} value={rate === undefined ? NONE : number(rate, 1)} />
        <Figure label={t('overview:connections')} value={shown(figures?.connections)} />
        <Figure label={t('overview:queue')} value={shown(figures?.lane_depth)} />
        <Figure
          label={t('overview:okTime')}
          value={p50 === null || p50 === undefined ? NONE : duration(p50)}
          note={
            p99 === null || p99 === undefined ? undefined : t('overview:okTime99', { time: duration(p99) })
          }
        />
        <Figure
          label={t('overview:maxLag')}
          value={lags.length === 0 ? NONE : duration(Math.max(...lags) * 1_000)}
        />
      </SimpleGrid>
    </section>
  );
}

const shown = (value: number | undefined) => (value === undefined ? NONE : number(value));

interface FigureProps {
  readonly label: string;
  readonly value: string;
  readonly note?: string | undefined;
}

function Figure({ label, value, note }: FigureProps) {
  return (
    <Paper withBorder p="md">
      <Text size="xs" c="dimmed">
        {label}
      </Text>
      <Text size="xl" fw={650} className="number">
        {value}
      </Text>
      {note !== undefined && (
        <Text size="xs" c="dimmed" className="number">
          {note}
        </Text>
      )}
    </Paper>
  );
}
