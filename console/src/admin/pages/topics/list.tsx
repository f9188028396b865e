/** The list of topics with their sizes; a click opens one (`?topic=`), so that a link to it can be shared. */
import { Anchor, Badge, Button, Group, Stack, Text, Title } from '@mantine/core';
import { IconPlus } from '@tabler/icons-react';
import { api, dataOf, useAction, useList } from '../../../shared/api.js';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { flag, text, useFilters } from '../../../shared/filters.js';
import { bytes, number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { useMay } from '../../session.js';
import { CreateTopic } from './create.js';
import { BLOCKED_KEY, nameOf, TOPICS_KEY, type Topic } from './data.js';
import { TopicDrawer } from './topic.js';
import './texts.js';

const filters = { topic: text, create: flag };

export default function Topics() {
  const t = useT();
  const may = useMay('operator');
  const [{ topic, create = false }, setFilters] = useFilters(filters);
  const list = useList(TOPICS_KEY, (cursor) =>
    dataOf(api.GET('/v1/admin/node-subscriptions', { params: { query: { limit: 100, cursor } } })),
  );
  const columns: Column<Topic>[] = [
    {
      label: t('topics:topic'),
      show: (row) => (
        <Stack gap={0}>
          <Anchor
            component="button"
            type="button"
            size="sm"
            fw={600}
            ta="left"
            onClick={() => setFilters({ topic: row.topic_id })}
          >
            {nameOf(row)}
          </Anchor>
          {row.name !== null && (
            <Text size="xs" c="dimmed" className="mono" truncate maw={{ base: 150, sm: 220 }}>
              {row.topic_id}
            </Text>
          )}
        </Stack>
      ),
    },
    { label: t('topics:state'), show: (row) => <States topic={row} />, isMinor: true },
    { label: t('topics:events'), isNumber: true, show: ({ events }) => number(events) },
    { label: t('topics:size'), isNumber: true, show: (row) => bytes(row.bytes) },
    {
      label: t('topics:subscribers'),
      isNumber: true,
      isMinor: true,
      show: ({ ref_count }) => number(ref_count),
    },
    { label: t('topics:retention'), isMinor: true, show: (row) => <Kept topic={row} /> },
    { label: t('topics:priority'), isNumber: true, isMinor: true, show: ({ priority }) => number(priority) },
    {
      label: t('topics:usage'),
      isNumber: true,
      isMinor: true,
      show: ({ capacity, ingest_policy: { maxEvents, maxBytes } }) =>
        maxEvents === undefined && maxBytes === undefined ? '–' : `${number(capacity.percent)} %`,
    },
  ];
  return (
    <>
      <PageHead title={t('topics:title')} about={t('topics:about')}>
        {may && (
          <Button leftSection={<IconPlus size={16} />} onClick={() => setFilters({ create: true })}>
            {t('topics:create')}
          </Button>
        )}
      </PageHead>
      <DataTable
        label={t('topics:list')}
        list={list}
        columns={columns}
        keyOf={({ topic_id }) => topic_id}
        empty={<Empty title={t('topics:none')}>{t('topics:noneAbout')}</Empty>}
      />
      <Blocked />
      <CreateTopic opened={create} onClose={() => setFilters({ create: undefined })} />
      <TopicDrawer topicId={topic} onClose={() => setFilters({ topic: undefined })} />
    </>
  );
}

function States({ topic }: { readonly topic: Topic }) {
  const t = useT();
  const state = topic.blocked ? 'blocked' : topic.enabled ? 'carried' : 'idle';
  const color = { blocked: 'red', carried: 'teal', idle: 'gray' }[state];
  return (
    <Group gap={4}>
      <Badge variant="dot" color={color} size="sm" tt="none">
        {t(`topics:badge.${state}`)}
      </Badge>
      {topic.pinned && (
        <Badge variant="default" size="sm" tt="none">
          {t('topics:badge.pinned')}
        </Badge>
      )}
      {topic.public && (
        <Badge variant="default" size="sm" tt="none">
          {t('topics:badge.public')}
        </Badge>
      )}
      {topic.capacity.full && (
        <Badge variant="dot" color="red" size="sm" tt="none">
          {t('topics:badge.full')}
        </Badge>
      )}
    </Group>
  );
}

function Kept({ topic }: { readonly topic: Topic }) {
  const t = useT();
  const days = topic.ingest_policy.retentionDays;
  if (days === undefined)
    return (
      <Text size="sm" c="dimmed">
        {t('topics:byDefault')}
      </Text>
    );
  return <Text size="sm">{days === 0 ? t('topics:forever') : t('topics:days', { count: days })}</Text>;
}

/** Also topics that were blocked without ever being carried. */
function Blocked() {
  const t = useT();
  const may = useMay('operator');
  const list = useList(BLOCKED_KEY, (cursor) =>
    dataOf(api.GET('/v1/admin/blocked-topics', { params: { query: { limit: 50, cursor } } })),
  );
  const unblock = useAction(
    (topic_id: string) =>
      dataOf(api.DELETE('/v1/admin/blocked-topics/{topic_id}', { params: { path: { topic_id } } })),
    { changes: [TOPICS_KEY, BLOCKED_KEY], onDone: () => notifyDone(t('topics:unblocked')) },
  );
  if (list.items.length === 0) return null;
  return (
    <Stack mt="xl" gap="xs">
      <Title order={2} size="h4">
        {t('topics:blocked')}
      </Title>
      <DataTable
        label={t('topics:blocked')}
        list={list}
        keyOf={({ topic_id }) => topic_id}
        empty={null}
        columns={[
          {
            label: t('topics:topic'),
            show: ({ topic_id }) => (
              <Text size="sm" className="mono" style={{ overflowWrap: 'anywhere' }}>
                {topic_id}
              </Text>
            ),
          },
          { label: t('topics:reason'), show: ({ reason }) => reason ?? '–' },
          { label: t('topics:since'), isMinor: true, show: ({ created_at }) => <When at={created_at} /> },
          {
            label: t('topics:unblock'),
            show: ({ topic_id }) =>
              may && (
                <Button
                  size="xs"
                  variant="default"
                  loading={unblock.isPending && unblock.variables === topic_id}
                  onClick={() => unblock.mutate(topic_id)}
                >
                  {t('topics:unblock')}
                </Button>
              ),
          },
        ]}
      />
    </Stack>
  );
}
