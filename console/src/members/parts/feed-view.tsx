/** A list of posts with its composer; older posts come with a button. */
import { Alert, Button, Center, Paper, Stack, Text } from '@mantine/core';
import { IconInfoCircle } from '@tabler/icons-react';
import type { VerifiedEvent } from 'nostr-tools/pure';
import { useEffect, useState } from 'react';
import { Empty, Loading } from '../../shared/components/states.js';
import { useT } from '../../shared/i18n.js';
import { parentOf, useFeed } from '../feed.js';
import { relay } from '../relay.js';
import { useMember } from '../session.js';
import { Composer } from './composer.js';
import { Post } from './post.js';
import { SignInFirst } from './sign-in.js';
import { Agreeing } from './terms.js';
import { TopicState } from './topic-state.js';

export function FeedView({ topic }: { readonly topic: string | undefined }) {
  const t = useT();
  const member = useMember();
  const feed = useFeed(topic);
  const [deleted, setDeleted] = useState<ReadonlySet<string>>(new Set());
  const posts = feed.posts.filter(({ id }) => !deleted.has(id));
  const parents = useParents(posts);
  if (feed.isLoading) return <Loading />;
  if (feed.refusal !== undefined) return <Refused reason={feed.refusal} topic={topic} />;
  return (
    <Stack>
      {member === undefined ? (
        <Paper withBorder p="md">
          <SignInFirst>{t('home:signInToPost')}</SignInFirst>
        </Paper>
      ) : (
        <Paper withBorder p="md">
          <Composer topic={topic} />
        </Paper>
      )}
      {posts.length === 0 ? (
        <Empty title={t('home:noPosts')}>{t('home:noPostsAbout')}</Empty>
      ) : (
        <Stack gap="sm" role="feed" aria-label={t('home:posts')} aria-busy={feed.isLoadingOlder}>
          {posts.map((post) => (
            <Post
              key={post.id}
              post={post}
              topic={topic}
              parent={parents.get(parentOf(post) ?? '')}
              onDeleted={(id) => setDeleted((before) => new Set(before).add(id))}
            />
          ))}
        </Stack>
      )}
      <Center>
        {feed.hasOlder ? (
          <Button variant="default" loading={feed.isLoadingOlder} onClick={feed.loadOlder}>
            {t('home:older')}
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

/** The answered posts: those of the list, and others of the node, each asked for once. */
function useParents(posts: readonly VerifiedEvent[]): ReadonlyMap<string, VerifiedEvent> {
  const [others, setOthers] = useState<ReadonlyMap<string, VerifiedEvent | undefined>>(new Map());
  const own = new Map(posts.map((post) => [post.id, post]));
  const missing = [...new Set(posts.map(parentOf))].filter(
    (id): id is string => id !== undefined && !own.has(id) && !others.has(id),
  );
  const key = missing.join(' ');
  useEffect(() => {
    if (key === '') return;
    const ids = key.split(' ').filter((id) => /^[0-9a-f]{64}$/.test(id));
    const topics = [
      ...new Set(posts.flatMap(({ tags }) => tags.filter(([n]) => n === 't').map(([, v]) => v!))),
    ];
    // In a community where every filter names topics, so does this one.
    const filter = { ids, ...(topics.length === 0 ? {} : { '#t': topics.slice(0, 20) }) };
    void relay.query([filter]).then((found) => {
      const byId = new Map(found.map((event) => [event.id, event]));
      setOthers((before) => new Map([...before, ...key.split(' ').map((id) => [id, byId.get(id)] as const)]));
    });
  }, [key]);
  const known = new Map(own);
  for (const [id, event] of others) if (event !== undefined) known.set(id, event);
  return known;
}

/** Why the node shows nothing, and what to do about it. */
export function Refused({ reason, topic }: { readonly reason: string; readonly topic: string | undefined }) {
  const t = useT();
  const member = useMember();
  if (reason.startsWith('auth-required:') && member === undefined)
    return (
      <Paper withBorder p="lg">
        <SignInFirst>{t('home:signInToRead')}</SignInFirst>
      </Paper>
    );
  if (reason === 'restricted: consent required')
    return (
      <Stack>
        <Alert icon={<IconInfoCircle size={18} />}>{t('home:termsFirst')}</Alert>
        <Agreeing />
      </Stack>
    );
  const isNotEnabled = reason.startsWith('restricted: topic not enabled');
  return (
    <Paper withBorder p="lg">
      <Stack align="flex-start">
        <Text size="sm">{t(isNotEnabled ? 'home:notCarried' : 'home:needsSubscription')}</Text>
        <Text size="xs" c="dimmed" className="mono">
          {reason}
        </Text>
        {topic !== undefined && <TopicState topic={topic} />}
      </Stack>
    </Paper>
  );
}
