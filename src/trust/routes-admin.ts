/**
 * The trust in one person, for operators: both scores, what they are made of, and the standing of the person.
 * It counts what anyone may read, as the published scores do, and never names who reported.
 */
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { milliseconds, pubkey } from '../api/schemas.js';
import { countReports } from './grounds.sql.js';
import { contact, counts, scoreOf, shownContacts, type TrustOptions } from './routes.js';
import { readStanding } from './standing.sql.js';
import { gatherRisks, gatherTies, listTies } from './weights.sql.js';

const TIES_MAX = 100;

const score = {
  score: z.number().min(0).max(1),
  rank: z.number().int().min(0).max(100).describe('Higher is better'),
  computed_at: milliseconds.nullable().describe('null: there are no grounds'),
  assertion: z.string().nullable().describe('The last event of kind 30382 that asserts the rank (NIP-85)'),
  weight: z.number().describe('The sum that the score is computed from'),
  full: z.number().describe('The sum that gives a score of 1'),
};

const tie = z.strictObject({
  pubkey,
  given: z.number().describe('Weight of what the person wrote to them, the greatest contact of each day'),
  got: z.number().describe('Weight of what they wrote to the person'),
  strength: z.number().min(0).max(1).describe('By the lesser of both directions'),
  counts_from: milliseconds.nullable().describe('null: they have no standing, so it does not count'),
});

const trust = z.strictObject({
  subject: pubkey,
  window_days: z.number().int().describe('Older grounds do not count'),
  established_min: z.number().describe('So many people together move a score by a tenth'),
  standing: z
    .strictObject({
      first_seen_at: milliseconds,
      founder: z.boolean().describe('First seen in the founding days'),
      approved: z.boolean().describe('An operator, or approved by one'),
      stands_from: milliseconds.nullable().describe('null: not granted'),
      taken_away: z.boolean().describe('Blocked or disabled by an operator'),
    })
    .nullable()
    .describe('Whether their ties and reports count for others; null: never posted here'),
  report_based: z.strictObject({
    ...score,
    reports: counts.describe('By reason: the number of reporters with standing; never who'),
    labels: counts.describe('By label: the number of labels on the person and on public events'),
  }),
  communication_density: z.strictObject({
    ...score,
    ties: z.array(tie).max(TIES_MAX).describe('Those that count first, then the strongest'),
    contacts: z.array(contact).describe('The newest with people who answer'),
  }),
});

export function trustOfMemberRoute({ pool, events }: Pick<TrustOptions, 'pool' | 'events'>): Route {
  return route({
    method: 'GET',
    url: '/admin/trust/:pubkey',
    summary: 'The trust in one person: both scores and their grounds',
    description: `Up to ${TIES_MAX} ties, 50 contacts. Any key has an answer; without grounds scores are 0.`,
    tags: ['admin: members'],
    who: 'operator',
    role: 'viewer',
    params: z.strictObject({ pubkey }),
    response: trust,
    errors: [],
    handler: async ({ community, params: { pubkey: subject }, now }) => {
      const { id, settings } = community;
      const of = { community: id, subject };
      const { window_days, ...risk } = withoutSubject(
        await scoreOf(pool, community, 'report-based', subject, now),
      );
      const { window_days: _, ...density } = withoutSubject(
        await scoreOf(pool, community, 'communication-density', subject, now),
      );
      const risks = (await gatherRisks(pool, id, [subject], community, now)).get(subject)!;
      const { reasons, labels } = await countReports(pool, of, community, now);
      const standing = await readStanding(pool, community, subject);
      const ties = await listTies(pool, of, community, TIES_MAX, now);
      return {
        subject,
        window_days,
        established_min: settings['trust.establishedMin'],
        standing:
          standing === undefined
            ? null
            : {
                first_seen_at: standing.firstSeenAt,
                founder: standing.isFounder,
                approved: standing.isApproved,
                stands_from: standing.standsFrom,
                taken_away: standing.isTakenAway,
              },
        report_based: {
          ...risk,
          weight: risks.weight + risks.labels,
          full: settings['trust.reportsFull'],
          reports: reasons,
          labels,
        },
        communication_density: {
          ...density,
          weight: (await gatherTies(pool, id, [subject], community, now)).get(subject)!.weight,
          full: settings['trust.densityFull'],
          ties: ties.map(({ countsFrom: counts_from, ...one }) => ({ ...one, counts_from })),
          contacts: await shownContacts({ pool, events }, community, subject, now),
        },
      };
    },
  });
}

function withoutSubject<T extends { readonly subject: string }>({
  subject: _,
  ...rest
}: T): Omit<T, 'subject'> {
  return rest;
}
