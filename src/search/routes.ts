/**
 * Search over HTTP, by the same rules and the same code as a REQ with `search` (NIP-50): it finds what the
 * signing key may read. A signed request is counted in the plan of its key. Where clients need not
 * authenticate, requests need not be signed.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { isUnavailable } from '../api/answer.js';
import { type Route, route } from '../api/contract.js';
import { accessOf } from '../api/reading.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { pageOf, pubkey } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import { type Access, refuseFilterAccess, seenBy } from '../events/rules/access.js';
import { type Filter, parseFilter } from '../events/rules/filter.js';
import { findCost, type QueryCost, QueryNotRun } from '../events/rules/query-cost.js';
import { isRefusal } from '../events/rules/reply.js';
import { Counts } from '../limits/counts.js';
import type { ClientAddress } from '../port/client-address.js';
import { refuseFilterTopic } from '../topics/rules.js';
import { topicIdText } from '../topics/schemas.js';
import { SEARCH_LENGTH_MAX } from './rules.js';
import { type FoundItem, type PagePools, SearchTooLong, searchPage } from './search.sql.js';

const ITEMS = 20;
const ITEMS_MAX = 100;
/** Waiting and running searches of this process, and those of one network (for IPv6 a /48). */
const SEARCHES_MAX = 100;
const SEARCHES_PER_NETWORK_MAX = 10;

export interface SearchOptions {
  readonly search: PagePools;
  /**
   * Runs a query when the queue allows it, so that one client cannot block the others (relay/query-gate.ts).
   * The query gets the connections of its class. A client that has used more than its share gets
   * `QueryNotRun`.
   */
  readonly inSlot: <T>(asker: HttpClient, cost: QueryCost, query: (pool: Pool) => Promise<T>) => Promise<T>;
}

export interface HttpClient {
  readonly client: ClientAddress;
  readonly community: Community;
}

/** The seven fields of an event. */
export const nostrEvent = z.strictObject({
  id: z.string(),
  pubkey,
  created_at: z.number().int(),
  kind: z.number().int(),
  tags: z.array(z.array(z.string())),
  content: z.string(),
  sig: z.string(),
});

const found = z.strictObject({
  event: nostrEvent,
  score: z.number().describe('Computed from the words, the age, and the number of events that refer to it'),
});

const index = z.strictObject({
  behind: z.number().int().describe('Number of changes that the result does not include; usually 0'),
  rebuilding: z
    .boolean()
    .describe('True while the index is rebuilt with new rules: older posts may be missing'),
});

function show({ payload, score }: FoundItem): z.output<typeof found> {
  return { event: JSON.parse(payload) as z.output<typeof found>['event'], score };
}

export function searchRoutes({ search, inSlot }: SearchOptions): Route[] {
  let underWay = 0;
  const ofNetwork = new Counts<string>();
  const count = (network: string, more: 1 | -1) => {
    underWay += more;
    ofNetwork.add(network, more);
  };
  const isFull = ({ networkKey, isLoopback }: ClientAddress) =>
    underWay >= SEARCHES_MAX || (!isLoopback && ofNetwork.of(networkKey) >= SEARCHES_PER_NETWORK_MAX);
  return [
    route({
      method: 'GET',
      url: '/search',
      summary: 'Search for posts, the best first',
      description: ABOUT,
      tags: ['search'],
      who: 'reader',
      needsConsent: true,
      counts: 'search',
      query: z.strictObject({
        q: z.string().min(1).max(SEARCH_LENGTH_MAX).describe('Words, "phrases", -excluded, #hashtags'),
        topic: topicIdText.optional().describe('Required where every filter needs a topic'),
        limit: z.coerce
          .number()
          .int()
          .min(1)
          .max(ITEMS_MAX)
          .default(ITEMS)
          .describe('Maximum number of items in a page'),
        cursor: z.string().max(2_000).optional().describe('next_cursor of the previous page'),
      }),
      response: pageOf(found).extend({ index }),
      errors: [
        'TOPIC_NOT_ENABLED',
        'TOPIC_BLOCKED',
        'SUBSCRIPTION_REQUIRED',
        'SEARCH_NOT_READY',
        'UNAVAILABLE',
      ],
      handler: async ({ community, client, pubkey: reader, query: { q, topic, limit, cursor }, now }) => {
        const parsed = filterOf(community, q, topic);
        if (isDenial(parsed)) return parsed;
        const access = await accessOf(search.pool, community, reader);
        const refused = refuseAccess(community, parsed, access, topic);
        if (refused !== undefined) return refused;
        const filter = seenBy(parsed, access, community);
        if (isFull(client)) return denial('RATE_LIMITED', { retry_after_seconds: 1 });
        count(client.networkKey, 1);
        try {
          const page = await inSlot({ client, community }, findCost(filter, limit), (pool) =>
            searchPage({ ...search, pool }, community, filter, { limit, cursor, now }),
          );
          if (isDenial(page)) return page;
          return {
            items: page.items.map(show),
            next_cursor: page.nextCursor ?? null,
            index: { behind: page.behind, rebuilding: page.isOutdated },
          };
        } catch (error) {
          if (error instanceof SearchTooLong || isUnavailable(error)) return denial('UNAVAILABLE');
          return orNotRun(error);
        } finally {
          count(client.networkKey, -1);
        }
      },
    }),
  ];
}

/** A query that could not run is answered with RATE_LIMITED; any other error is thrown again. */
export function orNotRun(error: unknown): Denial {
  if (!(error instanceof QueryNotRun)) throw error;
  return denial('RATE_LIMITED', { retry_after_seconds: Math.ceil(error.retryAfterMs / 1_000) });
}

const ABOUT = `A post must have all words. Put a phrase in quotes; put - before a word that the post must not
have. The result is the same as for a REQ with \`search\`: posts of kinds with text (\`search.kinds\`), no
private kinds, and where clients must authenticate only posts of public topics and of topics that you
subscribe to. Later pages continue in the order of the first. A signed request uses one search of the plan
of its key; where clients need not authenticate, requests need not be signed.`;

/** The filter that a REQ would have, or the reason why that REQ would be closed. */
function filterOf(community: Community, q: string, topic: string | undefined): Filter | Denial {
  const input = { search: q, ...(topic === undefined ? {} : { '#t': [topic] }) };
  const filter = parseFilter(input, community.settings);
  if (isRefusal(filter)) return invalid('q', filter.why);
  if (filter.search === undefined) return invalid('q', 'there is nothing to search for');
  return refuseTopic(community, filter, topic) ?? filter;
}

function refuseTopic(community: Community, filter: Filter, topic: string | undefined): Denial | undefined {
  const refused = refuseFilterTopic(filter, community.settings, community.topics);
  if (refused === undefined) return undefined;
  if (topic === undefined) return invalid('topic', refused.why);
  const isBlocked = community.topics.get(topic)?.blocked;
  return denial(isBlocked ? 'TOPIC_BLOCKED' : 'TOPIC_NOT_ENABLED', { topic_id: topic });
}

/** Refuses a signed request for a topic that needs a subscription. An unsigned one finds nothing there. */
function refuseAccess(
  community: Community,
  filter: Filter,
  access: Access,
  topic: string | undefined,
): Denial | undefined {
  if (topic === undefined || access.pubkeys.size === 0) return undefined;
  const refused = refuseFilterAccess(filter, access, community);
  return refused && denial('SUBSCRIPTION_REQUIRED', { topic_id: topic });
}

function invalid(name: string, message: string): Denial {
  return denial('INVALID_REQUEST', { problems: [{ path: `querystring/${name}`, message }] });
}
