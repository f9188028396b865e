/** Topics, for everyone: which ones this community carries, and which id a name has. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { denial } from '../core/errors.js';
import { isRefusal } from '../core/reply.js';
import { gossipTopic, normaliseName, topicId } from '../core/topic-id.js';
import { readCarriage, readDirectory, readNodeTopic } from '../store/node-topics.js';
import { type Route, route } from './contract.js';
import { pageOf, pageQuery, showPage, topicIdText } from './schemas.js';

export interface TopicOptions {
  readonly pool: Pool;
  /** Stands in front of every topic name when its id is made. */
  readonly networkId: string;
}

const VERSION = 'v1' as const;

export function topicRoutes({ pool, networkId }: TopicOptions): Route[] {
  return [
    route({
      method: 'GET',
      url: '/topics',
      summary: 'The directory: topics that are carried here',
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
        showPage(await readDirectory(pool, community.id, query), ({ topic, ...shown }) => ({
          topic_id: topic,
          ...shown,
        })),
    }),
    route({
      method: 'GET',
      url: '/topics/resolve',
      summary: 'The id of a topic name',
      description:
        'The name is normalised (NFKC, trimmed, lower case) and hashed with the id of the network in front. A name that is an id already is taken as it is.',
      tags: ['topics'],
      who: 'public',
      query: z.strictObject({ name: z.string().min(1).max(4_096) }),
      response: z.strictObject({
        name: z.string(),
        normalized: z.string(),
        topic_id: topicIdText,
        gossip_topic: z.string().describe('32 bytes, hex'),
        version: z.literal(VERSION),
        enabled: z.boolean().describe('Carried here'),
        public: z.boolean().describe('Whether it needs no subscription'),
        blocked: z.boolean().describe('Not allowed by the operator'),
      }),
      errors: [],
      handler: async ({ community, query: { name } }) => {
        const namespace = community.settings['topic.namespace'];
        const id = topicId(name, { networkId, namespace, version: VERSION });
        const normalized = normaliseName(name);
        if (isRefusal(id) || isRefusal(normalized)) return badName('querystring/name', id);
        const { enabled, blocked } = await readCarriage(pool, community.id, id);
        return {
          name,
          normalized,
          topic_id: id,
          gossip_topic: Buffer.from(gossipTopic(id, namespace)).toString('hex'),
          version: VERSION,
          enabled,
          public: (await readNodeTopic(pool, community.id, id))?.public ?? false,
          blocked,
        };
      },
    }),
  ];
}

export function badName(path: string, refused: unknown) {
  const message = isRefusal(refused) ? refused.why : 'not a topic name';
  return denial('INVALID_REQUEST', { problems: [{ path, message }] });
}
