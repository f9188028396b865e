/**
 * Reports: members make, list and withdraw their own; operators see all. Reports over HTTP and by events are
 * treated alike.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { type Denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText, pubkey, showPage } from '../api/schemas.js';
import type { EventStore } from '../events/store.js';
import { addWeighedReport } from '../trust/grounds.sql.js';
import { listReports, type Report, withdrawReport } from './reports.sql.js';
import { REPORT_COMMENT_MAX, REPORT_REASONS } from './rules.js';

const REPORTS = '/reports';

export interface ReportOptions {
  readonly pool: Pool;
  readonly events: Pick<EventStore, 'stored'>;
}

export function reportRoutes(options: ReportOptions): Route[] {
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
  report_event: eventId.nullable().describe('The event of kind 1984 that made the report'),
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

const newReport = z
  .strictObject({
    event_id: eventId.optional().describe('The reported event'),
    pubkey: pubkey.optional().describe('The reported person, or the author of the event'),
    reason,
    comment: plainText(REPORT_COMMENT_MAX).default(''),
  })
  .refine(({ event_id, pubkey: person }) => event_id !== undefined || person !== undefined, {
    error: 'set event_id or pubkey, or both',
  });

function ownRoutes({ pool, events }: ReportOptions): Route[] {
  const tags = ['reports'] as const;
  const who = 'member';
  return [
    route({
      method: 'POST',
      url: REPORTS,
      summary: 'Report an event or a person to the operators',
      description: 'Like an event of kind 1984 (NIP-56), but not public. Sending it twice makes one report.',
      tags,
      who,
      body: newReport,
      status: 201,
      response: reportShape,
      errors: [],
      counts: 'reports',
      needsConsent: true,
      handler: async ({ community: rules, pubkey: reporter, body, now }) => {
        const { event_id: targetEvent, pubkey: targetPubkey, ...words } = body;
        const made = { community: rules.id, pubkey: reporter, targetEvent, targetPubkey, ...words };
        return shown(await addWeighedReport(pool, events.stored, made, rules, now));
      },
    }),
    route({
      method: 'GET',
      url: REPORTS,
      summary: 'Your reports, newest first',
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
        'To withdraw a report made by an event, delete that event (`details.report_event`, NIP-09).',
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
    role: 'moderator',
    summary: 'Reports of all members, newest first',
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
