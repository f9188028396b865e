/**
 * Search over HTTP, by the same rules as a REQ that searches (NIP-50): what is found is what the key that signs may read, and it
 * comes from the same reading. A key that signs pays with its plan; where nobody has to authenticate, nobody has to sign.
 */
import { z } from 'zod';
import type { ClientAddress } from '../client-address.js';
import type { Community } from '../communities.js';
import { type Access, refuseFilterAccess, seenBy } from '../core/access.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { type Filter, parseFilter } from '../core/filter.js';
import { isRefusal } from '../core/reply.js';
import { SEARCH_LENGTH_MAX } from '../core/search.js';
import { refuseFilterTopic } from '../core/topic.js';
import { type FoundItem, type PagePools, SearchTooLong, searchPage } from '../store/search.js';
import { isUnavailable } from './answer.js';
import { type Route, route } from './contract.js';
import { accessOf } from './reading.js';
import { pageOf, pubkey, topicIdText } from './schemas.js';

const ITEMS = 20;
const ITEMS_MAX = 100;
/** Searches of this process that wait for their turn or are under way. */
const SEARCHES_MAX = 100;

export interface SearchOptions {
  readonly search: PagePools;
  /** Queries of clients follow one another, so that none stands in the way of all. */
  readonly inTurn: <T>(client: ClientAddress, query: () => Promise<T>) => Promise<T>;
}

const found = z.strictObject({
  event: z.strictObject({
    id: z.string(),
    pubkey,
    created_at: z.number().int(),
    kind: z.number().int(),
    tags: z.array(z.array(z.string())),
    content: z.string(),
    sig: z.string(),
  }),
  score: z.number().describe('The words, how fresh it is, and how often others refer to it'),
});

const index = z.strictObject({
  behind: z.number().int().describe('Changes that the answer could not take into account; 0 as a rule'),
  rebuilding: z.boolean().describe('True while words are indexed by new rules: older posts may be missing'),
});

function show({ payload, score }: FoundItem): z.output<typeof found> {
  return { event: JSON.parse(payload) as z.output<typeof found>['event'], score };
}

export function searchRoutes({ search, inTurn }: SearchOptions): Route[] {
  let underWay = 0;
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
        topic: topicIdText.optional().describe('Needed where every filter needs a topic'),
        limit: z.coerce.number().int().min(1).max(ITEMS_MAX).default(ITEMS).describe('Most items of a page'),
        cursor: z.string().max(2_000).optional().describe('next_cursor of the page before'),
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
        const asked = filterOf(community, q, topic);
        if (isDenial(asked)) return asked;
        const access = await accessOf(search.pool, community, reader);
        const refused = refuseAccess(community, asked, access, topic);
        if (refused !== undefined) return refused;
        const filter = seenBy(asked, access, community);
        if (underWay >= SEARCHES_MAX) return denial('RATE_LIMITED', { retry_after_seconds: 1 });
        underWay += 1;
        try {
          const page = await inTurn(client, () =>
            searchPage(search, community, filter, { limit, cursor, now }),
          );
          if (isDenial(page)) return page;
          return {
            items: page.items.map(show),
            next_cursor: page.nextCursor ?? null,
            index: { behind: page.behind, rebuilding: page.isOutdated },
          };
        } catch (error) {
          if (error instanceof SearchTooLong || isUnavailable(error)) return denial('UNAVAILABLE');
          throw error;
        } finally {
          underWay -= 1;
        }
      },
    }),
  ];
}

const ABOUT = `All words are needed; a phrase stands in quotes, and a word with - before it must not be there. What is found is the same as for a REQ with
\`search\`: posts of kinds with text (\`search.kinds\`), no private ones, and where clients must authenticate only those of public topics and of topics that you subscribe to. Later pages go on in
the order of the first. A key that signs uses one search of its plan; where clients need not authenticate nobody has to sign.`;

/** What a REQ would ask, or why it would be closed. */
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

/** While nobody has to sign yet, what needs a subscription is not found; who names such a topic hears of it. */
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
