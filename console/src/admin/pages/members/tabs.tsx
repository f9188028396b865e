/** What the node knows about one member, tab by tab. Each tab reads its lists when it is opened. */
import { Anchor, Button, Card, Group, Progress, SimpleGrid, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { api, dataOf, type Page, useAction, useList } from '../../../shared/api.js';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { bytes, date, number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { Someone } from '../../someone.js';
import { useTopicNames } from '../../topic-names.js';
import '../cases/texts.js';

interface Of {
  readonly pubkey: string;
}

interface SectionProps<T> {
  readonly title: string;
  readonly name: string;
  readonly pubkey: string;
  readonly read: (cursor: string | undefined) => Promise<Page<T>>;
  readonly columns: readonly Column<T>[];
  readonly keyOf: (row: T) => string;
  readonly empty: string;
  readonly refetchInterval?: number;
}

/** A list under a heading of its own. */
function Section<T>({ title, name, pubkey, read, columns, keyOf, empty, refetchInterval }: SectionProps<T>) {
  const options = refetchInterval === undefined ? {} : { refetchInterval };
  const list = useList(['members', 'one', pubkey, name], read, options);
  return (
    <section>
      <Title order={2} size="h5" mb="xs">
        {title}
      </Title>
      <DataTable
        label={title}
        list={list}
        columns={columns}
        keyOf={keyOf}
        empty={
          <Text size="sm" c="dimmed">
            {empty}
          </Text>
        }
      />
    </section>
  );
}

const shorten = (id: string) => (id.length <= 28 ? id : `${id.slice(0, 18)}…${id.slice(-6)}`);
const mono = (text: string) => (
  <span className="mono" title={text}>
    {shorten(text)}
  </span>
);

export function Topics({ pubkey }: Of) {
  const t = useT();
  const names = useTopicNames();
  return (
    <Stack gap="xl">
      <Section
        name="subscriptions"
        pubkey={pubkey}
        title={t('members:subscriptions')}
        empty={t('members:noSubscriptions')}
        read={(cursor) =>
          dataOf(
            api.GET('/v1/admin/members/{pubkey}/topic-subscriptions', {
              params: { path: { pubkey }, query: { cursor } },
            }),
          )
        }
        keyOf={({ subscription_id }) => subscription_id}
        columns={[
          { label: t('members:topic'), show: ({ topic_id }) => names.get(topic_id) ?? mono(topic_id) },
          { label: t('members:status'), show: ({ status }) => t(`members:subscription.${status}`) },
          { label: t('members:started'), isMinor: true, show: ({ started_at }) => <When at={started_at} /> },
          { label: t('members:ended'), isMinor: true, show: ({ ended_at }) => <When at={ended_at} /> },
        ]}
      />
      <Section
        name="requests"
        pubkey={pubkey}
        title={t('members:requests')}
        empty={t('members:noRequests')}
        read={(cursor) =>
          dataOf(api.GET('/v1/admin/topic-subscription-requests', { params: { query: { pubkey, cursor } } }))
        }
        keyOf={({ request_id }) => request_id}
        columns={[
          { label: t('members:topic'), show: ({ name, topic_id }) => name ?? mono(topic_id) },
          { label: t('members:status'), show: ({ status }) => t(`members:request.${status}`) },
          { label: t('members:asked'), isMinor: true, show: ({ created_at }) => <When at={created_at} /> },
          { label: t('members:note'), isMinor: true, show: ({ review_note }) => review_note ?? '–' },
        ]}
      />
    </Stack>
  );
}

const METRICS = ['search', 'trust', 'reports', 'exports'] as const;

export function Usage({ pubkey }: Of) {
  const t = useT();
  const plan = useQuery({
    queryKey: ['members', 'one', pubkey, 'plan'],
    queryFn: () => dataOf(api.GET('/v1/admin/members/{pubkey}/plan', { params: { path: { pubkey } } })),
  });
  const today = new Date().toISOString().slice(0, 10);
  const used = useQuery({
    queryKey: ['members', 'one', pubkey, 'today'],
    queryFn: () => dataOf(api.GET('/v1/admin/usage', { params: { query: { pubkey, day: today } } })),
  });
  if (plan.isPending || used.isPending) return <Loading />;
  if (plan.isError) return <Failure error={plan.error} retry={() => void plan.refetch()} />;
  if (used.isError) return <Failure error={used.error} retry={() => void used.refetch()} />;
  const { name, until, limits } = plan.data;
  const usedOf = (metric: string) => used.data.items.find((row) => row.metric === metric)?.used ?? 0;
  return (
    <Stack gap="xl">
      <section>
        <Title order={2} size="h5" mb={4}>
          {t('members:planNow', { name })}
        </Title>
        <Text size="sm" c="dimmed" mb="md">
          {until === null ? t('members:planForever') : t('members:planUntil', { date: date(until) })}
        </Text>
        <SimpleGrid cols={{ base: 1, xs: 2, md: 4 }}>
          {METRICS.map((metric) => (
            <Meter
              key={metric}
              label={t(`members:metric.${metric}`)}
              used={usedOf(metric)}
              limit={limits[`${metric}_per_day`]}
            />
          ))}
        </SimpleGrid>
      </section>
      <Section
        name="usage"
        pubkey={pubkey}
        title={t('members:usageByDay')}
        empty={t('members:noUsage')}
        read={(cursor) => dataOf(api.GET('/v1/admin/usage', { params: { query: { pubkey, cursor } } }))}
        keyOf={({ day, metric }) => `${day} ${metric}`}
        columns={[
          { label: t('members:day'), show: ({ day }) => date(Date.parse(day)) },
          { label: t('members:what'), show: ({ metric }) => t(`members:metric.${metric}`) },
          { label: t('members:used'), isNumber: true, show: (row) => number(row.used) },
        ]}
      />
    </Stack>
  );
}

interface MeterProps {
  readonly label: string;
  readonly used: number;
  readonly limit: number | null;
}

function Meter({ label, used, limit }: MeterProps) {
  const t = useT();
  const share = limit === null || limit === 0 ? 0 : Math.min(100, (100 * used) / limit);
  const text =
    limit === null
      ? t('members:usedOfAny', { used: number(used) })
      : t('members:usedOf', { used: number(used), limit: number(limit) });
  return (
    <Card withBorder p="sm">
      <Text size="sm">{label}</Text>
      <Text size="sm" className="number" fw={600} mb={6}>
        {text}
      </Text>
      <Progress value={share} aria-label={`${label}: ${text}`} color={share >= 90 ? 'orange' : undefined} />
    </Card>
  );
}

export function Consents({ pubkey }: Of) {
  const t = useT();
  return (
    <Section
      name="consents"
      pubkey={pubkey}
      title={t('members:tabs.consents')}
      empty={t('members:noConsents')}
      read={(cursor) => dataOf(api.GET('/v1/admin/consents', { params: { query: { pubkey, cursor } } }))}
      keyOf={({ consent_id }) => consent_id}
      columns={[
        { label: t('members:text'), show: ({ type }) => t(`members:policy.${type}`) },
        { label: t('members:version'), show: ({ version }) => version },
        { label: t('members:language'), isMinor: true, show: ({ locale }) => locale },
        { label: t('members:agreed'), show: ({ consented_at }) => <When at={consented_at} /> },
        {
          label: t('members:withdrawn'),
          isMinor: true,
          show: ({ withdrawn_at }) => <When at={withdrawn_at} />,
        },
      ]}
    />
  );
}

export function Moderation({ pubkey }: Of) {
  const t = useT();
  return (
    <Stack gap="xl">
      <Section
        name="cases"
        pubkey={pubkey}
        title={t('members:cases')}
        empty={t('members:noCases')}
        read={(cursor) =>
          dataOf(api.GET('/v1/admin/moderation/cases', { params: { query: { author: pubkey, cursor } } }))
        }
        keyOf={({ case_id }) => case_id}
        columns={[
          {
            label: t('members:case'),
            show: ({ case_id, target_event }) => (
              <Anchor component={Link} to={`/cases/${case_id}`} size="sm">
                {t(target_event === null ? 'members:casePerson' : 'members:caseEvent')}
              </Anchor>
            ),
          },
          { label: t('members:status'), show: ({ status }) => t(`members:caseStatus.${status}`) },
          { label: t('members:opened'), show: ({ opened_at }) => <When at={opened_at} /> },
          { label: t('members:reports'), isNumber: true, show: ({ reports }) => number(reports) },
        ]}
      />
      <Reports pubkey={pubkey} about />
      <Reports pubkey={pubkey} />
    </Stack>
  );
}

function Reports({ pubkey, about = false }: Of & { readonly about?: boolean }) {
  const t = useT();
  return (
    <Section
      name={about ? 'reports-about' : 'reports-by'}
      pubkey={pubkey}
      title={t(about ? 'members:reportsAbout' : 'members:reportsBy')}
      empty={t('members:noReports')}
      read={(cursor) => {
        const query = about ? { target_pubkey: pubkey, cursor } : { pubkey, cursor };
        return dataOf(api.GET('/v1/admin/reports', { params: { query } }));
      }}
      keyOf={({ report_id }) => report_id}
      columns={[
        {
          label: t(about ? 'members:reporter' : 'members:reported'),
          show: ({ reporter_pubkey, target_pubkey }) => {
            const other = about ? reporter_pubkey : target_pubkey;
            return other === null ? '–' : <Someone pubkey={other} to={`/members/${other}`} />;
          },
        },
        { label: t('members:reason'), show: ({ reason }) => t(`cases:reasons.${reason}`) },
        { label: t('members:comment'), isMinor: true, show: ({ comment }) => comment || '–' },
        { label: t('members:asked'), show: ({ created_at }) => <When at={created_at} /> },
      ]}
    />
  );
}

const POLL_MS = 3_000;

export function PersonalData({ pubkey }: Of) {
  const t = useT();
  const link = useAction(
    (request_id: string) =>
      dataOf(
        api.POST('/v1/admin/members/{pubkey}/personal-data-exports/{request_id}/link', {
          params: { path: { pubkey, request_id } },
        }),
      ),
    { changes: [], onDone: ({ download_url }) => location.assign(new URL(download_url).href) },
  );
  const end = useAction(
    () => dataOf(api.DELETE('/v1/admin/operators/{pubkey}/sessions', { params: { path: { pubkey } } })),
    {
      changes: [['members', 'one', pubkey]],
      onDone: ({ ended }) => notifyDone(t('members:sessionsEnded', { count: ended })),
    },
  );
  const sessions = (): Promise<Page<{ session_id: string; created_at: number; expires_at: number }>> =>
    dataOf(api.GET('/v1/admin/operators/{pubkey}/sessions', { params: { path: { pubkey } } })).then(
      ({ items }) => ({ items, next_cursor: null }),
    );
  return (
    <Stack gap="xl">
      <Section
        name="personal"
        pubkey={pubkey}
        title={t('members:dataRequests')}
        empty={t('members:noDataRequests')}
        refetchInterval={POLL_MS}
        read={(cursor) =>
          dataOf(api.GET('/v1/admin/personal-data-requests', { params: { query: { pubkey, cursor } } }))
        }
        keyOf={({ request_id }) => request_id}
        columns={[
          { label: t('members:what'), show: ({ kind }) => t(`members:dataKind.${kind}`) },
          { label: t('members:status'), show: ({ status }) => t(`members:dataStatus.${status}`) },
          { label: t('members:asked'), isMinor: true, show: ({ created_at }) => <When at={created_at} /> },
          {
            label: t('members:file'),
            show: ({ kind, status, request_id, bytes: size }) =>
              kind === 'export' && status === 'ready' ? (
                <Button
                  size="compact-sm"
                  variant="default"
                  loading={link.isPending}
                  onClick={() => link.mutate(request_id)}
                >
                  {t('members:download', { size: bytes(size) })}
                </Button>
              ) : (
                '–'
              ),
          },
        ]}
      />
      <Section
        name="erasures"
        pubkey={pubkey}
        title={t('members:erasures')}
        empty={t('members:noErasures')}
        refetchInterval={POLL_MS}
        read={(cursor) => dataOf(api.GET('/v1/admin/erasures', { params: { query: { pubkey, cursor } } }))}
        keyOf={({ erasure_id }) => erasure_id}
        columns={[
          { label: t('members:asked'), show: ({ requested_at }) => <When at={requested_at} /> },
          { label: t('members:stage'), show: ({ stage }) => t(`members:stages.${stage}`) },
          { label: t('members:canCancel'), show: ({ grace_until }) => <When at={grace_until} /> },
        ]}
      />
      <Section
        name="sessions"
        pubkey={pubkey}
        title={t('members:sessions')}
        empty={t('members:noSessions')}
        read={sessions}
        keyOf={({ session_id }) => session_id}
        columns={[
          { label: t('members:started'), show: ({ created_at }) => <When at={created_at} /> },
          { label: t('members:expires'), show: ({ expires_at }) => <When at={expires_at} /> },
        ]}
      />
      <Group>
        <Button variant="default" size="xs" loading={end.isPending} onClick={() => end.mutate(undefined)}>
          {t('members:endSessions')}
        </Button>
      </Group>
    </Stack>
  );
}

/** A number with its name, for a summary. */
export function Amount({ label, children }: { readonly label: string; readonly children: ReactNode }) {
  return (
    <Group justify="space-between" wrap="nowrap">
      <Text size="sm">{label}</Text>
      <Text size="sm" className="number" fw={600}>
        {children}
      </Text>
    </Group>
  );
}
