/**
 * Routes for the trust claims about a person, each with its score and its grounds. A reader sees only grounds
 * that they may read now, and never who reported. Published scores count only what anyone may read; for a
 * member the response also counts the topics that they subscribe to. The keys that sign the claims are
 * public.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { accessOf } from '../api/reading.js';
import { isDenial } from '../api/rules-errors.js';
import { milliseconds, pubkey } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import { type Access, rulesFor, seenBy } from '../events/rules/access.js';
import { isHex64, type NostrEvent } from '../events/rules/event.js';
import { isExpired } from '../events/rules/expiration.js';
import { parseFilter } from '../events/rules/filter.js';
import { pubkeyOf } from '../events/rules/public-key-text.js';
import { findCost } from '../events/rules/query-cost.js';
import { isRefusal } from '../events/rules/reply.js';
import { asKept } from '../events/rules/retention.js';
import type { EventStore } from '../events/store.js';
import { currentKey } from '../keys/keys.sql.js';
import type { ClientAddress } from '../port/client-address.js';
import { orNotRun } from '../search/routes.js';
import type { ChangesOptions } from '../topics/routes-changes.js';
import { asMatched } from '../topics/rules.js';
import { countReports, latestContacts, type ShownContact } from './grounds.sql.js';
import {
  CLAIMS,
  type Claim,
  contactWeight,
  groundTime,
  isPublic,
  namedBy,
  rankOf,
  scoreOf as scoreOfWeights,
  windowStart,
} from './rules.js';
import { computeScores, readScore } from './scores.sql.js';
import { gatherRisks } from './weights.sql.js';

const GROUNDS_MAX = 50;
/** More than are shown: contacts of deleted events are among them, and are left out. */
const GROUNDS_READ = 300;

/** Maximum number of contacts per direction that are read from topics that are not public. */
const CLOSED_MAX = 100;

export interface TrustOptions extends Pick<ChangesOptions, 'inClass'> {
  readonly pool: Pool;
  readonly events: Pick<EventStore, 'find' | 'byIds' | 'stored'>;
}

export function trustRoutes(options: TrustOptions): Route[] {
  return [reportRoute(options), densityRoute(options), keysRoute(options)];
}

const trustQuery = z.strictObject({
  subject: z
    .string()
    .max(1_000)
    .transform((text) => (isHex64(text) ? text : pubkeyOf(text)) ?? '')
    .refine((key) => key !== '', { error: 'must be a public key: hex, or npub1…' })
    .describe('The public key of the person, hex or npub'),
});

const eventId = z.string().describe('The id of an event, hex');

const answerOf = <C extends Claim, G extends z.ZodType>(claim: C, grounds: G) =>
  z.strictObject({
    subject: pubkey,
    claim: z.literal(claim),
    score: z.number().min(0).max(1),
    rank: z.number().int().min(0).max(100).describe('Higher is better'),
    computed_at: milliseconds.nullable().describe('null: there are no grounds'),
    window_days: z.number().int(),
    assertion: eventId.nullable().describe('The last event of kind 30382 that asserts the rank (NIP-85)'),
    grounds,
  });

/** A score that is due is computed for the response instead of waiting for the worker (DENSITY_REST_MS). */
export async function scoreOf(pool: Pool, rules: Community, claim: Claim, subject: string, now: number) {
  const { id: community, settings } = rules;
  const found = await readScore(pool, { community, claim, subject });
  const [fresh] = found?.isDue
    ? await computeScores(pool, { community, claim, subjects: [subject] }, rules, now)
    : [];
  const isThere = fresh !== undefined || (found !== undefined && found.computedAt !== null);
  return {
    subject,
    score: fresh?.score ?? found?.score ?? 0,
    rank: fresh?.rank ?? (isThere ? found!.rank : rankOf(claim, 0)),
    computed_at: fresh === undefined ? (found?.computedAt ?? null) : now,
    window_days: settings['trust.windowDays'],
    assertion: found?.assertion ?? null,
  };
}

const shared = {
  method: 'GET',
  tags: ['trust'],
  who: 'reader',
  needsConsent: true,
  counts: 'trust',
  query: trustQuery,
  errors: [],
} as const;

export const counts = z.record(z.string(), z.number().int());

/** The topics that this reader may read and not everybody may. */
function closedTopics({ topics }: Community, { enforced, subscribed }: Access): ReadonlySet<string> {
  const isClosed = (topic: string) => topics.get(topic)?.enabled && !topics.get(topic)?.public;
  return new Set(enforced ? [...subscribed].filter(isClosed) : []);
}

const scored = (claim: Claim, score: number) => ({ score, rank: rankOf(claim, score) });

function reportRoute({ pool }: TrustOptions): Route {
  return route({
    ...shared,
    url: '/trust/report-based',
    summary: 'How much a person is reported',
    description:
      'score: the risk, 0 to 1. rank: 100 × (1 − score). Only reports of established members count.',
    response: answerOf(
      'report-based',
      z.strictObject({
        reports: counts.describe('By reason: the number of reporters with standing; never who'),
        labels: counts.describe(
          'By label: the number of labels on the person and on events that you may read',
        ),
        weight: z.number().describe('The total weight of reports and labels'),
      }),
    ),
    handler: async ({ community, pubkey: reader, query: { subject }, now }) => {
      const claim = 'report-based' as const;
      const { id, settings } = community;
      const closed = closedTopics(community, await accessOf(pool, community, reader));
      const rules = rulesFor(community, closed);
      const score = await scoreOf(pool, community, claim, subject, now);
      const { reasons, labels } = await countReports(pool, { community: id, subject }, rules, now);
      const risks = (await gatherRisks(pool, id, [subject], rules, now)).get(subject)!;
      const own = closed.size === 0 ? {} : scored(claim, scoreOfWeights(claim, risks, settings));
      const weight = risks.weight + risks.labels;
      return { ...score, ...own, claim, grounds: { reports: reasons, labels, weight } };
    },
  });
}

export const contact = z.strictObject({
  event_id: eventId,
  kind: z.number().int(),
  direction: z.enum(['out', 'in']).describe('out: the person named somebody; in: somebody named the person'),
  at: milliseconds,
  weight: z.number().describe('The weight of its kind, divided by the number of people that the event names'),
});

function densityRoute(options: TrustOptions): Route {
  const { pool, events } = options;
  return route({
    ...shared,
    url: '/trust/communication-density',
    summary: 'How much a person talks with others who answer',
    description: `score: 0 to 1, by ties with people of standing, from events that anyone may read. rank:
100 × score. The response has the ${GROUNDS_MAX} newest contacts with people who answer, including those in
topics that you subscribe to (the ${CLOSED_MAX} newest of each direction).`,
    response: answerOf('communication-density', z.array(contact)),
    handler: async ({ community, client, pubkey: reader, query: { subject }, now }) => {
      const claim = 'communication-density' as const;
      const score = await scoreOf(pool, community, claim, subject, now);
      const shown = await shownContacts({ pool, events }, community, subject, now);
      const access = await accessOf(pool, community, reader);
      const topics = closedTopics(community, access);
      if (topics.size === 0) return { ...score, claim, grounds: shown };
      const scope = { community, client, access, topics, subject, now };
      const closed = await closedContacts(options, scope).catch(orNotRun);
      if (isDenial(closed)) return closed;
      const grounds = [...shown, ...closed].sort((one, other) => other.at - one.at).slice(0, GROUNDS_MAX);
      return { ...score, claim, grounds };
    },
  });
}

/**
 * Contacts in topics that this reader subscribes to and not everybody may read, as a REQ of theirs finds
 * them.
 */
async function closedContacts(
  { events: store, inClass }: TrustOptions,
  scope: {
    readonly community: Community;
    readonly client: ClientAddress;
    readonly access: Access;
    readonly topics: ReadonlySet<string>;
    readonly subject: string;
    readonly now: number;
  },
): Promise<z.output<typeof contact>[]> {
  const { community, client, access, topics, subject, now } = scope;
  const { id, settings } = community;
  const since = windowStart(now, settings);
  const found: z.output<typeof contact>[] = [];
  for (const direction of ['out', 'in'] as const) {
    const raw = {
      kinds: Object.keys(settings['trust.kindWeights']).map(Number),
      '#t': [...topics],
      ...(direction === 'out' ? { authors: [subject] } : { '#p': [subject] }),
    };
    const filter = parseFilter(raw, { 'limits.filterValuesMax': Number.POSITIVE_INFINITY });
    if (isRefusal(filter)) throw new Error(filter.why);
    const seen = seenBy(filter, access, community);
    const query = { community: id, filter: seen, limit: CLOSED_MAX, now, rules: community };
    const rows = await inClass({ client, community }, findCost(seen, CLOSED_MAX), (as) =>
      store.find(query, as),
    );
    const events = await store.byIds(
      rows.map((row) => ({ community: id, id: row.id })),
      'light',
    );
    for (const { id: event_id, kind, createdAt, ingestedAt } of rows) {
      const held = events.get(`${id}/${event_id}`);
      if (held === undefined) continue;
      const event = asMatched(JSON.parse(held.payload) as NostrEvent, held.bound);
      const { named, shared: people } = namedBy(event);
      const isContact = direction === 'out' ? named.length > 0 : named.includes(subject);
      const at = groundTime(createdAt, ingestedAt);
      // Public events are in the other list.
      if (!isContact || at <= since || isPublic(event, community)) continue;
      found.push({ event_id, kind, direction, at, weight: contactWeight(kind, people, settings) });
    }
  }
  return found;
}

/** Checks each event against the store, because the consumer may be behind. */
export async function shownContacts(
  { pool, events: store }: Pick<TrustOptions, 'pool' | 'events'>,
  community: Community,
  subject: string,
  now: number,
) {
  const { id, settings } = community;
  const since = windowStart(now, settings);
  const kinds = Object.keys(settings['trust.kindWeights']).map(Number);
  const found = await latestContacts(
    pool,
    store.stored,
    { community: id, subject },
    { since, kinds, limit: GROUNDS_READ },
  );
  const events = await store.byIds(
    found.map(({ eventId: event }) => ({ community: id, id: event })),
    'light',
  );
  const isShown = ({ eventId: event }: ShownContact): boolean => {
    const held = events.get(`${id}/${event}`);
    if (held === undefined) return false;
    const read = asKept(community, JSON.parse(held.payload) as NostrEvent, held, now);
    return read !== undefined && isPublic(read, community) && !isExpired(read, Math.floor(now / 1_000));
  };
  return found
    .filter(isShown)
    .slice(0, GROUNDS_MAX)
    .map(({ eventId: event_id, kind, direction, at, shared }) => ({
      event_id,
      kind,
      direction,
      at,
      weight: contactWeight(kind, shared, settings),
    }));
}

function keysRoute({ pool }: TrustOptions): Route {
  return route({
    method: 'GET',
    url: '/trust/keys',
    summary: 'The keys that sign trust assertions of this node',
    description: 'A user puts them into an event of kind 10040 (NIP-85) to trust this node for `30382:rank`.',
    tags: ['trust'],
    who: 'public',
    response: z.strictObject({
      keys: z.array(
        z.strictObject({
          claim: z.enum(CLAIMS),
          pubkey: pubkey.nullable().describe('null: nothing has been asserted yet'),
          relays: z
            .array(z.string())
            .describe('Relays that have the assertions, as configured by the operator'),
        }),
      ),
    }),
    errors: [],
    handler: async ({ community: { id, settings } }) => {
      const keys = [];
      for (const claim of CLAIMS) {
        const key = (await currentKey(pool, id, claim)) ?? null;
        keys.push({ claim, pubkey: key, relays: [...settings['relay.urls']] });
      }
      return { keys };
    },
  });
}
