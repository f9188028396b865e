/** Public routes about topics: which ones this community carries, how busy they are, and the id of a name. */
import { LRUCache } from 'lru-cache';
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { accessOf } from '../api/reading.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, showPage } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import { isRefusal } from '../events/rules/reply.js';
import type { EventStore } from '../events/store.js';
import { POSTS_COUNTED_MAX, type TopicActivity } from '../events/stored-events.js';
import type { Page, PageOf } from '../postgres/page.js';
import { type DirectoryEntry, readCarriage, readDirectory, readDirectoryEntry } from './node-topics.sql.js';
import { isTopic } from './rules.js';
import { gossipTopic, normaliseName, topicId } from './rules-id.js';
import { topicIdText } from './schemas.js';

export interface TopicOptions {
  readonly pool: Pool;
  /** Hashed in front of every topic name when its id is made. */
  readonly networkId: string;
}

export interface DirectoryOptions extends TopicOptions {
  /** For reading events. */
  readonly search: { readonly pool: Pool };
  readonly events: Pick<EventStore, 'stored'>;
}

const VERSION = 'v1' as const;
const DIRECTORY_MS = 10_000;
const ACTIVITY_MS = 60_000;

const COUNTED = `counted up to ${POSTS_COUNTED_MAX}; the count may be a minute old`;
const posts = (days: string) => z.number().int().describe(`Posts of the last ${days}, ${COUNTED}`);
const listedTopic = z.strictObject({
  topic_id: topicIdText,
  name: z.string().nullable(),
  public: z.boolean().describe('True when it needs no subscription'),
  subscribers: z.number().int(),
  events: z.number().int(),
  posts_day: posts('24 hours'),
  posts_week: posts('7 days'),
  last_post_at: milliseconds.nullable().describe('By the time in the post'),
});

type Listed = DirectoryEntry & TopicActivity;

function showListed({ topic, postsDay, postsWeek, lastPostAt, ...same }: Listed) {
  return {
    topic_id: topic,
    ...same,
    posts_day: postsDay,
    posts_week: postsWeek,
    last_post_at: lastPostAt === null ? null : lastPostAt * 1_000,
  };
}

export function topicRoutes(options: DirectoryOptions): Route[] {
  const { pool, networkId } = options;
  const activity = cachedActivity(options);
  const directory = cachedDirectory(pool, activity);
  return [
    route({
      method: 'GET',
      url: '/topics',
      summary: 'The directory: topics that this community carries',
      description: 'With required authentication, only public topics. The list may be up to ten seconds old.',
      tags: ['topics'],
      who: 'public',
      query: pageQuery,
      response: pageOf(listedTopic),
      errors: [],
      handler: async ({ community, query, now }) =>
        showPage(await directory(community, query, now), showListed),
    }),
    route({
      method: 'GET',
      url: '/topics/:topic_id',
      summary: 'One topic that this community carries',
      description:
        'With required authentication, a private topic is shown only to its subscribers and to those with ' +
        'a role in the community.',
      tags: ['topics'],
      who: 'reader',
      signingOptional: true,
      params: z.strictObject({ topic_id: topicIdText }),
      response: listedTopic,
      errors: ['NOT_FOUND'],
      handler: async ({ community, pubkey: reader, params: { topic_id }, now }) => {
        if (!isTopic(topic_id)) return denial('NOT_FOUND');
        const entry = await readDirectoryEntry(pool, community.id, topic_id);
        if (entry === undefined || !(await mayKnow(pool, community, topic_id, entry.public, reader)))
          return denial('NOT_FOUND');
        const [listed] = await activity(community, [entry], now);
        return showListed(listed!);
      },
    }),
    route({
      method: 'GET',
      url: '/topics/resolve',
      summary: 'The id of a topic name',
      description:
        'The name is normalised (NFKC, trimmed, lower case) and hashed together with the id of the ' +
        'network. A name that is an id already is used as it is. No signature is needed. With required ' +
        'authentication, only its subscribers and those with a role in the community learn that a private ' +
        'topic is carried.',
      tags: ['topics'],
      who: 'reader',
      signingOptional: true,
      query: z.strictObject({ name: z.string().min(1).max(4_096) }),
      response: z.strictObject({
        name: z.string(),
        normalized: z.string(),
        topic_id: topicIdText,
        gossip_topic: z.string().describe('32 bytes, hex'),
        version: z.literal(VERSION),
        enabled: z.boolean().describe('Whether it is carried here; false also when you may not know'),
        public: z.boolean().describe('True when it needs no subscription'),
        blocked: z.boolean().describe('Blocked by the operator'),
      }),
      errors: [],
      handler: async ({ community, pubkey: reader, query: { name } }) => {
        const namespace = community.settings['topic.namespace'];
        const id = topicId(name, { networkId, namespace, version: VERSION });
        const normalized = normaliseName(name);
        if (isRefusal(id) || isRefusal(normalized)) return badName('querystring/name', id);
        const carriage = await readCarriage(pool, community.id, id);
        const isKnown = await mayKnow(pool, community, id, carriage.public, reader);
        return {
          name,
          normalized,
          topic_id: id,
          gossip_topic: Buffer.from(gossipTopic(id, namespace)).toString('hex'),
          version: VERSION,
          ...carriage,
          enabled: carriage.enabled && isKnown,
        };
      },
    }),
  ];
}

/** Only those who may read a topic learn that it is carried, as in the directory. */
async function mayKnow(
  pool: Pool,
  community: Community,
  topic: string,
  isPublic: boolean,
  reader: string | undefined,
): Promise<boolean> {
  const { enforced, subscribed } = await accessOf(pool, community, reader);
  const hasRole = reader !== undefined && community.operators.has(reader);
  return !enforced || isPublic || hasRole || subscribed.has(topic);
}

/** Anybody may request the directory, and counting subscribers is expensive. So each page is cached. */
function cachedDirectory(pool: Pool, activity: ReturnType<typeof cachedActivity>) {
  type Read = Promise<Page<Listed> | Denial>;
  const cached = new LRUCache<string, { readonly of: Community; readonly page: Read }>({
    max: 1_000,
    ttl: DIRECTORY_MS,
  });
  const read = async (community: Community, page: PageOf, now: number) => {
    const publicOnly = community.settings['auth.mode'] === 'required';
    const found = await readDirectory(pool, { community: community.id, publicOnly }, page);
    return isDenial(found) ? found : { ...found, items: await activity(community, found.items, now) };
  };
  return (community: Community, { limit, cursor }: PageOf, now: number): Read => {
    const key = JSON.stringify([community.id, limit, cursor]);
    const known = cached.get(key);
    // A community object is replaced when its topics or settings change.
    if (known?.of === community) return known.page;
    const page = read(community, { limit, cursor }, now);
    cached.set(key, { of: community, page });
    page.catch(() => cached.delete(key));
    return page;
  };
}

/** Adds the activity of topics, which is read at most once a minute for each topic. */
function cachedActivity({ search: { pool }, events: { stored } }: DirectoryOptions) {
  const cached = new LRUCache<string, TopicActivity>({ max: 10_000, ttl: ACTIVITY_MS });
  return async (
    community: Community,
    entries: readonly DirectoryEntry[],
    now: number,
  ): Promise<readonly Listed[]> => {
    const keyOf = (topic: string) => `${community.id} ${topic}`;
    const topics = entries.map(({ topic }) => topic).filter((topic) => !cached.has(keyOf(topic)));
    const wanted = { community: community.id, topics, rules: community, now };
    const found = topics.length === 0 ? undefined : await stored.topicActivity(pool, wanted);
    for (const [topic, known] of found ?? []) cached.set(keyOf(topic), known);
    return entries.map((entry) => ({
      ...entry,
      ...(found?.get(entry.topic) ?? cached.get(keyOf(entry.topic)) ?? QUIET),
    }));
  };
}

const QUIET: TopicActivity = { postsDay: 0, postsWeek: 0, lastPostAt: null };

export function badName(path: string, refused: unknown) {
  const message = isRefusal(refused) ? refused.why : 'not a topic name';
  return denial('INVALID_REQUEST', { problems: [{ path, message }] });
}
