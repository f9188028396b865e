/**
 * What this node thinks of a person, and why: two claims, each with its score and its grounds. Grounds are shown as far as anyone may read
 * them now, and never who reported. The keys that sign the claims are public.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import type { Community } from '../communities.js';
import { isHex64, type NostrEvent } from '../core/event.js';
import { isExpired } from '../core/expiration.js';
import { pubkeyOf } from '../core/public-key-text.js';
import { asMatched } from '../core/topic.js';
import { CLAIMS, type Claim, contactWeight, isPublic, rankOf, windowStart } from '../core/trust.js';
import { currentKey } from '../store/node-keys.js';
import { readEventsById } from '../store/query.js';
import { countReports, latestContacts, type ShownContact } from '../store/trust.js';
import { gatherRisks, readScore } from '../store/trust-scores.js';
import { type Route, route } from './contract.js';
import { milliseconds, pubkey } from './schemas.js';

const GROUNDS_MAX = 50;
/** Some may not be shown any more though nobody has heard of it yet. */
const GROUNDS_READ = 100;

export interface TrustOptions {
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
        labels: counts.describe('By label: how many, on the person and on what anyone may read'),
        weight: z.number().describe('Of all of them together'),
      }),
    ),
    handler: async ({ community, query: { subject }, now }) => {
      const claim = 'report-based' as const;
      const { id } = community;
      const score = await scoreOf(pool, community, claim, subject);
      const { reasons, labels } = await countReports(pool, { community: id, subject }, community, now);
      const risks = (await gatherRisks(pool, id, [subject], community, now)).get(subject)!;
      const weight = risks.weight + risks.labels;
      return { ...score, claim, grounds: { reports: reasons, labels, weight } };
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

function densityRoute({ pool }: TrustOptions): Route {
  return route({
    ...shared,
    url: '/trust/communication-density',
    summary: 'How much a person talks in public with others who answer',
    description: `score: 0 to 1, by ties with people of standing. rank: 100 × score. The ${GROUNDS_MAX} newest contacts with those
      who answer are shown, as far as anyone may read them.`,
    response: answerOf('communication-density', z.array(contact)),
    handler: async ({ community, query: { subject }, now }) => {
      const claim = 'communication-density' as const;
      const score = await scoreOf(pool, community, claim, subject);
      return { ...score, claim, grounds: await shownContacts(pool, community, subject, now) };
    },
  });
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
    const read = asMatched(JSON.parse(held.payload) as NostrEvent, held.bound);
    return isPublic(read, community) && !isExpired(read, Math.floor(now / 1_000));
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
