/**
 * Requests of members about their own data: a file of everything that is held about them, and
 * (routes-deletions.ts) its deletion. Disabled and deleted accounts may still use them. The link to a file
 * carries a token, so that a browser can follow it. It works on every instance until the file expires.
 * Without the token the node does not say whether a file exists.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { Readable } from 'node:stream';
import type { Pool } from 'pg';
import { z } from 'zod';
import { binary, Download, type Route, route } from '../api/contract.js';
import { Places } from '../api/places.js';
import { denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, showPage } from '../api/schemas.js';
import { addressesOf, toHttp } from '../communities/addresses.js';
import type { Community } from '../communities/communities.js';
import { readMemberStatus } from '../members/members.sql.js';
import {
  cancelPersonal,
  listPersonal,
  type PersonalRequest,
  readPersonalRequest,
  readPortion,
  requestPersonal,
} from './requests.sql.js';
import { type PersonalDeletionOptions, personalDeletionRoutes } from './routes-deletions.js';
import { PERSONAL_STATUSES, statusAt } from './rules.js';

/** Downloads at the same time: in all, and per file or address. Each keeps a portion or two in memory. */
const DOWNLOADS_MAX = 64;
const DOWNLOADS_PER_KEY_MAX = 4;
/** A client that reads slowly but steadily never stalls; this limit frees its place in the end. */
const DOWNLOAD_MS_MAX = 6 * 3_600_000;

export interface PersonalDataOptions extends PersonalDeletionOptions {
  /** The public addresses of the node. */
  readonly bases: () => readonly string[];
  /** Signs the links. */
  readonly downloadSecret: string;
  /** Wakes the job that makes the files. */
  readonly exportSoon: () => Promise<void>;
  /** Longest duration of one download; the default is six hours. */
  readonly downloadMsMax?: number;
}

const params = z.strictObject({ request_id: z.uuid() });
const status = z.enum(PERSONAL_STATUSES);

export const exportRequest = z.strictObject({
  request_id: z.uuid(),
  status,
  error: z.string().nullable().describe('Why it failed'),
  bytes: z.number().int().nullable().describe('Size of the file, once it is ready'),
  created_at: milliseconds,
  started_at: milliseconds.nullable(),
  finished_at: milliseconds.nullable(),
  expires_at: milliseconds.nullable().describe('Until when the file can be downloaded'),
  download_url: z
    .url()
    .nullable()
    .describe('Set once it is ready; works without a signature, so keep it secret'),
});

export function personalDataRoutes(options: PersonalDataOptions): Route[] {
  return [...exportRoutes(options), downloadRoute(options), ...personalDeletionRoutes(options)];
}

function exportRoutes({ pool, downloadSecret, bases, exportSoon }: PersonalDataOptions): Route[] {
  const url = '/personal-data-export-requests';
  const kind = 'export';
  const response = exportRequest;
  const shared = { tags: ['personal data'], who: 'member', allowsDisabled: true } as const;
  const show = (request: PersonalRequest, community: Community, now: number): z.output<typeof response> => {
    const current = statusAt(request, now);
    const isReady = current === 'ready';
    return {
      request_id: request.requestId,
      status: current,
      error: request.error,
      bytes: isReady ? request.bytes : null,
      created_at: request.createdAt,
      started_at: request.startedAt,
      finished_at: request.finishedAt,
      expires_at: request.expiresAt,
      download_url: isReady ? linkTo(request, community, bases(), downloadSecret) : null,
    };
  };
  return [
    route({
      ...shared,
      method: 'POST',
      url,
      summary: 'Request a file of everything that is held about you',
      description:
        'A job makes a zip of JSON lines with a manifest. ' +
        'While a request of yours is open, a new one returns that one.',
      body: z.strictObject({}),
      status: 202,
      response,
      errors: ['QUOTA_EXCEEDED'],
      keepsRequestId: true,
      handler: async ({ community, pubkey, requestKey, now }) => {
        const waitingMax = community.settings['privacy.exportsWaitingMax'];
        const wanted = { community: community.id, pubkey, kind, requestKey, waitingMax } as const;
        const request = await requestPersonal(pool, wanted, now);
        if (isDenial(request)) return request;
        // The response does not wait for this. If it fails, the job still runs every minute.
        exportSoon().catch(() => undefined);
        return show(request, community, now);
      },
    }),
    route({
      ...shared,
      method: 'GET',
      url,
      summary: 'Your requests, newest first',
      query: pageQuery,
      response: pageOf(response),
      errors: [],
      handler: async ({ community, pubkey, query, now }) =>
        showPage(await listPersonal(pool, { community: community.id, pubkey, kind }, query), (request) =>
          show(request, community, now),
        ),
    }),
    route({
      ...shared,
      method: 'GET',
      url: `${url}/:request_id`,
      summary: 'One of your requests',
      params,
      response,
      errors: ['NOT_FOUND'],
      handler: async ({ community, pubkey, params: { request_id }, now }) => {
        const ref = { community: community.id, requestId: request_id, kind } as const;
        const request = await readPersonalRequest(pool, ref);
        return request?.pubkey === pubkey ? show(request, community, now) : denial('NOT_FOUND');
      },
    }),
    route({
      ...shared,
      method: 'POST',
      url: `${url}/:request_id/cancel`,
      summary: 'Cancel one of your requests',
      description: 'A file that is ready is deleted.',
      params,
      response,
      errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
      handler: async ({ community, pubkey, params: { request_id }, now }) => {
        const ref = { community: community.id, requestId: request_id, kind, pubkey } as const;
        const request = await cancelPersonal(pool, ref, now);
        return isDenial(request) ? request : show(request, community, now);
      },
    }),
  ];
}

// ── The file ───────────────────────────────────────────────────────────────────────────────────────────────

function tokenOf({ requestId, expiresAt }: PersonalRequest, secret: string): string {
  return createHmac('sha256', secret).update(`${requestId}.${expiresAt}`).digest('base64url');
}

function holds(token: string, request: PersonalRequest, secret: string): boolean {
  const [given, ours] = [Buffer.from(token), Buffer.from(tokenOf(request, secret))];
  return given.length === ours.length && timingSafeEqual(given, ours);
}

export function linkTo(
  request: PersonalRequest,
  community: Community,
  bases: readonly string[],
  secret: string,
): string {
  const base = toHttp(addressesOf(community, bases)[0]!).replace(/\/$/, '');
  return `${base}/v1/personal-data-exports/${request.requestId}/download?token=${tokenOf(request, secret)}`;
}

function downloadRoute({ pool, downloadSecret, downloadMsMax }: PersonalDataOptions): Route {
  const downloads = new Places({
    all: DOWNLOADS_MAX,
    perKey: DOWNLOADS_PER_KEY_MAX,
    ms: downloadMsMax ?? DOWNLOAD_MS_MAX,
  });
  return route({
    method: 'GET',
    url: '/personal-data-exports/:request_id/download',
    summary: 'The file of an export',
    description: 'The request shows this address (download_url) once the file is ready.',
    tags: ['personal data'],
    who: 'public',
    params,
    query: z.strictObject({ token: z.string().min(1).max(100) }),
    produces: { 'application/zip': binary },
    response: z.custom<Download>(),
    errors: ['NOT_FOUND', 'EXPIRED', 'BEING_ERASED'],
    handler: async ({ community, client, params: { request_id }, query: { token }, now }) => {
      const ref = { community: community.id, requestId: request_id, kind: 'export' } as const;
      const request = await readPersonalRequest(pool, ref);
      // Without its token, an existing file is answered as not found.
      if (request === undefined || !holds(token, request, downloadSecret)) return denial('NOT_FOUND');
      const { requestId, pubkey, bytes } = request;
      if ((await readMemberStatus(pool, community.id, pubkey)) === 'erasing') return denial('BEING_ERASED');
      const current = statusAt(request, now);
      if (current === 'expired') return denial('EXPIRED');
      if (current !== 'ready') return denial('NOT_FOUND');
      const keys = [`file ${requestId}`, `address ${client.rateKey}`];
      if (!downloads.hasRoom(keys)) return denial('RATE_LIMITED', { retry_after_seconds: 10 });
      const stream = Readable.from(portions(pool, requestId, bytes), { objectMode: false });
      downloads.hold(keys, stream);
      return new Download(stream, bytes, `minato-${community.slug}-${pubkey.slice(0, 16)}.zip`);
    },
  });
}

/** Reads the next portion only when the one before was sent. */
async function* portions(pool: Pool, requestId: string, bytes: number): AsyncGenerator<Buffer> {
  let sent = 0;
  for (let position = 0; sent < bytes; position += 1) {
    const portion = await readPortion(pool, requestId, position);
    if (portion === undefined) throw new Error('the file was deleted while it was being sent');
    sent += portion.length;
    yield portion;
  }
}
