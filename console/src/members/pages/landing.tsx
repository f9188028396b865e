/** What this community is, its topics with their activity, and how to connect a client. */
import { Badge, Button, Code, Group, Paper, Stack, Text, TextInput, Title } from '@mantine/core';
import { IconHash, IconKey, IconLock, IconMessages, IconUsers } from '@tabler/icons-react';
import { useState } from 'react';
import { ApiError } from '../../shared/api.js';
import { Copy } from '../../shared/components/copy.js';
import { Empty, Failure, Loading } from '../../shared/components/states.js';
import { When } from '../../shared/components/when.js';
import { number } from '../../shared/format.js';
import { useT } from '../../shared/i18n.js';
import { relayUrl } from '../../shared/place.js';
import { notifyDone } from '../../shared/providers.js';
import { useAbout } from '../community.js';
import { type Topic, useAsk, useDirectory } from '../data.js';
import { useTitle } from '../parts/head.js';
import { Go } from '../parts/link.js';
import { useTopicName } from '../parts/names.js';
import { Qr } from '../parts/qr.js';
import { useSignIn } from '../parts/sign-in.js';
import { TermsDialog } from '../parts/terms.js';
import { TopicState } from '../parts/topic-state.js';
import { topicPath } from '../places.js';
import { useMember } from '../session.js';

/** The most posts that the node counts. */
const COUNTED_MAX = 500;

export function Landing() {
  const t = useT();
  const about = useAbout();
  const member = useMember();
  const open = useSignIn();
  useTitle(about.data?.name ?? 'Minato');
  if (about.isPending) return <Loading />;
  if (about.isError) return <Failure error={about.error} retry={() => void about.refetch()} />;
  const { name, description, limitation, topics } = about.data;
  return (
    <Stack gap="xl">
      <Paper className="hero" p={{ base: 'lg', sm: 'xl' }} radius="lg">
        <Stack gap="sm" align="flex-start">
          <Title order={1} className="text">
            {name}
          </Title>
          <Text className="text" maw={620}>
            {description}
          </Text>
          <Group gap="xs">
            {member === undefined && (
              <Button onClick={open} leftSection={<IconKey size={16} />}>
                {t('home:signIn')}
              </Button>
            )}
            {topics.mode !== 'required' && (
              <Go to="/latest" className="plain-link">
                <Button component="span" variant="default" leftSection={<IconMessages size={16} />}>
                  {t('home:latest')}
                </Button>
              </Go>
            )}
          </Group>
          {limitation.auth_required && member === undefined && <Text size="sm">{t('home:membersOnly')}</Text>}
        </Stack>
      </Paper>
      <Topics />
      <Connect mode={topics.mode} />
    </Stack>
  );
}

function Topics() {
  const t = useT();
  const member = useMember();
  const directory = useDirectory();
  const busiestFirst = [...directory.items].sort(
    (a, b) => b.posts_week - a.posts_week || (b.last_post_at ?? 0) - (a.last_post_at ?? 0),
  );
  return (
    <Stack component="section" aria-labelledby="topics">
      <Group justify="space-between">
        <Title order={2} size="h3" id="topics">
          {t('home:topics')}
        </Title>
      </Group>
      {directory.isPending && <Loading />}
      {directory.isError && <Failure error={directory.error} retry={() => void directory.refetch()} />}
      {directory.isSuccess && directory.items.length === 0 && (
        <Empty title={t('home:noTopics')}>{t('home:noTopicsAbout')}</Empty>
      )}
      <Stack gap="xs" component="ul" p={0} m={0} style={{ listStyle: 'none' }}>
        {busiestFirst.map((topic) => (
          <TopicRow key={topic.topic_id} topic={topic} />
        ))}
      </Stack>
      {directory.hasNextPage && (
        <Button
          variant="default"
          loading={directory.isFetchingNextPage}
          onClick={() => void directory.fetchNextPage()}
        >
          {t('shared:more')}
        </Button>
      )}
      {member !== undefined && <AskByName />}
    </Stack>
  );
}

function TopicRow({ topic }: { readonly topic: Topic }) {
  const t = useT();
  const nameOf = useTopicName();
  const counted = (posts: number) => (posts >= COUNTED_MAX ? `${number(COUNTED_MAX)}+` : number(posts));
  return (
    <Paper component="li" withBorder px="md" py="sm">
      <Group justify="space-between" wrap="nowrap" gap="sm">
        <Stack gap={2} miw={0}>
          <Go to={topicPath(topic.topic_id)} className="plain-link">
            <Group gap={6} wrap="nowrap">
              <IconHash size={16} aria-hidden />
              <Text fw={600} truncate className="name">
                {nameOf(topic.topic_id, topic.name)}
              </Text>
              {!topic.public && <IconLock size={14} aria-label={t('home:notPublic')} role="img" />}
            </Group>
          </Go>
          <Group gap="sm" c="dimmed">
            <Text size="xs" className="number">
              {t('home:postsWeek', { posts: counted(topic.posts_week) })}
            </Text>
            {topic.last_post_at !== null && (
              <Text size="xs">
                {t('home:lastPost')} <When at={topic.last_post_at} />
              </Text>
            )}
            <Group gap={4}>
              <IconUsers size={13} aria-hidden />
              <Text size="xs" className="number">
                {t('home:subscribers', { count: topic.subscribers })}
              </Text>
            </Group>
            {topic.posts_day > 0 && (
              <Badge size="sm" variant="light">
                {t('home:postsDay', { posts: counted(topic.posts_day) })}
              </Badge>
            )}
          </Group>
        </Stack>
        <TopicState topic={topic.topic_id} />
      </Group>
    </Paper>
  );
}

function AskByName() {
  const t = useT();
  const [name, setName] = useState('');
  const [needsTerms, setNeedsTerms] = useState(false);
  const ask = useAsk(() => {
    setName('');
    notifyDone(t('home:asked'));
  });
  const send = () =>
    ask.mutate(
      { name: name.trim() },
      { onError: (error) => setNeedsTerms(error instanceof ApiError && error.code === 'CONSENT_REQUIRED') },
    );
  return (
    <Paper withBorder p="md">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (name.trim() !== '') send();
        }}
      >
        <Group align="flex-end" gap="sm">
          <TextInput
            flex={1}
            miw={200}
            label={t('home:askByName')}
            description={t('home:askByNameAbout')}
            maxLength={256}
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
          />
          <Button type="submit" loading={ask.isPending} disabled={name.trim() === ''}>
            {t('home:ask')}
          </Button>
        </Group>
      </form>
      <TermsDialog opened={needsTerms} onClose={() => setNeedsTerms(false)} onAgreed={send} />
    </Paper>
  );
}

function Connect({ mode }: { readonly mode: 'required' | 'default' | 'open' }) {
  const t = useT();
  return (
    <Stack component="section" aria-labelledby="connect">
      <Title order={2} size="h3" id="connect">
        {t('home:connect')}
      </Title>
      <Paper withBorder p="lg">
        <Group align="flex-start" gap="lg">
          <Qr text={relayUrl} label={t('home:qrLabel', { address: relayUrl })} />
          <Stack flex={1} miw={220} gap="xs">
            <Text size="sm">{t('home:connectAbout')}</Text>
            <Group gap={6} wrap="nowrap">
              <Code fz="sm" className="text">
                {relayUrl}
              </Code>
              <Copy value={relayUrl} label={t('home:copyAddress')} />
            </Group>
            <Text size="sm" c="dimmed">
              {t(`home:mode.${mode}`)}
            </Text>
          </Stack>
        </Group>
      </Paper>
    </Stack>
  );
}
