/** Reports: members make, see and withdraw their own; operators see all. How one arrived, by HTTP or as an event, makes no difference. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Denial, isDenial } from '../core/errors.js';
import { REPORT_COMMENT_MAX, REPORT_REASONS } from '../core/report.js';
import { listReports, type Report, withdrawReport } from '../store/reports.js';
import { addWeighedReport } from '../store/trust.js';
import { type Route, route } from './contract.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage } from './schemas.js';

const REPORTS = '/reports';

export function reportRoutes(options: { readonly pool: Pool }): Route[] {
  return [...ownRoutes(options), operatorRoute(options)];
}

export const eventId = z
  .string()
  .regex(/^[0-9a-f]{64}$/, '64 lowercase hex characters')
  .describe('The id of an event, hex');
const reason = z.enum(REPORT_REASONS);

export const reportShape = z.strictObject({
  report_id: z.uuid(),
  reporter_pubkey: pubkey,
  target_event: eventId.nullable(),
  target_pubkey: pubkey.nullable(),
  reason,
  comment: z.string(),
  source: z.enum(['http', 'event']).describe('How it arrived'),
  report_event: eventId.nullable().describe('The event of kind 1984 that it came as'),
  created_at: milliseconds,
});

export function showReport({
  reportId,
  pubkey: reporter,
  targetEvent,
  targetPubkey,
  eventId: event,
  createdAt,
  ...same
}: Report): z.output<typeof reportShape> {
  return {
    report_id: reportId,
    reporter_pubkey: reporter,
    target_event: targetEvent,
    target_pubkey: targetPubkey,
    reason: same.reason,
    comment: same.comment,
    source: event === null ? 'http' : 'event',
    report_event: event,
    created_at: createdAt,
  };
}

const shown = (found: Report | Denial) => (isDenial(found) ? found : showReport(found));

const asked = z
  .strictObject({
    event_id: eventId.optional().describe('The event that is reported'),
    pubkey: pubkey.optional().describe('Who is reported, or the author of the event'),
    reason,
    comment: plainText(REPORT_COMMENT_MAX).default(''),
  })
  .refine(({ event_id, pubkey: person }) => event_id !== undefined || person !== undefined, {
    error: 'event_id or pubkey, or both',
  });

function ownRoutes({ pool }: { readonly pool: Pool }): Route[] {
  const tags = ['reports'] as const;
  const who = 'member';
  return [
    route({
      method: 'POST',
      url: REPORTS,
      summary: 'Report an event or a person to the operators',
      description:
        'The same as an event of kind 1984 (NIP-56), but not public. Sent again it is the same report.',
      tags,
      who,
      body: asked,
      status: 201,
      response: reportShape,
      errors: [],
      counts: 'reports',
      needsConsent: true,
      handler: async ({ community: rules, pubkey: reporter, body, now }) => {
        const { event_id: targetEvent, pubkey: targetPubkey, ...words } = body;
        const made = { community: rules.id, pubkey: reporter, targetEvent, targetPubkey, ...words };
        return shown(await addWeighedReport(pool, made, rules, now));
      },
    }),
    route({
      method: 'GET',
      url: REPORTS,
      summary: 'Your reports, the newest first',
      tags,
      who,
      query: pageQuery,
      response: pageOf(reportShape),
      errors: [],
      handler: async ({ community, pubkey: reporter, query }) =>
        showPage(await listReports(pool, { community: community.id, pubkey: reporter }, query), showReport),
    }),
    route({
      method: 'DELETE',
      url: `${REPORTS}/:report_id`,
      summary: 'Withdraw a report',
      description:
        'One that came as an event goes when that event (`details.report_event`) is deleted (NIP-09).',
      tags,
      who,
      params: z.strictObject({ report_id: z.uuid() }),
      response: reportShape,
      errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
      handler: async ({ community, pubkey: reporter, params: { report_id: reportId } }) =>
        shown(await withdrawReport(pool, { community: community.id, pubkey: reporter, reportId })),
    }),
  ];
}

function operatorRoute({ pool }: { readonly pool: Pool }): Route {
  return route({
    method: 'GET',
    url: '/admin/reports',
    summary: 'Reports of all members, the newest first',
    tags: ['admin: reports'],
    who: 'operator',
    query: pageQuery.extend({
      target_event: eventId.optional(),
      target_pubkey: pubkey.optional(),
      pubkey: pubkey.optional().describe('Who reports'),
      reason: reason.optional(),
    }),
    response: pageOf(reportShape),
    errors: [],
    handler: async ({ community, query }) => {
      const { target_event: targetEvent, target_pubkey: targetPubkey, limit, cursor, ...rest } = query;
      const filter = { community: community.id, targetEvent, targetPubkey, ...rest };
      return showPage(await listReports(pool, filter, { limit, cursor }), showReport);
    },
  });
}
