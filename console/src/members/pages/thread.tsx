/** One conversation: the first post, and under each post its answers. */
import { Stack, Text } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useParams } from '@tanstack/react-router';
import type { VerifiedEvent } from 'nostr-tools/pure';
import { useEffect, useState } from 'react';
import { Empty, Loading } from '../../shared/components/states.js';
import { useT } from '../../shared/i18n.js';
import { useTopic } from '../data.js';
import { parentOf, rootOf, useFeed } from '../feed.js';
import { Refused } from '../parts/feed-view.js';
import { Head } from '../parts/head.js';
import { Go } from '../parts/link.js';
import { useTopicName } from '../parts/names.js';
import { Post } from '../parts/post.js';
import { topicPath } from '../places.js';
import { relay } from '../relay.js';
import { useMember } from '../session.js';

const ID = /^[0-9a-f]{64}$/;

export default function ThreadPage() {
  const t = useT();
  const { topic, post = '' } = useParams({ strict: false }) as { topic?: string; post?: string };
  return (
    <>
      <Head
        title={t('home:conversation')}
        about={topic === undefined ? <ToLatest /> : <ToTopic topic={topic} />}
      />
      {ID.test(post) ? <Found key={post} topic={topic} post={post} /> : <NoPost />}
    </>
  );
}

function ToLatest() {
  const t = useT();
  return <Go to="/latest">{t('home:latest')}</Go>;
}

function ToTopic({ topic }: { readonly topic: string }) {
  const nameOf = useTopicName();
  const { data } = useTopic(topic);
  return <Go to={topicPath(topic)}>{nameOf(topic, data?.name)}</Go>;
}

function NoPost() {
  const t = useT();
  return <Empty title={t('home:noPost')}>{t('home:noPostAbout')}</Empty>;
}

interface FoundProps {
  readonly topic: string | undefined;
  readonly post: string;
}

/** The address may name any post of a conversation. */
function Found({ topic, post }: FoundProps) {
  const reader = useMember()?.pubkey;
  const root = useQuery({
    queryKey: ['root', post, reader],
    queryFn: async () => {
      const [found] = await relay.query([{ ids: [post], ...(topic === undefined ? {} : { '#t': [topic] }) }]);
      return found === undefined ? post : rootOf(found);
    },
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (root.data === undefined) return <Loading />;
  return <Thread topic={topic} root={root.data} named={post} />;
}

interface ThreadProps {
  readonly topic: string | undefined;
  readonly root: string;
  readonly named: string;
}

function Thread({ topic, root, named }: ThreadProps) {
  const t = useT();
  const feed = useFeed(topic, root);
  const [deleted, setDeleted] = useState<ReadonlySet<string>>(new Set());
  const posts = feed.posts.filter(({ id }) => !deleted.has(id));
  const isLoaded = posts.length > 0;
  useEffect(() => {
    if (isLoaded && named !== root)
      document.querySelector(`[data-post="${named}"]`)?.scrollIntoView({ block: 'center' });
  }, [isLoaded, named, root]);
  if (feed.isLoading) return <Loading />;
  if (feed.refusal !== undefined) return <Refused reason={feed.refusal} topic={topic} />;
  if (posts.length === 0) return <NoPost />;
  const first = posts.find(({ id }) => id === root);
  return (
    <Stack gap={0}>
      {first === undefined && (
        <Text size="sm" c="dimmed">
          {t('home:firstMissing')}
        </Text>
      )}
      <Answers
        posts={first === undefined ? rootsOf(posts) : [first]}
        answersOf={answersBy(posts)}
        show={(post) => (
          <Post
            post={post}
            topic={topic}
            isNamed={post.id === named && named !== root}
            onDeleted={(id) => setDeleted((before) => new Set(before).add(id))}
          />
        )}
      />
    </Stack>
  );
}

const oldestFirst = (a: VerifiedEvent, b: VerifiedEvent) =>
  a.created_at - b.created_at || (a.id < b.id ? -1 : 1);

/** Those whose parent is not here. */
function rootsOf(posts: readonly VerifiedEvent[]): VerifiedEvent[] {
  const known = new Set(posts.map(({ id }) => id));
  return posts.filter((post) => !known.has(parentOf(post) ?? '')).sort(oldestFirst);
}

/** The answers to each post. One whose parent is not here answers the first post. */
function answersBy(posts: readonly VerifiedEvent[]): (id: string) => readonly VerifiedEvent[] {
  const known = new Set(posts.map(({ id }) => id));
  const by = new Map<string, VerifiedEvent[]>();
  for (const post of [...posts].sort(oldestFirst)) {
    const parent = parentOf(post) ?? '';
    const under = known.has(parent) ? parent : rootOf(post);
    if (under !== post.id) by.set(under, [...(by.get(under) ?? []), post]);
  }
  return (id) => by.get(id) ?? [];
}

interface AnswersProps {
  readonly posts: readonly VerifiedEvent[];
  readonly answersOf: (id: string) => readonly VerifiedEvent[];
  readonly show: (post: VerifiedEvent) => React.ReactNode;
}

function Answers({ posts, answersOf, show }: AnswersProps) {
  return (
    <ul className="answers">
      {posts.map((post) => (
        <li key={post.id} className="answer">
          {show(post)}
          {answersOf(post.id).length > 0 && (
            <Answers posts={answersOf(post.id)} answersOf={answersOf} show={show} />
          )}
        </li>
      ))}
    </ul>
  );
}
