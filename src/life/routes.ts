/** The life of one event over HTTP. It shows no content. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { denial } from '../api/rules-errors.js';
import { milliseconds, pubkey } from '../api/schemas.js';
import { HIDDEN_CODES, type Hidden } from '../events/rules/hidden.js';
import type { EventStore } from '../events/store.js';
import { eventId } from '../reports/routes.js';
import { readLife, type WholeLife } from './life.js';
import { LIFE_STATUSES, LIFE_STEPS } from './rules.js';

const seconds = z.number().int().describe('Seconds since 1970');

const entry = z.strictObject({
  at: milliseconds.nullable().describe('Milliseconds since 1970; null: no longer known'),
  what: z.enum(LIFE_STEPS),
  event_id: eventId
    .nullable()
    .describe('The event that did it: a deletion request, the newest version, a request to vanish'),
  pubkey: pubkey.nullable().describe('Who did it'),
  case_id: z.uuid().nullable(),
  rule_id: z.uuid().nullable(),
  detail: z.string().nullable(),
});

const life = z.strictObject({
  event_id: eventId,
  author: pubkey.nullable(),
  status: z
    .enum(LIFE_STATUSES)
    .describe('purged: only the id is kept; unknown: never accepted here, or that is forgotten'),
  hidden: z
    .enum(Object.keys(HIDDEN_CODES) as [Hidden, ...Hidden[]])
    .nullable()
    .describe('Why it is not served'),
  event: z
    .strictObject({ kind: z.number().int(), created_at: seconds, expires_at: seconds.nullable() })
    .nullable()
    .describe('Null once it is purged'),
  indexed: z.boolean().describe('Whether search can find its words'),
  timeline: z.array(entry).describe('The oldest first; entries without a time come last'),
  sent_again: z
    .strictObject({
      comes_back: z.boolean().nullable().describe('Null: it depends on who wrote it'),
      reply: z.string().nullable().describe('The text of the OK message'),
      also: z.array(z.string()).describe('Further grounds that refuse it on arrival'),
    })
    .describe('What happens if somebody sends it again. Topics, rules and limits are not considered'),
});

export function showLife(id: string, found: WholeLife): z.output<typeof life> {
  const { author = null, status, hidden = null, event, indexed, timeline, again } = found;
  return {
    event_id: id,
    author,
    status,
    hidden,
    event:
      event === undefined
        ? null
        : { kind: event.kind, created_at: event.createdAt, expires_at: event.expiresAt },
    indexed,
    timeline: timeline.map((one) => ({
      at: one.at,
      what: one.what,
      event_id: one.event ?? null,
      pubkey: one.pubkey ?? null,
      case_id: one.caseId ?? null,
      rule_id: one.ruleId ?? null,
      detail: one.detail ?? null,
    })),
    sent_again: { comes_back: again.comesBack ?? null, reply: again.reply ?? null, also: [...again.also] },
  };
}

export interface LifeOptions {
  readonly pool: Pool;
  readonly events: Pick<EventStore, 'stored'>;
}

export function lifeRoutes({ pool, events }: LifeOptions): Route[] {
  return [
    route({
      method: 'GET',
      url: '/admin/events/:event_id/life',
      summary: 'The whole life of an event: arrived, superseded, deleted, removed, labelled, purged …',
      description:
        'Also for an event that is no longer stored, or that was deleted before it arrived. ' +
        'It shows what the node still knows: ids of purged events are forgotten after some time.',
      tags: ['admin: events'],
      who: 'operator',
      role: 'moderator',
      params: z.strictObject({ event_id: eventId }),
      response: life,
      errors: ['NOT_FOUND'],
      handler: async ({ community, params: { event_id: id }, now }) => {
        const found = await readLife(pool, events.stored, community, id, now);
        return found === undefined ? denial('NOT_FOUND') : showLife(id, found);
      },
    }),
  ];
}
