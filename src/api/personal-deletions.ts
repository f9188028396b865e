/**
 * Asking for one's deletion. It is carried out by an erasure of the same id, which takes the request itself along: from then on the one
 * who asked is known by a keyed hash only, and may still see how far it has come and get the certificate.
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { SHOWN_STAGES } from '../core/erasure.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { deletionStatus, PERSONAL_STATUSES } from '../core/personal-data.js';
import { type Erasure, readErasure, readErasures, shownStage } from '../store/erasures.js';
import {
  askPersonal,
  cancelDeletion,
  listPersonal,
  type PersonalRequest,
  readPersonalRequest,
} from '../store/personal-requests.js';
import { certificateAnswer, sendCertificate } from './certificates.js';
import { type Call, type Route, route } from './contract.js';
import { milliseconds, pageOf, pageQuery, plainText } from './schemas.js';

const URL = '/personal-data-deletion-requests';
const KIND = 'deletion';

export interface PersonalDeletionOptions {
  readonly pool: Pool;
  /** Operators of every community: they are named by the environment of the node. */
  readonly adminPubkeys: readonly string[];
  /** The keyed hash of a key in a community, in hex; nothing while this instance does not have the key of the erased. */
  readonly hashOf: (community: number, pubkey: string) => Promise<string | undefined>;
  /** Wakes the job that carries erasures out. */
  readonly eraseSoon: () => Promise<void>;
}

const params = z.strictObject({ request_id: z.uuid() });
const deletionRequest = z.strictObject({
  request_id: z.uuid(),
  status: z
    .enum(PERSONAL_STATUSES)
    .describe('pending: it can be taken back; running: your data goes; done: all of it is gone'),
  note: z.string().nullable(),
  error: z.string().nullable().describe('Why it failed'),
  created_at: milliseconds,
  started_at: milliseconds.nullable(),
  finished_at: milliseconds.nullable(),
  erasure: z
    .strictObject({
      stage: z.enum(SHOWN_STAGES).describe('held: a legal duty stops it for now'),
      grace_until: milliseconds.describe('Until then you can take it back'),
      rows_counted: z.number().int().describe('What was found about you'),
      rows_deleted: z.number().int().describe('What of it is gone'),
    })
    .nullable()
    .describe('How it is carried out'),
});
type Shown = z.output<typeof deletionRequest>;

const FAILED = 'A part of the node did not do it yet. It is tried again; your operator sees why.';
const sum = (counts: Readonly<Record<string, number>>) =>
  Object.values(counts).reduce((all, one) => all + one, 0);

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

/** One that was taken back has ended too. */
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
      summary: 'Ask for everything that is held about you to be erased',
      description:
        'After the days of grace of this community (erasure.memberGraceDays) nothing of yours is taken in any more, everything is deleted, and a certificate is signed. While a request of yours is open, asking again gives that one.',
      body: z.strictObject({ note: plainText(1_000).optional().describe('For the operator') }),
      status: 202,
      response: deletionRequest,
      errors: ['FIXED_OPERATOR'],
      keepsRequestId: true,
      handler: async ({ community: { id: community, slug, settings }, pubkey, body, requestKey, now }) => {
        if (adminPubkeys.includes(pubkey)) return FIXED;
        const erasure = { slug, graceDays: settings['erasure.memberGraceDays'] };
        const asked = { community, pubkey, kind: KIND, note: body.note, requestKey, erasure } as const;
        const request = await askPersonal(pool, asked, now);
        if (isDenial(request)) return request;
        // Nobody waits for it: should it not be woken, it looks every minute by itself.
        eraseSoon().catch(() => undefined);
        return show(request, await readErasure(pool, request.requestId));
      },
    }),
    route({
      ...shared,
      method: 'GET',
      url: URL,
      summary: 'Your requests, the newest first',
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
      description: 'Sign with the same key also after the erasure: it is compared with a keyed hash.',
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
      summary: 'Take back one of your requests',
      description: 'Until the grace is over; not while it is held.',
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
    'Who is named there cannot be erased: take the key out of MINATO_ADMIN_PUBKEYS and start the node again first.',
});

/** By the request while there is one, else by the hash of the key that signs; another's is as unknown as one that never was. */
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
