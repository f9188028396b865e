/**
 * The changes of one topic for apps that come back: events and deletions since a cursor, in commit order, by
 * the same rules as a REQ with a cursor (docs/cursors.md). Each call reads a bounded part of the outbox (I14)
 * and is charged to its client (I18).
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { accessOf } from '../api/reading.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import type { Community } from '../communities/communities.js';
import { type Access, refuseFilterAccess, seenBy } from '../events/rules/access.js';
import { type Filter, parseFilter } from '../events/rules/filter.js';
import {
  changesCost,
  findCost,
  payloadsCost,
  type QueryClass,
  type QueryCost,
} from '../events/rules/query-cost.js';
import { isRefusal } from '../events/rules/reply.js';
import { type EventStore, OutboxBehind, type Position } from '../events/store.js';
import { CatchUp, type ChangeEvents, type Missed } from '../relay/cursors/catch-up.js';
import {
  CURSOR_LENGTH_MAX,
  type CursorMaker,
  type Cursors,
  OTHER_QUERY,
  refusePlace,
} from '../relay/cursors/cursor.js';
import { goneReader } from '../relay/rules-gone.js';
import { type HttpClient, nostrEvent, orNotRun } from '../search/routes.js';
import { refuseFilterTopic } from './rules.js';
import { topicIdText } from './schemas.js';

const ITEMS = 100;
const ITEMS_MAX = 200;
/** Parts of the outbox that one call looks at; each has at most 50,000 positions of the whole node. */
const PORTIONS_MAX = 100;

export interface ChangesOptions {
  readonly pool: Pool;
  readonly events: ChangeEvents & Pick<EventStore, 'find' | 'payloads' | 'tagKey'>;
  readonly cursors: CursorMaker;
  /** Runs a query of this client when the queue allows it (relay/query-gate.ts). */
  readonly inClass: <T>(
    asker: HttpClient,
    cost: QueryCost,
    query: (as: QueryClass) => Promise<T>,
  ) => Promise<T>;
}

const change = z.discriminatedUnion('op', [
  z.strictObject({ op: z.literal('upsert'), event: nostrEvent }),
  z.strictObject({
    op: z.literal('delete'),
    event_id: z.string().describe('No longer served, whatever the reason; ignore it if you do not have it'),
  }),
]);

export function changeRoutes(options: ChangesOptions): Route[] {
  return [
    route({
      method: 'GET',
      url: '/topics/:topic_id/changes',
      summary: 'What has changed in a topic since a cursor',
      description: ABOUT,
      tags: ['topics'],
      who: 'reader',
      needsConsent: true,
      params: z.strictObject({ topic_id: topicIdText }),
      query: z.strictObject({
        after: z
          .string()
          .max(CURSOR_LENGTH_MAX)
          .optional()
          .describe('The cursor of the last answer; without it, the newest events'),
        limit: z.coerce
          .number()
          .int()
          .min(1)
          .max(ITEMS_MAX)
          .default(ITEMS)
          .describe('Most items of an answer'),
      }),
      response: z.strictObject({
        items: z.array(change),
        cursor: z.string().describe('Save it with the effect of the items, and send it as `after`'),
        more: z.boolean().describe('More changes wait: ask again at once'),
        older: z.boolean().describe('Without `after`: older events are stored that this answer leaves out'),
      }),
      errors: [
        'INVALID_CURSOR',
        'CURSOR_EXPIRED',
        'TOPIC_NOT_ENABLED',
        'TOPIC_BLOCKED',
        'SUBSCRIPTION_REQUIRED',
      ],
      handler: async ({ community, client, pubkey, params: { topic_id }, query: { after, limit }, now }) => {
        const access = await accessOf(options.pool, community, pubkey);
        const filter = filterOf(community, topic_id, access);
        if (isDenial(filter)) return filter;
        const reading = new Reading(options, { client, community }, { filter, access, now });
        try {
          return after === undefined || after === ''
            ? await reading.newest(limit)
            : await reading.since(after, limit);
        } catch (error) {
          return error instanceof OutboxBehind ? denial('CURSOR_EXPIRED') : orNotRun(error);
        }
      },
    }),
  ];
}

const ABOUT = `Without \`after\`: the newest events of the topic, the newest first, and a cursor. With the
\`cursor\` of the last answer as \`after\`: what has changed since, in commit order: \`upsert\` for an event,
\`delete\` for an event that is no longer served. It shows what a REQ of this topic would show to the signing
key. \`CURSOR_EXPIRED\`: changes since the cursor are no longer kept; \`INVALID_CURSOR\`: the cursor is of
another topic or key, or what you may see has changed. After both, begin again without \`after\` and replace
what you have.`;

/** The filter that a REQ would have, with what the reader may see of it, or why that REQ would be closed. */
function filterOf(community: Community, topic: string, access: Access): Filter | Denial {
  const filter = parseFilter({ '#t': [topic] }, community.settings);
  if (isRefusal(filter)) return denial('TOPIC_NOT_ENABLED', { topic_id: topic });
  if (refuseFilterTopic(filter, community.settings, community.topics) !== undefined) {
    const isBlocked = community.topics.get(topic)?.blocked;
    return denial(isBlocked ? 'TOPIC_BLOCKED' : 'TOPIC_NOT_ENABLED', { topic_id: topic });
  }
  if (refuseFilterAccess(filter, access, community) !== undefined)
    return denial('SUBSCRIPTION_REQUIRED', { topic_id: topic });
  return seenBy(filter, access, community);
}

interface ReadingOf {
  readonly filter: Filter;
  readonly access: Access;
  readonly now: number;
}

class Reading {
  private readonly cursors: Cursors;

  constructor(
    private readonly options: ChangesOptions,
    private readonly asker: HttpClient,
    private readonly of: ReadingOf,
  ) {
    this.cursors = options.cursors.cursorsOf(asker.community.id, [of.filter]);
  }

  private readonly ask = <T>(cost: QueryCost, query: (as: QueryClass) => Promise<T>): Promise<T> =>
    this.options.inClass(this.asker, cost, query);

  private anchorAt(position: Position) {
    return this.ask(changesCost(1), (as) => this.options.events.anchor(position, as));
  }

  async newest(limit: number) {
    const { events } = this.options;
    const { community } = this.asker;
    const { filter, now } = this.of;
    // Before the events: what changes meanwhile comes with the next call.
    const { anchor } = await this.anchorAt(Number.MAX_SAFE_INTEGER);
    const query = { community: community.id, filter, limit: limit + 1, now, rules: community };
    const found = await this.ask(findCost(filter, limit), (as) => events.find(query, as));
    const rows = found.slice(0, limit);
    const payloads = await this.ask(payloadsCost(rows.length), (as) => events.payloads(rows, as));
    const items = payloads.flatMap((payload) => (payload === undefined ? [] : [upsert(payload)]));
    return { items, cursor: this.cursors.at(anchor), more: false, older: found.length > limit };
  }

  async since(after: string, limit: number) {
    const { events } = this.options;
    const { community } = this.asker;
    const { filter, access, now } = this.of;
    const place = this.cursors.open(after);
    if (isRefusal(place))
      return denial('INVALID_CURSOR', { reason: place === OTHER_QUERY ? 'query' : 'unknown' });
    const keptDays = community.settings['retention.outboxDays'];
    if (refusePlace(place, await this.anchorAt(place.seq), { keptDays, now }) !== undefined)
      return denial('CURSOR_EXPIRED');
    const tagKey = (letter: string, value: string) => events.tagKey(community.id, letter, value);
    const reader = goneReader(access, community.settings['auth.privateKinds'], tagKey);
    const catchUp = new CatchUp(
      { events, ask: this.ask, now: () => now },
      { community, filters: [filter], reader },
    );
    const missed: Missed[] = [];
    let position = place.seq;
    let portions = 0;
    let more = false;
    for await (const portion of catchUp.portions(place.seq)) {
      missed.push(...portion.take());
      position = portion.upTo;
      portions += 1;
      more = position < portion.head;
      if (missed.length >= limit || portions === PORTIONS_MAX) break;
    }
    const isCut = missed.length > limit;
    const items = missed.slice(0, limit);
    const anchor = isCut ? items.at(-1)!.at : (await this.anchorAt(position)).anchor;
    return { items: items.map(show), cursor: this.cursors.at(anchor), more: more || isCut, older: false };
  }
}

function show({ id, payload }: Missed): z.output<typeof change> {
  return payload === undefined ? { op: 'delete', event_id: id } : upsert(payload);
}

function upsert(payload: string): z.output<typeof change> {
  return { op: 'upsert', event: JSON.parse(payload) as z.output<typeof nostrEvent> };
}
