/**
 * Requests of members for the deletion of their data. An erasure with the same id carries the request out and
 * deletes the request too. From then on the node knows the member only by a keyed hash. The member can still
 * see the state of the erasure and get the certificate.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Call, type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, plainText } from '../api/schemas.js';
import { certificateAnswer, sendCertificate } from '../erasure/certificates/routes.js';
import { type Erasure, readErasure, readErasures, shownStage } from '../erasure/erasures.sql.js';
import { SHOWN_STAGES, sum } from '../erasure/rules.js';
import {
  cancelDeletion,
  listPersonal,
  type PersonalRequest,
  readPersonalRequest,
  requestPersonal,
} from './requests.sql.js';
import { deletionStatus, PERSONAL_STATUSES } from './rules.js';

const URL = '/personal-data-deletion-requests';
const KIND = 'deletion';

export interface PersonalDeletionOptions {
  readonly pool: Pool;
  /** Operators of every community, from the environment of the node. */
  readonly adminPubkeys: readonly string[];
  /**
   * The keyed hash of a public key in a community, in hex. Undefined while this instance does not have the
   * erasure key.
   */
  readonly hashOf: (community: number, pubkey: string) => Promise<string | undefined>;
  /** Wakes the job that carries out erasures. */
  readonly eraseSoon: () => Promise<void>;
}

const params = z.strictObject({ request_id: z.uuid() });
const deletionRequest = z.strictObject({
  request_id: z.uuid(),
  status: z
    .enum(PERSONAL_STATUSES)
    .describe('pending: you can cancel it; running: your data is being deleted; done: everything is deleted'),
  note: z.string().nullable(),
  error: z.string().nullable().describe('Why it failed'),
  created_at: milliseconds,
  started_at: milliseconds.nullable(),
  finished_at: milliseconds.nullable(),
  erasure: z
    .strictObject({
      stage: z.enum(SHOWN_STAGES).describe('held: a legal hold pauses it'),
      grace_until: milliseconds.describe('Until then you can cancel it'),
      rows_counted: z.number().int().describe('Rows found about you'),
      rows_deleted: z.number().int().describe('Rows deleted so far'),
    })
    .nullable()
    .describe('How it is carried out'),
});
type Shown = z.output<typeof deletionRequest>;

const FAILED = 'One store could not delete its rows yet. The node tries again; your operator can see why.';

function showErased(erasure: Erasure): Shown {
  const stage = shownStage(erasure);
  return {
    request_id: erasure.erasureId,
    status: deletionStatus(stage, erasure.fencedAt !== null),
    note: null,
    error: stage === 'failed' ? FAILED : null,
    created_at: erasure.requestedAt,
    started_at: erasure.fencedAt,
    finished_at: erasure.completedAt,
    erasure: {
      stage,
      grace_until: erasure.graceUntil,
      rows_counted: sum(erasure.counted) + sum(erasure.added),
      rows_deleted: sum(erasure.deleted),
    },
  };
}

function show(request: PersonalRequest, erasure: Erasure | undefined): Shown {
  const { requestId, status, note, error, createdAt, startedAt, finishedAt } = request;
  if (erasure !== undefined)
    return { ...showErased(erasure), note, created_at: createdAt, ...ended(erasure, finishedAt) };
  return {
    request_id: requestId,
    status,
    note,
    error,
    created_at: createdAt,
    started_at: startedAt,
    finished_at: finishedAt,
    erasure: null,
  };
}

/** A cancelled erasure has ended too. */
const ended = ({ stage }: Erasure, finishedAt: number | null) =>
  stage === 'cancelled' ? { finished_at: finishedAt } : {};

type Mine = Pick<Call<'member'>, 'community' | 'pubkey'> & {
  readonly params: z.output<typeof params>;
};

export function personalDeletionRoutes(options: PersonalDeletionOptions): Route[] {
  const { pool, adminPubkeys, eraseSoon } = options;
  const shared = { tags: ['personal data'], who: 'member', allowsDisabled: true } as const;
  return [
    route({
      ...shared,
      method: 'POST',
      url: URL,
      summary: 'Request the erasure of everything that is held about you',
      description:
        'After the grace period of this community (erasure.memberGraceDays) the node accepts nothing more ' +
        'from you, deletes everything and signs a certificate. ' +
        'While a request of yours is open, a new one returns that one.',
      body: z.strictObject({ note: plainText(1_000).optional().describe('For the operator') }),
      status: 202,
      response: deletionRequest,
      errors: ['FIXED_OPERATOR'],
      keepsRequestId: true,
      handler: async ({ community: { id: community, slug, settings }, pubkey, body, requestKey, now }) => {
        if (adminPubkeys.includes(pubkey)) return FIXED;
        const erasure = { slug, graceDays: settings['erasure.memberGraceDays'] };
        const wanted = { community, pubkey, kind: KIND, note: body.note, requestKey, erasure } as const;
        const request = await requestPersonal(pool, wanted, now);
        if (isDenial(request)) return request;
        // The response does not wait for this. If it fails, the job still runs every minute.
        eraseSoon().catch(() => undefined);
        return show(request, await readErasure(pool, request.requestId));
      },
    }),
    route({
      ...shared,
      method: 'GET',
      url: URL,
      summary: 'Your requests, newest first',
      query: pageQuery,
      response: pageOf(deletionRequest),
      errors: [],
      handler: async ({ community, pubkey, query }) => {
        const page = await listPersonal(pool, { community: community.id, pubkey, kind: KIND }, query);
        if (isDenial(page)) return page;
        const erasures = await readErasures(
          pool,
          page.items.map(({ requestId }) => requestId),
        );
        const items = page.items.map((request) => show(request, erasures.get(request.requestId)));
        return { items, next_cursor: page.cursor ?? null };
      },
    }),
    route({
      ...shared,
      allowsErased: true,
      method: 'GET',
      url: `${URL}/:request_id`,
      summary: 'One of your requests',
      description: 'After the erasure, sign with the same key: the node compares its keyed hash.',
      params,
      response: deletionRequest,
      errors: ['NOT_FOUND', 'UNAVAILABLE'],
      handler: (call) => readMine(options, call),
    }),
    route({
      ...shared,
      ...certificateAnswer,
      allowsErased: true,
      method: 'GET',
      url: `${URL}/:request_id/certificate`,
      summary: 'The certificate of your erasure',
      description: 'A signed event, or with Accept: text/html a page to print.',
      params,
      errors: ['NOT_FOUND', 'NOT_READY', 'UNAVAILABLE'],
      handler: async (call) => {
        const mine = await readMine(options, call);
        return isDenial(mine) ? mine : sendCertificate(pool, mine.request_id, call.type);
      },
    }),
    route({
      ...shared,
      method: 'POST',
      url: `${URL}/:request_id/cancel`,
      summary: 'Cancel one of your requests',
      description: 'Possible until the grace period ends, and not while a legal hold pauses it.',
      params,
      response: deletionRequest,
      errors: ['NOT_FOUND', 'STATUS_CONFLICT'],
      handler: async ({ community, pubkey, params: { request_id }, now }) => {
        const ref = { community: community.id, requestId: request_id, kind: KIND, pubkey } as const;
        const request = await cancelDeletion(pool, ref, now);
        return isDenial(request) ? request : show(request, await readErasure(pool, request_id));
      },
    }),
  ];
}

const FIXED = denial('FIXED_OPERATOR', {
  explanation:
    'A key that is listed there cannot be erased: ' +
    'remove it from MINATO_ADMIN_PUBKEYS and restart the node first.',
});

/**
 * Finds the erasure by the request while that exists, else by the hash of the key that signs. Another
 * member's request is answered as not found.
 */
async function readMine(
  { pool, hashOf }: PersonalDeletionOptions,
  { community, pubkey, params: { request_id } }: Mine,
): Promise<Shown | Denial> {
  const ref = { community: community.id, requestId: request_id, kind: KIND } as const;
  const request = await readPersonalRequest(pool, ref);
  const erasure = await readErasure(pool, request_id);
  if (request !== undefined) return request.pubkey === pubkey ? show(request, erasure) : denial('NOT_FOUND');
  if (erasure?.community !== community.id || erasure.subject === null) return denial('NOT_FOUND');
  const subject = await hashOf(community.id, pubkey);
  if (subject === undefined) return denial('UNAVAILABLE');
  return subject === erasure.subject ? showErased(erasure) : denial('NOT_FOUND');
}
