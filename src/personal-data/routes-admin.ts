/**
 * Operators see who requested their data or its deletion, and request the file of a member who asked by
 * letter. Each such request, and each link to a file, is in the audit log.
 */
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, pubkey, showPage } from '../api/schemas.js';
import {
  listPersonal,
  noteLink,
  type PersonalRequest,
  readPersonalRequest,
  requestPersonal,
} from './requests.sql.js';
import { linkTo, type PersonalDataOptions } from './routes.js';
import { PERSONAL_KINDS, PERSONAL_STATUSES, statusAt } from './rules.js';

const kind = z.enum(PERSONAL_KINDS);
const status = z.enum(PERSONAL_STATUSES);

const personalRequest = z.strictObject({
  request_id: z.uuid(),
  requester_pubkey: pubkey,
  kind,
  status,
  note: z.string().nullable().describe('Written by the member'),
  error: z.string().nullable(),
  bytes: z.number().int(),
  created_at: milliseconds,
  started_at: milliseconds.nullable(),
  finished_at: milliseconds.nullable(),
  expires_at: milliseconds.nullable(),
});

function show(request: PersonalRequest): z.output<typeof personalRequest> {
  return {
    request_id: request.requestId,
    requester_pubkey: request.pubkey,
    kind: request.kind,
    status: request.status,
    note: request.note,
    error: request.error,
    bytes: request.bytes,
    created_at: request.createdAt,
    started_at: request.startedAt,
    finished_at: request.finishedAt,
    expires_at: request.expiresAt,
  };
}

export type ReviewOptions = Pick<PersonalDataOptions, 'pool' | 'bases' | 'downloadSecret' | 'exportSoon'>;

export function personalDataReviewRoutes(options: ReviewOptions): Route[] {
  const { pool } = options;
  return [
    ...exportRoutes(options),
    route({
      method: 'GET',
      url: '/admin/personal-data-requests',
      summary: 'Requests of members about their data, newest first',
      tags: ['admin: personal data'],
      who: 'operator',
      query: pageQuery.extend({
        pubkey: pubkey.optional(),
        kind: kind.optional(),
        status: status.optional(),
      }),
      response: pageOf(personalRequest),
      errors: [],
      handler: async ({ community, query: { limit, cursor, ...which } }) =>
        showPage(await listPersonal(pool, { community: community.id, ...which }, { limit, cursor }), show),
    }),
  ];
}

function exportRoutes({ pool, bases, downloadSecret, exportSoon }: ReviewOptions): Route[] {
  const url = '/admin/members/:pubkey/personal-data-exports';
  const shared = { method: 'POST', tags: ['admin: personal data'], who: 'operator' } as const;
  return [
    route({
      ...shared,
      url,
      summary: 'Request the file of everything that is held about a key',
      description:
        'For a member who asked by letter. It counts as a use of the plan of the member, who sees the ' +
        'request, and is written to the audit log. While one is open, another request returns that one.',
      params: z.strictObject({ pubkey }),
      body: z.strictObject({}),
      status: 202,
      response: personalRequest,
      errors: ['QUOTA_EXCEEDED'],
      handler: async ({ community, pubkey: actor, params, now }) => {
        const waitingMax = community.settings['privacy.exportsWaitingMax'];
        const wanted = { ...params, community: community.id, kind: 'export', waitingMax, actor } as const;
        const request = await requestPersonal(pool, wanted, now);
        if (isDenial(request)) return request;
        // The response does not wait for this. If it fails, the job still runs every minute.
        exportSoon().catch(() => undefined);
        return show(request);
      },
    }),
    route({
      ...shared,
      url: `${url}/:request_id/link`,
      summary: 'The link to a file that is ready',
      description: 'It works without a signature, so keep it secret. Each link is in the audit log.',
      params: z.strictObject({ pubkey, request_id: z.uuid() }),
      response: z.strictObject({
        download_url: z.url(),
        bytes: z.number().int(),
        expires_at: milliseconds.nullable(),
      }),
      errors: ['NOT_FOUND', 'NOT_READY', 'EXPIRED'],
      handler: async ({ community, pubkey: actor, params, now }) => {
        const ref = { community: community.id, requestId: params.request_id, kind: 'export' } as const;
        const request = await readPersonalRequest(pool, ref);
        if (request?.pubkey !== params.pubkey) return denial('NOT_FOUND');
        const current = statusAt(request, now);
        if (current === 'expired') return denial('EXPIRED');
        if (current !== 'ready') return denial('NOT_READY');
        await noteLink(pool, { community: community.id, actor, pubkey: params.pubkey }, now);
        return {
          download_url: linkTo(request, community, bases(), downloadSecret),
          bytes: request.bytes,
          expires_at: request.expiresAt,
        };
      },
    }),
  ];
}
