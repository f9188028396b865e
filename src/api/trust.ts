/**
 * What this node thinks of a person, and why: two claims, each with its score and its grounds. Grounds are shown as far as the reader may
 * read them now, and never who reported. What is published counts what anyone may read; to a member the topics that they subscribe to
 * count too, and to nobody else. The keys that sign the claims are public.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import type { ClientAddress } from '../client-address.js';
import type { Community } from '../communities.js';
import { type Access, rulesFor, seenBy } from '../core/access.js';
import { isHex64, type NostrEvent } from '../core/event.js';
import { isExpired } from '../core/expiration.js';
import { parseFilter } from '../core/filter.js';
import { pubkeyOf } from '../core/public-key-text.js';
import { isRefusal } from '../core/reply.js';
import { asKept } from '../core/retention.js';
import { asMatched } from '../core/topic.js';
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
} from '../core/trust.js';
import { currentKey } from '../store/node-keys.js';
import { findEvents, readEventsById } from '../store/query.js';
import { countReports, latestContacts, type ShownContact } from '../store/trust.js';
import { gatherRisks, readScore } from '../store/trust-scores.js';
import { type Route, route } from './contract.js';
import { accessOf } from './reading.js';
import { milliseconds, pubkey } from './schemas.js';
import type { SearchOptions } from './search.js';

const GROUNDS_MAX = 50;
/** Some may not be shown any more though nobody has heard of it yet. */
const GROUNDS_READ = 100;

/** Contacts of each direction that are looked up in topics that are not public. */
const CLOSED_MAX = 100;

export interface TrustOptions extends Pick<SearchOptions, 'search' | 'inTurn'> {
  readonly pool: Pool;
}

export function trustRoutes(options: TrustOptions): Route[] {
  return [reportRoute(options), densityRoute(options), keysRoute(options)];
}

const asked = z.strictObject({
  subject: z
    .string()
    .max(1_000)
    .transform((text) => (isHex64(text) ? text : pubkeyOf(text)) ?? '')
    .refine((key) => key !== '', { error: 'a public key: hex, or npub1…' })
    .describe('Whom it is about: a public key, hex or npub'),
});

const eventId = z.string().describe('The id of an event, hex');

const answerOf = <C extends Claim, G extends z.ZodType>(claim: C, grounds: G) =>
  z.strictObject({
    subject: pubkey,
    claim: z.literal(claim),
    score: z.number().min(0).max(1),
    rank: z.number().int().min(0).max(100).describe('Higher is better'),
    computed_at: milliseconds.nullable().describe('null: there was nothing to compute from'),
    window_days: z.number().int(),
    assertion: eventId.nullable().describe('The last event of kind 30382 that says so (NIP-85)'),
    grounds,
  });

async function scoreOf(pool: Pool, { id, settings }: Community, claim: Claim, subject: string) {
  const found = await readScore(pool, { community: id, claim, subject });
  return {
    subject,
    score: found?.score ?? 0,
    rank: found?.rank ?? rankOf(claim, 0),
    computed_at: found?.computedAt ?? null,
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
  query: asked,
  errors: [],
} as const;

const counts = z.record(z.string(), z.number().int());

/** The topics that are open to this reader and not to everybody. */
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
      'score: the risk, 0 to 1. rank: 100 × (1 − score). A report counts where who made it is established.',
    response: answerOf(
      'report-based',
      z.strictObject({
        reports: counts.describe('By reason: how many people with standing; never who'),
        labels: counts.describe('By label: how many, on the person and on what you may read'),
        weight: z.number().describe('Of all of them together'),
      }),
    ),
    handler: async ({ community, pubkey: reader, query: { subject }, now }) => {
      const claim = 'report-based' as const;
      const { id, settings } = community;
      const closed = closedTopics(community, await accessOf(pool, community, reader));
      const rules = rulesFor(community, closed);
      const score = await scoreOf(pool, community, claim, subject);
      const { reasons, labels } = await countReports(pool, { community: id, subject }, rules, now);
      const risks = (await gatherRisks(pool, id, [subject], rules, now)).get(subject)!;
      const own = closed.size === 0 ? {} : scored(claim, scoreOfWeights(claim, risks, settings));
      const weight = risks.weight + risks.labels;
      return { ...score, ...own, claim, grounds: { reports: reasons, labels, weight } };
    },
  });
}

const contact = z.strictObject({
  event_id: eventId,
  kind: z.number().int(),
  direction: z.enum(['out', 'in']).describe('out: the person named somebody; in: somebody named the person'),
  at: milliseconds,
  weight: z.number().describe('By its kind, divided by how many people the event names'),
});

function densityRoute({ pool, search, inTurn }: TrustOptions): Route {
  return route({
    ...shared,
    url: '/trust/communication-density',
    summary: 'How much a person talks with others who answer',
    description: `score: 0 to 1, by ties with people of standing, from what anyone may read. rank: 100 × score. The ${GROUNDS_MAX} newest contacts with
those who answer are shown, and for you those in topics that you subscribe to (the ${CLOSED_MAX} newest of each direction).`,
    response: answerOf('communication-density', z.array(contact)),
    handler: async ({ community, client, pubkey: reader, query: { subject }, now }) => {
      const claim = 'communication-density' as const;
      const score = await scoreOf(pool, community, claim, subject);
      const shown = await shownContacts(pool, community, subject, now);
      const access = await accessOf(pool, community, reader);
      const topics = closedTopics(community, access);
      if (topics.size === 0) return { ...score, claim, grounds: shown };
      const asked = { community, client, access, topics, subject, now };
      const closed = await closedContacts({ pool, search, inTurn }, asked);
      const grounds = [...shown, ...closed].sort((one, other) => other.at - one.at).slice(0, GROUNDS_MAX);
      return { ...score, claim, grounds };
    },
  });
}

/** In topics that this reader subscribes to and not everybody may read, by the same view as a REQ of theirs. */
async function closedContacts(
  { search, inTurn }: TrustOptions,
  asked: {
    readonly community: Community;
    readonly client: ClientAddress;
    readonly access: Access;
    readonly topics: ReadonlySet<string>;
    readonly subject: string;
    readonly now: number;
  },
): Promise<z.output<typeof contact>[]> {
  const { community, client, access, topics, subject, now } = asked;
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
    const rows = await inTurn(client, () =>
      findEvents(
        search.pool,
        id,
        seenBy(filter, access, community),
        CLOSED_MAX,
        search.tagHash,
        Math.floor(now / 1_000),
        { rules: community, now },
      ),
    );
    const events = await readEventsById(
      search.pool,
      rows.map((row) => ({ community: id, id: row.id })),
    );
    for (const { id: event_id, kind, createdAt, ingestedAt } of rows) {
      const held = events.get(`${id}/${event_id}`);
      if (held === undefined) continue;
      const event = asMatched(JSON.parse(held.payload) as NostrEvent, held.bound);
      const { named, shared: people } = namedBy(event);
      const isContact = direction === 'out' ? named.length > 0 : named.includes(subject);
      const at = groundTime(createdAt, ingestedAt);
      // What anyone may read is counted already.
      if (!isContact || at <= since || isPublic(event, community)) continue;
      found.push({ event_id, kind, direction, at, weight: contactWeight(kind, people, settings) });
    }
  }
  return found;
}

/** The view decides, not what was heard of it. */
async function shownContacts(pool: Pool, community: Community, subject: string, now: number) {
  const { id, settings } = community;
  const since = windowStart(now, settings);
  const kinds = Object.keys(settings['trust.kindWeights']).map(Number);
  const found = await latestContacts(pool, { community: id, subject }, { since, kinds, limit: GROUNDS_READ });
  const events = await readEventsById(
    pool,
    found.map(({ eventId: event }) => ({ community: id, id: event })),
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
    summary: 'The keys that sign assertions of trust here',
    description:
      'What a user puts into an event of kind 10040 (NIP-85) to trust this node about `30382:rank`.',
    tags: ['trust'],
    who: 'public',
    response: z.strictObject({
      keys: z.array(
        z.strictObject({
          claim: z.enum(CLAIMS),
          pubkey: pubkey.nullable().describe('null: nothing has been asserted yet'),
          relays: z.array(z.string()).describe('Where the assertions are, as far as the operator has said'),
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
