/** Public routes about topics: which ones this community carries, and the id of a name. */
import { LRUCache } from 'lru-cache';
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { accessOf } from '../api/reading.js';
import { type Denial, denial } from '../api/rules-errors.js';
import { pageOf, pageQuery, showPage } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import { isRefusal } from '../events/rules/reply.js';
import type { Page, PageOf } from '../postgres/page.js';
import { type DirectoryEntry, readCarriage, readDirectory } from './node-topics.sql.js';
import { gossipTopic, normaliseName, topicId } from './rules-id.js';
import { topicIdText } from './schemas.js';

export interface TopicOptions {
  readonly pool: Pool;
  /** Hashed in front of every topic name when its id is made. */
  readonly networkId: string;
}

const VERSION = 'v1' as const;
const DIRECTORY_MS = 10_000;

export function topicRoutes({ pool, networkId }: TopicOptions): Route[] {
  const directory = cachedDirectory(pool);
  return [
    route({
      method: 'GET',
      url: '/topics',
      summary: 'The directory: topics that this community carries',
      description: 'With required authentication, only public topics. The list may be up to ten seconds old.',
      tags: ['topics'],
      who: 'public',
      query: pageQuery,
      response: pageOf(
        z.strictObject({
          topic_id: topicIdText,
          name: z.string().nullable(),
          public: z.boolean().describe('True when it needs no subscription'),
          subscribers: z.number().int(),
          events: z.number().int(),
        }),
      ),
      errors: [],
      handler: async ({ community, query }) =>
        showPage(await directory(community, query), ({ topic, ...shown }) => ({ topic_id: topic, ...shown })),
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
function cachedDirectory(pool: Pool) {
  type Read = Promise<Page<DirectoryEntry> | Denial>;
  const cached = new LRUCache<string, { readonly of: Community; readonly page: Read }>({
    max: 1_000,
    ttl: DIRECTORY_MS,
  });
  return (community: Community, { limit, cursor }: PageOf): Read => {
    const publicOnly = community.settings['auth.mode'] === 'required';
    const key = JSON.stringify([community.id, limit, cursor]);
    const known = cached.get(key);
    // A community object is replaced when its topics or settings change.
    if (known?.of === community) return known.page;
    const page = readDirectory(pool, { community: community.id, publicOnly }, { limit, cursor });
    cached.set(key, { of: community, page });
    page.catch(() => cached.delete(key));
    return page;
  };
}

export function badName(path: string, refused: unknown) {
  const message = isRefusal(refused) ? refused.why : 'not a topic name';
  return denial('INVALID_REQUEST', { problems: [{ path, message }] });
}
