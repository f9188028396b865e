/** Stored events over HTTP, for operators: found by what they are, and who is served each of them. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { isUnavailable } from '../api/answer.js';
import { type Route, route } from '../api/contract.js';
import { denial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage } from '../api/schemas.js';
import { isHex64, KIND_MAX } from '../events/rules/event.js';
import { pubkeyOf } from '../events/rules/public-key-text.js';
import type { EventStore } from '../events/store.js';
import type { StoredEvents } from '../events/stored-events.js';
import { eventId } from '../reports/routes.js';
import { nostrEvent, orNotRun, type SearchOptions } from '../search/routes.js';
import { SEARCH_LENGTH_MAX } from '../search/rules.js';
import { SearchTooLong } from '../search/search.sql.js';
import { topicIdText } from '../topics/schemas.js';
import { parseNamed } from './event-name.js';
import { type FoundStored, findStored } from './finder.js';
import { readReaders, type SeenBy } from './readers.js';
import { CONCEALED, STATES } from './rules-finder.js';
import { READERS, UNSEEN } from './rules-readers.js';

export interface FinderOptions extends Pick<SearchOptions, 'search' | 'inSlot'> {
  readonly pool: Pool;
  readonly events: Pick<EventStore, 'stored'>;
}

const KINDS_MAX = 20;
const seconds = z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER);

/** A public key as people write it. */
const person = z
  .string()
  .max(1_000)
  .transform((text) => (isHex64(text) ? text : pubkeyOf(text)) ?? '')
  .refine((key) => key !== '', { error: 'must be a public key: hex, or npub1…' });

const query = pageQuery.extend({
  id: z
    .string()
    .max(2_000)
    .transform((text, context) => {
      const named = parseNamed(text.trim());
      if (named === undefined) context.addIssue('must be 64 hex characters, note1…, nevent1… or naddr1…');
      return named ?? z.NEVER;
    })
    .optional()
    .describe('One event in any state: hex, note, nevent; or the versions at an naddr'),
  author: person.optional().describe('Hex, npub or nprofile'),
  topic: topicIdText.optional(),
  kind: z
    .string()
    .regex(/^\d{1,5}(,\d{1,5})*$/, 'numbers with commas')
    .transform((text) => [...new Set(text.split(',').map(Number))])
    .refine((kinds) => kinds.length <= KINDS_MAX && kinds.every((kind) => kind <= KIND_MAX), {
      error: `up to ${KINDS_MAX} numbers, none above ${KIND_MAX}`,
    })
    .optional()
    .describe('One kind, or several with commas'),
  since: seconds.optional().describe('Seconds since 1970, of created_at; inclusive'),
  until: seconds.optional().describe('Seconds since 1970, of created_at; inclusive'),
  text: plainText(SEARCH_LENGTH_MAX)
    .optional()
    .describe('Words, "phrases", -excluded, #hashtags; finds served events of kinds with text'),
  state: z
    .enum(['served', 'hidden', 'deleted', 'removed'])
    .default('served')
    .describe(
      'hidden: for any reason, of one author. deleted, removed: also of everybody, by when that happened',
    ),
});

const found = z.strictObject({
  event_id: eventId,
  author: pubkey,
  kind: z.number().int(),
  created_at: z.number().int().describe('Seconds since 1970'),
  expires_at: z.number().int().nullable().describe('Seconds since 1970'),
  received_at: milliseconds,
  state: z.enum(STATES).describe('served, or why it is not; held: a case waits for a moderator'),
  hidden_at: milliseconds.nullable(),
  topics: z.array(z.string()).describe('That it names or is bound to'),
  concealed: z.enum(CONCEALED).nullable().describe('Why `event` is null'),
  event: nostrEvent.nullable().describe('The event as it was sent'),
});

function show({ row, state, event, topics, concealed }: FoundStored): z.output<typeof found> {
  return {
    event_id: row.id,
    author: row.pubkey,
    kind: row.kind,
    created_at: row.createdAt,
    expires_at: row.expiresAt,
    received_at: row.ingestedAt,
    state,
    hidden_at: row.hiddenAt,
    topics: [...topics],
    concealed: concealed ?? null,
    event: (event as z.output<typeof nostrEvent> | undefined) ?? null,
  };
}

const ABOUT = `Newest first, by \`created_at\`; deleted and removed events without an author by when that
happened. Conditions are combined. Events of private kinds (\`auth.privateKinds\`), and events that their
author deleted, let expire or vanished with, are listed without content and tags, as in the life of an event.
Past their retention, events are listed until a job has hidden them. A page of hidden events may have fewer
items than its limit, or none, and still a next page: it looks at a limited number of them.`;

export function finderRoutes({ pool, search, inSlot, events }: FinderOptions): Route[] {
  return [
    route({
      method: 'GET',
      url: '/admin/events',
      summary: 'Find stored events by id, author, topic, kind, time, words and state',
      description: ABOUT,
      tags: ['admin: events'],
      who: 'operator',
      role: 'viewer',
      query,
      response: pageOf(found),
      errors: ['SEARCH_NOT_READY'],
      handler: async ({ community, client, query: { id: named, kind: kinds, state, ...asked }, now }) => {
        const pools = {
          pool,
          events: events.stored,
          search,
          inSlot: <T>(cost: Parameters<typeof inSlot>[1], run: (of: Pool) => Promise<T>) =>
            inSlot({ client, community }, cost, run),
        };
        const { author, topic, since, until, text, limit, cursor } = asked;
        const all = { named, author, topic, kinds, since, until, text, show: state, limit, cursor };
        try {
          return showPage(await findStored(pools, community, all, now), show);
        } catch (error) {
          if (error instanceof SearchTooLong || isUnavailable(error)) return denial('UNAVAILABLE');
          return orNotRun(error);
        }
      },
    }),
    readersRoute(pool, events.stored),
  ];
}

const readers = z.strictObject({
  event_id: eventId,
  state: z.enum(STATES),
  readers: z.array(
    z.strictObject({
      reader: z
        .enum(READERS)
        .describe('member: any member; subscriber: of all its topics; asked: the key in `reader`'),
      pubkey: pubkey.nullable(),
      served: z.boolean(),
      why: z
        .enum([...UNSEEN, ...STATES.filter((state) => state !== 'served')])
        .nullable()
        .describe('Why it is not served to them'),
    }),
  ),
});

function showReaders(id: string, { state, readers: all }: SeenBy): z.output<typeof readers> {
  return {
    event_id: id,
    state,
    readers: all.map(({ reader, pubkey: key, why }) => ({
      reader,
      pubkey: key ?? null,
      served: why === undefined,
      why: why ?? null,
    })),
  };
}

function readersRoute(pool: Pool, events: StoredEvents): Route {
  return route({
    method: 'GET',
    url: '/admin/events/:event_id/readers',
    summary: 'Who is served an event, and if not, why',
    description:
      'The rules that decide about every filter, for an anonymous reader, a member, a subscriber of its ' +
      'topics, its author, and any key. It shows no content.',
    tags: ['admin: events'],
    who: 'operator',
    role: 'viewer',
    params: z.strictObject({ event_id: eventId }),
    query: z.strictObject({
      reader: person.optional().describe('Also for this key: hex, npub or nprofile'),
    }),
    response: readers,
    errors: ['NOT_FOUND'],
    handler: async ({ community, params: { event_id: id }, query: { reader }, now }) => {
      const seen = await readReaders(pool, events, community, id, reader, now);
      return seen === undefined ? denial('NOT_FOUND') : showReaders(id, seen);
    },
  });
}
