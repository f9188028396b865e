/** The member's subscriptions and requests, plan and usage, and a place for an invite. */
import { Badge, Button, Group, Paper, Progress, Stack, Table, Text, Title } from '@mantine/core';
import { type ReactNode, useState } from 'react';
import { Confirm } from '../../shared/components/confirm.js';
import { Empty, Failure, Loading } from '../../shared/components/states.js';
import { When } from '../../shared/components/when.js';
import { date, dateTime, number } from '../../shared/format.js';
import { useT } from '../../shared/i18n.js';
import { notifyDone } from '../../shared/providers.js';
import {
  type Subscription,
  type TopicRequest,
  useCancelRequest,
  useMine,
  useStep,
  useUsage,
} from '../data.js';
import { Go } from '../parts/link.js';
import { useTopicName } from '../parts/names.js';
import { Own } from '../parts/own.js';
import { topicPath } from '../places.js';
import { CodeForm } from './join.js';

export default function Me() {
  const t = useT();
  return (
    <Own title={t('home:mine')} about={t('home:mineAbout')}>
      <Stack gap="xl">
        <Subscriptions />
        <Requests />
        <Usage />
        <Section title={t('home:invite')}>
          <Paper withBorder p="md">
            <CodeForm />
          </Paper>
        </Section>
      </Stack>
    </Own>
  );
}

function Section({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  return (
    <Stack component="section" gap="sm">
      <Title order={2} size="h4">
        {title}
      </Title>
      {children}
    </Stack>
  );
}

function Subscriptions() {
  const t = useT();
  const { subscriptions, open } = useMine();
  const [ending, setEnding] = useState<Subscription>();
  const nameOf = useTopicName();
  const step = useStep();
  const end = useStep(() => {
    setEnding(undefined);
    notifyDone(t('home:ended'));
  });
  return (
    <Section title={t('home:subscriptions')}>
      {subscriptions.isPending && <Loading />}
      {subscriptions.isError && (
        <Failure error={subscriptions.error} retry={() => void subscriptions.refetch()} />
      )}
      {subscriptions.isSuccess && open.length === 0 && (
        <Empty title={t('home:noSubscriptions')} action={<Go to="/">{t('home:toTopics')}</Go>}>
          {t('home:noSubscriptionsAbout')}
        </Empty>
      )}
      {open.map((each) => (
        <Paper key={each.subscription_id} withBorder px="md" py="sm">
          <Group justify="space-between" gap="sm">
            <Stack gap={2} miw={0}>
              <Group gap="xs">
                <Go to={topicPath(each.topic_id)} className="plain-link">
                  <Text fw={600} className="name">
                    {nameOf(each.topic_id, each.name)}
                  </Text>
                </Go>
                <Badge color={each.status === 'active' ? 'teal.9' : 'gray.7'} size="sm">
                  {t(`home:status.${each.status}`)}
                </Badge>
              </Group>
              <Text size="xs" c="dimmed">
                {t('home:since', { date: date(each.started_at) })}
              </Text>
            </Stack>
            <Group gap="xs">
              <Button
                size="xs"
                variant="default"
                onClick={() =>
                  step.mutate({ topic: each.topic_id, step: each.status === 'active' ? 'pause' : 'resume' })
                }
              >
                {t(each.status === 'active' ? 'home:pause' : 'home:resume')}
              </Button>
              <Button size="xs" variant="default" onClick={() => setEnding(each)}>
                {t('home:end')}
              </Button>
            </Group>
          </Group>
        </Paper>
      ))}
      <Confirm
        opened={ending !== undefined}
        title={t('home:endTitle', { topic: ending ? nameOf(ending.topic_id, ending.name) : '' })}
        action={t('home:end')}
        isBusy={end.isPending}
        onConfirm={() => ending && end.mutate({ topic: ending.topic_id, step: 'end' })}
        onClose={() => setEnding(undefined)}
      >
        <Text size="sm">{t('home:endAbout')}</Text>
      </Confirm>
    </Section>
  );
}

const STATUS_COLORS: Readonly<Record<TopicRequest['status'], string>> = {
  pending: 'indigo.8',
  approved: 'teal.9',
  active: 'teal.9',
  rejected: 'red.9',
  cancelled: 'gray.7',
};

function Requests() {
  const t = useT();
  const { requests, all, open } = useMine();
  const nameOf = useTopicName();
  const cancel = useCancelRequest();
  if (requests.isError) return <Failure error={requests.error} retry={() => void requests.refetch()} />;
  if (all.length === 0) return null;
  return (
    <Section title={t('home:requests')}>
      {all.map((each) => (
        <Paper key={each.request_id} withBorder px="md" py="sm">
          <Group justify="space-between" gap="sm">
            <Stack gap={2} miw={0}>
              <Group gap="xs">
                <Text fw={600}>
                  {nameOf(
                    each.topic_id,
                    each.name ?? open.find(({ topic_id }) => topic_id === each.topic_id)?.name,
                  )}
                </Text>
                <Badge color={STATUS_COLORS[each.status]} size="sm">
                  {t(`home:requestStatus.${each.status}`)}
                </Badge>
              </Group>
              <Text size="xs" c="dimmed">
                <When at={each.reviewed_at ?? each.created_at} />
              </Text>
              {each.review_note !== null && (
                <Text size="sm" className="text">
                  {t('home:note', { note: each.review_note })}
                </Text>
              )}
            </Stack>
            {each.status === 'pending' && (
              <Button size="xs" variant="default" onClick={() => cancel.mutate(each.request_id)}>
                {t('home:cancelRequest')}
              </Button>
            )}
          </Group>
        </Paper>
      ))}
    </Section>
  );
}

function Usage() {
  const t = useT();
  const usage = useUsage();
  if (usage.isPending) return <Loading />;
  if (usage.isError) return <Failure error={usage.error} retry={() => void usage.refetch()} />;
  const { plan, topics, metrics } = usage.data;
  const reset = metrics[0]?.reset_at;
  const rows = [
    { key: 'topics', used: topics.current, limit: topics.limit },
    ...metrics.map(({ metric, used, limit }) => ({ key: metric, used, limit })),
  ] as const;
  return (
    <Section title={t('home:usage')}>
      <Paper withBorder p="md">
        <Group justify="space-between" mb="xs">
          <Text fw={600}>{t('home:plan', { name: plan.name })}</Text>
          <Text size="xs" c="dimmed">
            {plan.until === null ? '' : t('home:planUntil', { date: date(plan.until) })}
          </Text>
        </Group>
        <Table verticalSpacing={6}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t('home:metric')}</Table.Th>
              <Table.Th ta="right">{t('home:used')}</Table.Th>
              <Table.Th w="35%" visibleFrom="xs">
                {t('home:share')}
              </Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.map(({ key, used, limit }) => (
              <Table.Tr key={key}>
                <Table.Td>{t(`home:metrics.${key}`)}</Table.Td>
                <Table.Td ta="right" className="number">
                  {limit === null
                    ? number(used)
                    : t('home:ofLimit', { used: number(used), limit: number(limit) })}
                </Table.Td>
                <Table.Td visibleFrom="xs">
                  {limit !== null && (
                    <Progress
                      value={limit === 0 ? 100 : Math.min(100, (used / limit) * 100)}
                      aria-label={t(`home:metrics.${key}`)}
                    />
                  )}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
        {reset !== undefined && (
          <Text size="xs" c="dimmed" mt="xs">
            {t('home:resets', { time: dateTime(reset) })}
          </Text>
        )}
      </Paper>
    </Section>
  );
}
