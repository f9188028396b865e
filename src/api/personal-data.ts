/**
 * What people may ask about their own data: a file of everything that is held about them, and (personal-deletions.ts) its
 * deletion. It stays possible for an account that is disabled or deleted: what is here of a person is theirs to ask for. The link to a file carries its own proof, so that a browser can follow it; it holds as long as the
 * file does, on every instance, and says nothing about files to those who have none.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { Readable } from 'node:stream';
import type { Pool } from 'pg';
import { z } from 'zod';
import { addressesOf, toHttp } from '../addresses.js';
import type { Community } from '../communities.js';
import { denial, isDenial } from '../core/errors.js';
import { PERSONAL_STATUSES, statusAt } from '../core/personal-data.js';
import { readMemberStatus } from '../store/members.js';
import {
  askPersonal,
  cancelPersonal,
  listPersonal,
  type PersonalRequest,
  readPersonalRequest,
  readPortion,
} from '../store/personal-requests.js';
import { binary, Download, type Route, route } from './contract.js';
import { type PersonalDeletionOptions, personalDeletionRoutes } from './personal-deletions.js';
import { Places } from './places.js';
import { milliseconds, pageOf, pageQuery, showPage } from './schemas.js';

/** At the same time, in all and of one file or by one address: each holds a portion or two in memory. */
const DOWNLOADS_MAX = 64;
const DOWNLOADS_PER_KEY_MAX = 4;
/** A reader who takes a little now and then is never stalled, and still not to hold a place for ever. */
const DOWNLOAD_MS_MAX = 6 * 3_600_000;

export interface PersonalDataOptions extends PersonalDeletionOptions {
  /** The node's own addresses. */
  readonly bases: () => readonly string[];
  /** Links are signed with it. */
  readonly downloadSecret: string;
  /** Wakes the job that makes the files. */
  readonly exportSoon: () => Promise<void>;
  /** Longest duration of one download; six hours unless told. */
  readonly downloadMsMax?: number;
}

const params = z.strictObject({ request_id: z.uuid() });
const status = z.enum(PERSONAL_STATUSES);

const exportRequest = z.strictObject({
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
    .describe('Once it is ready; works without a signature, so keep it to yourself'),
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
      summary: 'Ask for a file of everything that is held about you',
      description:
        'A job makes it: a zip of JSON lines, with a manifest. While a request of yours is open, asking again gives that one.',
      body: z.strictObject({}),
      status: 202,
      response,
      errors: ['QUOTA_EXCEEDED'],
      keepsRequestId: true,
      handler: async ({ community, pubkey, requestKey, now }) => {
        const waitingMax = community.settings['privacy.exportsWaitingMax'];
        const asked = { community: community.id, pubkey, kind, requestKey, waitingMax } as const;
        const request = await askPersonal(pool, asked, now);
        if (isDenial(request)) return request;
        // Nobody waits for it: should it not be woken, it looks every minute by itself.
        exportSoon().catch(() => undefined);
        return show(request, community, now);
      },
    }),
    route({
      ...shared,
      method: 'GET',
      url,
      summary: 'Your requests, the newest first',
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
      summary: 'Take back one of your requests',
      description: 'A file that is ready is thrown away.',
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

// ── The file ──────────────────────────────────────────────────────────────────────────────────────────────────────

function tokenOf({ requestId, expiresAt }: PersonalRequest, secret: string): string {
  return createHmac('sha256', secret).update(`${requestId}.${expiresAt}`).digest('base64url');
}

function holds(token: string, request: PersonalRequest, secret: string): boolean {
  const [given, ours] = [Buffer.from(token), Buffer.from(tokenOf(request, secret))];
  return given.length === ours.length && timingSafeEqual(given, ours);
}

function linkTo(
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
    description: 'The address comes with the request, once it is ready.',
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
      // Without its token a file is as unknown as one that never was.
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

/** The next portion is read once the one before has been taken. */
async function* portions(pool: Pool, requestId: string, bytes: number): AsyncGenerator<Buffer> {
  let sent = 0;
  for (let position = 0; sent < bytes; position += 1) {
    const portion = await readPortion(pool, requestId, position);
    if (portion === undefined) throw new Error('the file was taken away while it was sent');
    sent += portion.length;
    yield portion;
  }
}
