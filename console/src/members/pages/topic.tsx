/** One topic: read and post. */
import { Group, Text } from '@mantine/core';
import { IconUsers } from '@tabler/icons-react';
import { useParams } from '@tanstack/react-router';
import { Copy } from '../../shared/components/copy.js';
import { useT } from '../../shared/i18n.js';
import { useMine, useTopic } from '../data.js';
import { FeedView } from '../parts/feed-view.js';
import { Head } from '../parts/head.js';
import { Go } from '../parts/link.js';
import { useTopicName } from '../parts/names.js';
import { TopicState } from '../parts/topic-state.js';

export default function TopicPage() {
  const t = useT();
  const { topic = '' } = useParams({ strict: false }) as { topic?: string };
  const { data } = useTopic(topic);
  const { open, all } = useMine();
  const nameOf = useTopicName();
  const known = [...open, ...all].find(({ topic_id, name }) => topic_id === topic && name !== null)?.name;
  const title = nameOf(topic, data?.name ?? known);
  return (
    <>
      <Head
        title={title}
        about={
          <Group gap="md">
            {data !== undefined && (
              <Group gap={4}>
                <IconUsers size={15} aria-hidden />
                <Text size="sm">{t('home:subscribers', { count: data.subscribers })}</Text>
              </Group>
            )}
            <Group gap={2}>
              <Text size="sm">{t('home:topicId')}</Text>
              <Copy value={topic} label={t('home:copyTopicId')} />
            </Group>
            <Go to={`/search?topic=${encodeURIComponent(topic)}`}>{t('home:searchHere')}</Go>
          </Group>
        }
      >
        <TopicState topic={topic} />
      </Head>
      <FeedView key={topic} topic={topic} />
    </>
  );
}
