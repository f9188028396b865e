/** Searches posts by their words, in one topic or in all that the reader may read. */
import { Button, Center, Group, Paper, Select, Stack, Text, TextInput } from '@mantine/core';
import { IconSearch } from '@tabler/icons-react';
import type { VerifiedEvent } from 'nostr-tools/pure';
import { useState } from 'react';
import { api, dataOf, useList } from '../../shared/api.js';
import { Empty, Failure, Loading } from '../../shared/components/states.js';
import { textOr, useFilters } from '../../shared/filters.js';
import { useT } from '../../shared/i18n.js';
import { useAbout } from '../community.js';
import { useDirectory, useMine } from '../data.js';
import { Head } from '../parts/head.js';
import { useTopicName } from '../parts/names.js';
import { Post } from '../parts/post.js';
import { SignInFirst } from '../parts/sign-in.js';
import { useMember } from '../session.js';

const filters = {
  q: textOr(''),
  topic: textOr(''),
};

export default function SearchPage() {
  const t = useT();
  const about = useAbout();
  const member = useMember();
  const [{ q, topic }, set] = useFilters(filters);
  const needsTopic = about.data?.topics.mode === 'required';
  const needsKey = about.data?.limitation.auth_required === true && member === undefined;
  return (
    <>
      <Head title={t('home:search')} about={t('home:searchAbout')} />
      {needsKey ? (
        <Paper withBorder p="lg">
          <SignInFirst>{t('home:signInToRead')}</SignInFirst>
        </Paper>
      ) : (
        <Stack>
          <Words key={`${q} ${topic}`} q={q} topic={topic} needsTopic={needsTopic} onSearch={set} />
          {q !== '' && (!needsTopic || topic !== '') && <Results q={q} topic={topic} />}
        </Stack>
      )}
    </>
  );
}

interface WordsProps {
  readonly q: string;
  readonly topic: string;
  readonly needsTopic: boolean;
  readonly onSearch: (wanted: { q: string; topic: string }) => void;
}

function Words({ q, topic, needsTopic, onSearch }: WordsProps) {
  const t = useT();
  const [words, setWords] = useState(q);
  const [chosen, setChosen] = useState(topic);
  const choices = useTopicChoices(topic);
  const isReady = words.trim() !== '' && (!needsTopic || chosen !== '');
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (isReady) onSearch({ q: words.trim(), topic: chosen });
      }}
    >
      <Group align="flex-end" gap="sm">
        <TextInput
          flex={2}
          miw={220}
          label={t('home:words')}
          leftSection={<IconSearch size={16} />}
          maxLength={256}
          autoFocus
          value={words}
          onChange={(event) => setWords(event.currentTarget.value)}
        />
        <Select
          flex={1}
          miw={180}
          label={t('home:inTopic')}
          placeholder={t(needsTopic ? 'home:chooseTopic' : 'home:allTopics')}
          searchable
          clearable={!needsTopic}
          clearButtonProps={{ 'aria-label': t('home:allTopics') }}
          value={chosen === '' ? null : chosen}
          onChange={(value) => setChosen(value ?? '')}
          data={choices}
        />
        <Button type="submit" disabled={!isReady}>
          {t('home:search')}
        </Button>
      </Group>
    </form>
  );
}

/** The topics of the directory and those of the member; also the one of the address. */
function useTopicChoices(topic: string): { value: string; label: string }[] {
  const nameOf = useTopicName();
  const directory = useDirectory();
  const { open } = useMine();
  const names = new Map<string, string>();
  for (const { topic_id, name } of [...directory.items, ...open]) names.set(topic_id, nameOf(topic_id, name));
  if (topic !== '' && !names.has(topic)) names.set(topic, nameOf(topic, null));
  return [...names].map(([value, label]) => ({ value, label }));
}

function Results({ q, topic }: { readonly q: string; readonly topic: string }) {
  const t = useT();
  const reader = useMember()?.pubkey;
  const [deleted, setDeleted] = useState<ReadonlySet<string>>(new Set());
  const list = useList(
    ['search', q, topic, reader],
    (cursor) =>
      dataOf(
        api.GET('/v1/search', {
          params: { query: { q, limit: 20, cursor, ...(topic === '' ? {} : { topic }) } },
        }),
      ),
    { of: `${reader} ${topic} ${q}` },
  );
  if (list.isPending) return <Loading />;
  if (list.isError) return <Failure error={list.error} retry={() => void list.refetch()} />;
  const posts = list.items.map(({ event }) => event as VerifiedEvent).filter(({ id }) => !deleted.has(id));
  return (
    <Stack>
      {posts.length === 0 && <Empty title={t('home:foundNothing')}>{t('home:foundNothingAbout')}</Empty>}
      <Stack gap="sm" role="feed" aria-label={t('home:found')} aria-busy={list.isFetchingNextPage}>
        {posts.map((post) => (
          <Post
            key={post.id}
            post={post}
            topic={topic === '' ? undefined : topic}
            onDeleted={(id) => setDeleted((before) => new Set(before).add(id))}
          />
        ))}
      </Stack>
      <Center>
        {list.hasNextPage ? (
          <Button
            variant="default"
            loading={list.isFetchingNextPage}
            onClick={() => void list.fetchNextPage()}
          >
            {t('shared:more')}
          </Button>
        ) : (
          posts.length > 0 && (
            <Text size="xs" c="dimmed">
              {t('shared:end')}
            </Text>
          )
        )}
      </Center>
    </Stack>
  );
}
