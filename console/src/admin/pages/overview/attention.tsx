/** What an operator should look at first. What is fine is not shown. */
import { Anchor, Group, Paper, SimpleGrid, Stack, Text, ThemeIcon, Title } from '@mantine/core';
import { IconAlertTriangle, IconCircleCheck, IconClockHour4, IconInfoCircle } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { api, dataOf } from '../../../shared/api.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { date, number, relative } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { navigation } from '../../router.js';

const REFETCH_MS = 30_000;
/** A limit that is met later than this needs nobody now. */
const SOON_MS = 30 * 86_400_000;

function useOverview() {
  return useQuery({
    queryKey: ['overview'],
    queryFn: () => dataOf(api.GET('/v1/admin/overview')),
    refetchInterval: REFETCH_MS,
  });
}
type Data = NonNullable<ReturnType<typeof useOverview>['data']>;

/** What waits for a person, and the page where it is done. */
const WAITING = {
  erasure_alarms: '/erasures',
  requests: '/requests',
  cases_open: '/cases',
  cases_held: '/held',
  appeals: '/cases',
  erasures: '/erasures',
} as const;

export function Attention() {
  const t = useT();
  const query = useOverview();
  return (
    <section aria-labelledby="attention">
      <Title order={2} size="h4" mb="sm" id="attention">
        {t('overview:attention')}
      </Title>
      {query.isPending ? (
        <Loading />
      ) : query.data === undefined ? (
        <Failure error={query.error} retry={() => void query.refetch()} />
      ) : (
        <Found data={query.data} />
      )}
    </section>
  );
}

function Found({ data }: { readonly data: Data }) {
  const t = useT();
  const waiting = Object.entries(WAITING).flatMap(([name, to]) => {
    const of = name as keyof typeof WAITING;
    const found = data[of];
    const bounded = typeof found === 'number' ? { count: found, more: false } : found;
    return bounded.count === 0 ? [] : [{ of, to, ...bounded }];
  });
  const problems = problemsOf(data, t);
  if (waiting.length === 0 && problems.length === 0)
    return (
      <Paper withBorder p="md">
        <Group gap="md" wrap="nowrap">
          <ThemeIcon size={40} radius="xl" variant="light" color="teal">
            <IconCircleCheck size={24} />
          </ThemeIcon>
          <div>
            <Text fw={600}>{t('overview:nothing')}</Text>
            <Text size="sm" c="dimmed">
              {t('overview:nothingAbout')}
            </Text>
          </div>
        </Group>
      </Paper>
    );
  return (
    <Stack gap="sm">
      {waiting.length > 0 && (
        <SimpleGrid cols={{ base: 1, xs: 2, lg: 4 }} spacing="sm">
          {waiting.map(({ of, to, count, more }) => (
            <Paper key={of} withBorder p="md">
              <Group justify="space-between" wrap="nowrap" align="center">
                <div>
                  <Text size="xl" fw={650} className="number">
                    {more ? t('overview:moreThan', { most: number(count) }) : number(count)}
                  </Text>
                  <Text size="sm">{t(`overview:waiting.${of}`)}</Text>
                </div>
                <To path={to} label={`${t('overview:show')}: ${t(`overview:waiting.${of}`)}`} />
              </Group>
            </Paper>
          ))}
        </SimpleGrid>
      )}
      {problems.map(({ key, color, icon, title, text, to }) => (
        <Paper key={key} withBorder p="md">
          <Group justify="space-between" wrap="nowrap" gap="md">
            <Group gap="md" wrap="nowrap" align="flex-start">
              <ThemeIcon size={36} radius="xl" variant="light" color={color}>
                {icon}
              </ThemeIcon>
              <div>
                <Text fw={600}>{title}</Text>
                <Text size="sm" c="dimmed" className="text" maw={720}>
                  {text}
                </Text>
              </div>
            </Group>
            {to !== undefined && <To path={to} label={`${t('overview:show')}: ${title}`} />}
          </Group>
        </Paper>
      ))}
    </Stack>
  );
}

/** A link, if the console has this page and the role may see it. */
function To({ path, label }: { readonly path: string; readonly label: string }) {
  const t = useT();
  const first = `/${path.split('/')[1]}`;
  if (!navigation.some((entry) => entry.path === first)) return null;
  return (
    <Anchor component={Link} to={path} size="sm" fw={600} aria-label={label} underline="always">
      {t('overview:show')}
    </Anchor>
  );
}

interface Problem {
  readonly key: string;
  readonly color: 'red' | 'orange' | 'blue';
  readonly icon: ReactNode;
  readonly title: string;
  readonly text: string;
  readonly to?: string;
}

const SERIOUS = { color: 'red', icon: <IconAlertTriangle size={20} /> } as const;
const WARNING = { color: 'orange', icon: <IconInfoCircle size={20} /> } as const;
const LATER = { color: 'blue', icon: <IconClockHour4 size={20} /> } as const;

function problemsOf(data: Data, t: ReturnType<typeof useT>): Problem[] {
  const { disk_level: disk, space_step: space, lag_step: lag, percent } = data.capacity;
  const now = Date.now();
  return [
    ...(disk === 0
      ? []
      : [
          {
            ...SERIOUS,
            key: 'disk',
            title: t(`overview:disk.step${disk}`),
            text: t('overview:diskAdvice'),
            to: '/storage',
          },
        ]),
    ...(space === 0
      ? []
      : [
          {
            ...(space === 3 ? SERIOUS : WARNING),
            key: 'space',
            title: t(`overview:space.step${space}`),
            text: t('overview:spaceUsed', { percent }),
            to: '/storage',
          },
        ]),
    ...(lag === 0
      ? []
      : [{ ...WARNING, key: 'lag', title: t(`overview:lag.step${lag}`), text: '', to: '/consumers' }]),
    ...data.jobs.map(({ name, failed_at: at, failures, error }) => ({
      ...WARNING,
      key: `job ${name}`,
      title: t('overview:jobFailed', { name }),
      text: [t('overview:jobFailures', { times: failures, when: relative(at) }), error ?? '']
        .join('\n')
        .trim(),
      to: '/jobs',
    })),
    ...data.consumers.map(({ name, problems }) => ({
      ...WARNING,
      key: `consumer ${name}`,
      title: t('overview:consumer', { name }),
      text: problems.map((problem) => t(`overview:problem.${problem}`)).join('\n'),
      to: `/consumers/${name}`,
    })),
    ...(data.findings ?? []).map(({ level, text, advice }) => ({
      ...(level === 'fail' ? SERIOUS : WARNING),
      key: `finding ${text}`,
      title: t('overview:finding'),
      text: [text, advice ?? ''].join('\n').trim(),
    })),
    ...data.forecasts.flatMap(({ of, full_at: at }) =>
      at === null || at - now > SOON_MS
        ? []
        : [
            {
              ...LATER,
              key: `forecast ${of}`,
              title: t(`overview:forecast.${of}`, { when: relative(at) }),
              text: t('overview:forecastAbout', { date: date(at) }),
              to: '/storage',
            },
          ],
    ),
  ];
}
