/** What needs attention comes first, then live figures, charts, and what the newest events are about. */
import { SegmentedControl, Stack, Title } from '@mantine/core';
import { useState } from 'react';
import { PageHead } from '../../../shared/components/page-head.js';
import { useFilters } from '../../../shared/filters.js';
import { useT } from '../../../shared/i18n.js';
import { type LiveState, useLive } from '../../../shared/live.js';
import { prefix } from '../../../shared/place.js';
import { StateBadge } from '../jobs/state-badge.js';
import { Activity } from './activity.js';
import { Attention } from './attention.js';
import { Charts } from './charts.js';
import { type Range, range } from './history.js';
import { type Figures, Now } from './now.js';
import './texts.js';

/** Figures of the whole node are those of the default community. */
const HAS_FIGURES = prefix === '' || prefix === '/c/default';

export default function Overview() {
  const t = useT();
  const [filters, setFilters] = useFilters(range);
  const [figures, setFigures] = useState<Figures>();
  const state = useLive<Figures>(
    HAS_FIGURES ? '/v1/admin/live' : undefined,
    (data, event) => {
      if (event === 'figures') setFigures(data);
    },
    ['figures', 'closed'],
  );
  return (
    <>
      <PageHead title={t('overview:title')} about={t('overview:about')}>
        {HAS_FIGURES && <Live state={state} />}
        <SegmentedControl
          size="xs"
          aria-label={t('overview:range')}
          value={filters.range}
          onChange={(value) => setFilters({ range: value as Range })}
          data={[
            { value: '24h', label: t('overview:day') },
            { value: '30d', label: t('overview:month') },
          ]}
        />
      </PageHead>
      <Stack gap="xl">
        <Attention />
        {HAS_FIGURES && <Now figures={figures} />}
        <section aria-labelledby="history">
          <Title order={2} size="h4" mb="sm" id="history">
            {t('overview:charts')}
          </Title>
          <Charts range={filters.range} />
        </section>
        <Activity />
      </Stack>
    </>
  );
}

const COLORS = { connecting: 'gray', open: 'teal', waiting: 'orange' } as const;

function Live({ state }: { readonly state: LiveState }) {
  const t = useT();
  return (
    <StateBadge color={COLORS[state]} isLive>
      {t(`overview:live.${state}`)}
    </StateBadge>
  );
}
