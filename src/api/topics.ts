/** Topics, for everyone: which ones this community carries, and which id a name has. */
import { LRUCache } from 'lru-cache';
import type { Pool } from 'pg';
import { z } from 'zod';
import type { Community } from '../communities.js';
import { type Denial, denial } from '../core/errors.js';
import { isRefusal } from '../core/reply.js';
import { gossipTopic, normaliseName, topicId } from '../core/topic-id.js';
import { type DirectoryEntry, readCarriage, readDirectory } from '../store/node-topics.js';
import type { Page, PageOf } from '../store/page.js';
import { type Route, route } from './contract.js';
import { accessOf } from './reading.js';
import { pageOf, pageQuery, showPage, topicIdText } from './schemas.js';

export interface TopicOptions {
  readonly pool: Pool;
  /** Stands in front of every topic name when its id is made. */
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
      summary: 'The directory: topics that are carried here',
      description:
        'Where clients must authenticate, only those that are open to everybody. Up to ten seconds old.',
      tags: ['topics'],
      who: 'public',
      query: pageQuery,
      response: pageOf(
        z.strictObject({
          topic_id: topicIdText,
          name: z.string().nullable(),
          public: z.boolean().describe('Whether it needs no subscription'),
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
        'The name is normalised (NFKC, trimmed, lower case) and hashed with the id of the network in front. A name that is an id already is taken as it is. Nobody has to sign; where clients must authenticate, only its subscribers and operators learn that a topic is carried that is not public.',
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
        enabled: z.boolean().describe('Carried here, as far as you may know'),
        public: z.boolean().describe('Whether it needs no subscription'),
        blocked: z.boolean().describe('Not allowed by the operator'),
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

/** That a topic is carried which not everybody may read is for those who may, as in the directory. */
async function mayKnow(
  pool: Pool,
  community: Community,
  topic: string,
  isPublic: boolean,
  reader: string | undefined,
): Promise<boolean> {
  const { enforced, subscribed } = await accessOf(pool, community, reader);
  const isOperator = reader !== undefined && community.operators.has(reader);
  return !enforced || isPublic || isOperator || subscribed.has(topic);
}

/** Anybody may ask, and subscribers are counted: so each page is read once in a while, however many ask. */
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
    // With other topics or settings it is another directory.
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
