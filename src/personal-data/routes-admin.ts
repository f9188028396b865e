/** Operators see who requested their data or its deletion. Only the member gets the file. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { milliseconds, pageOf, pageQuery, pubkey, showPage } from '../api/schemas.js';
import { listPersonal, type PersonalRequest } from './requests.sql.js';
import { PERSONAL_KINDS, PERSONAL_STATUSES } from './rules.js';

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

export function personalDataReviewRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      method: 'GET',
      url: '/admin/personal-data-requests',
      summary: 'Requests of members about their data, newest first',
      tags: ['admin: personal data'],
      who: 'operator',
      query: pageQuery.extend({ kind: kind.optional(), status: status.optional() }),
      response: pageOf(personalRequest),
      errors: [],
      handler: async ({ community, query: { kind, status, ...page } }) =>
        showPage(await listPersonal(pool, { community: community.id, kind, status }, page), show),
    }),
  ];
}
