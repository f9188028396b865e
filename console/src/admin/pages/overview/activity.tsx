/** Kinds, topics and authors of the newest events, by their share. */
import { Group, Paper, Progress, SimpleGrid, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { api, dataOf } from '../../../shared/api.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { dateTime, number, percent } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { navigation } from '../../router.js';
import { Someone } from '../../someone.js';
import { useTopicNames } from '../../topic-names.js';

const REFETCH_MS = 60_000;
const SHOWN = 8;
const KNOWN_KINDS = new Set([0, 1, 3, 4, 5, 6, 7, 1_059, 1_984, 1_985, 10_002, 30_023, 30_382]);

export function Activity() {
  const t = useT();
  const query = useQuery({
    queryKey: ['activity'],
    queryFn: () => dataOf(api.GET('/v1/admin/activity')),
    refetchInterval: REFETCH_MS,
  });
  const names = useTopicNames();
  const data = query.data;
  const hasMembers = navigation.some(({ path }) => path === '/members');
  return (
    <section aria-labelledby="activity">
      <Group align="baseline" gap="sm" mb="sm">
        <Title order={2} size="h4" id="activity">
          {t('overview:activity')}
        </Title>
        {data?.since != null && (
          <Text size="xs" c="dimmed">
            {t('overview:activityAbout', { events: number(data.events), since: dateTime(data.since) })}
          </Text>
        )}
      </Group>
      {query.isPending && <Loading />}
      {query.isError && data === undefined && (
        <Failure error={query.error} retry={() => void query.refetch()} />
      )}
      {data?.events === 0 && (
        <Text size="sm" c="dimmed">
          {t('overview:activityNone')}
        </Text>
      )}
      {data !== undefined && data.events > 0 && (
        <SimpleGrid cols={{ base: 1, md: 3 }} spacing="sm">
          <Shares
            title={t('overview:kinds')}
            all={data.events}
            rows={data.kinds.map(({ kind, events }) => ({
              key: String(kind),
              events,
              shown: KNOWN_KINDS.has(kind)
                ? t(`overview:kind.${kind}`)
                : t('overview:otherKind', { kind: String(kind) }),
            }))}
          />
          <Shares
            title={t('overview:topics')}
            all={data.events}
            none={t('overview:noTopics')}
            rows={data.topics.map(({ topic, events }) => ({
              key: topic,
              events,
              shown: names.get(topic) ?? topic,
            }))}
          />
          <Shares
            title={t('overview:authors')}
            all={data.events}
            rows={data.authors.map(({ pubkey, events }) => ({
              key: pubkey,
              events,
              shown: <Someone pubkey={pubkey} {...(hasMembers ? { to: `/members/${pubkey}` } : {})} />,
            }))}
          />
        </SimpleGrid>
      )}
    </section>
  );
}

interface SharesProps {
  readonly title: string;
  readonly all: number;
  readonly rows: readonly { readonly key: string; readonly events: number; readonly shown: ReactNode }[];
  readonly none?: string;
}

function Shares({ title, all, rows, none }: SharesProps) {
  const t = useT();
  return (
    <Paper withBorder p="md">
      <Title order={3} size="h6" mb="sm">
        {title}
      </Title>
      {rows.length === 0 && (
        <Text size="sm" c="dimmed">
          {none}
        </Text>
      )}
      <Stack gap="sm">
        {rows.slice(0, SHOWN).map(({ key, events, shown }) => (
          <div key={key}>
            <Group justify="space-between" wrap="nowrap" gap="sm" mb={4}>
              <Text size="sm" component="div" truncate>
                {shown}
              </Text>
              <Text size="sm" className="number" c="dimmed" fw={500} flex="none">
                {`${number(events)} · ${percent(events / all)}`}
              </Text>
            </Group>
            <Progress
              value={(100 * events) / all}
              size="sm"
              aria-label={`${t('overview:share')}: ${percent(events / all)}`}
            />
          </div>
        ))}
      </Stack>
    </Paper>
  );
}
