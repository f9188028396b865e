/** Each job with its schedule and last run; operators of the node run one now. */
import { Badge, Button, Code, Group, SegmentedControl, Stack, Text } from '@mantine/core';
import { IconPlayerPlay } from '@tabler/icons-react';
import { useState } from 'react';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { oneOfOr, useFilters } from '../../../shared/filters.js';
import { duration, number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { JOBS_KEY, type Job, useJobs } from './list.js';
import { OnlyNode } from './only-node.js';
import { StateBadge } from './state-badge.js';
import './texts.js';

const filters = { only: oneOfOr(['all', 'failed'], 'all') };

export default function Jobs() {
  const t = useT();
  const query = useJobs();
  const [{ only }, setFilters] = useFilters(filters);
  const [asked, setAsked] = useState<Job>();
  const run = useAction(
    (name: string) => dataOf(api.POST('/v1/admin/jobs/{name}/run', { params: { path: { name } } })),
    {
      changes: [JOBS_KEY],
      onDone: (_done, name) => notifyDone(t('jobs:queued', { name })),
    },
  );
  const start = (name: string) => run.mutate(name);
  const mayRun = query.data?.may_run ?? false;
  const items = (query.data?.items ?? []).filter(({ state }) => only === 'all' || state === 'failed');
  const list = {
    items,
    isPending: query.isPending,
    error: query.error,
    hasNextPage: false,
    isFetchingNextPage: false,
    fetchNextPage: () => undefined,
    refetch: () => void query.refetch(),
  };
  const actions = {
    label: t('jobs:action'),
    width: 130,
    show: (job: Job) => (
      <Button
        size="compact-sm"
        variant="default"
        leftSection={<IconPlayerPlay size={14} />}
        aria-label={t('jobs:runOf', { name: job.name })}
        loading={run.isPending && run.variables === job.name}
        onClick={() => (job.purges ? setAsked(job) : start(job.name))}
      >
        {t('jobs:run')}
      </Button>
    ),
  };
  return (
    <>
      <PageHead title={t('jobs:title')} about={t('jobs:intro')}>
        <SegmentedControl
          size="xs"
          aria-label={t('jobs:only')}
          value={only}
          onChange={(value) => setFilters({ only: value as 'all' | 'failed' })}
          data={[
            { value: 'all', label: t('jobs:all') },
            { value: 'failed', label: t('jobs:failed') },
          ]}
        />
      </PageHead>
      {query.data !== undefined && !mayRun && <OnlyNode>{t('jobs:onlyNode')}</OnlyNode>}
      <DataTable
        label={t('jobs:title')}
        list={list}
        keyOf={({ name }) => name}
        empty={<Empty title={t('jobs:noneFailed')}>{t('jobs:noneFailedAbout')}</Empty>}
        columns={[
          {
            label: t('jobs:name'),
            show: (job) => (
              <Stack gap={0}>
                <Group gap="xs">
                  <Text size="sm" fw={600}>
                    {job.name}
                  </Text>
                  {job.purges && (
                    <Badge size="xs" variant="default" tt="none">
                      {t('jobs:purges')}
                    </Badge>
                  )}
                </Group>
                <Text size="xs" c="dimmed">
                  {t(`jobs:about.${job.name}`, { defaultValue: job.about })}
                </Text>
                {job.error !== null && (
                  <Text size="xs" className="text mono" mt={4}>
                    {job.error}
                  </Text>
                )}
              </Stack>
            ),
          },
          {
            label: t('jobs:schedule'),
            width: 130,
            isMinor: true,
            show: ({ schedule }) => <Code>{schedule}</Code>,
          },
          { label: t('jobs:last'), width: 130, show: ({ started_at: at }) => <When at={at} /> },
          { label: t('jobs:result'), width: 130, show: (job) => <Result job={job} /> },
          {
            label: t('jobs:changed'),
            isNumber: true,
            isMinor: true,
            width: 90,
            show: ({ changed }) => number(changed),
          },
          {
            label: t('jobs:failures'),
            isNumber: true,
            isMinor: true,
            width: 90,
            show: ({ failures, ok_at: okAt }) =>
              failures === 0 ? (
                number(0)
              ) : (
                <Stack gap={0} align="flex-end">
                  {number(failures)}
                  <Text size="xs" c="dimmed">
                    {t('jobs:okAt')}: <When at={okAt} />
                  </Text>
                </Stack>
              ),
          },
          ...(mayRun ? [actions] : []),
        ]}
      />
      <Confirm
        opened={asked !== undefined}
        title={t('jobs:confirm', { name: asked?.name ?? '' })}
        name={asked?.name ?? ''}
        action={t('jobs:run')}
        onConfirm={() => {
          if (asked !== undefined) start(asked.name);
          setAsked(undefined);
        }}
        onClose={() => setAsked(undefined)}
      >
        <Text size="sm">{t('jobs:confirmAbout', { changed: number(asked?.changed ?? 0) })}</Text>
      </Confirm>
    </>
  );
}

const COLORS = { never: 'gray', running: 'blue', ok: 'teal', failed: 'red' } as const;

function Result({ job }: { readonly job: Job }) {
  const t = useT();
  const { state, started_at: from, finished_at: to, more } = job;
  return (
    <Stack gap={2} align="flex-start">
      <StateBadge color={COLORS[state]}>{t(`jobs:state.${state}`)}</StateBadge>
      {from !== null && to !== null && (
        <Text size="xs" c="dimmed">
          {t('jobs:took', { time: duration(to - from) })}
          {more ? ` · ${t('jobs:more')}` : ''}
        </Text>
      )}
    </Stack>
  );
}
