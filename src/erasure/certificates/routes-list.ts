/** The certificates of a community over HTTP: the list, and whether one holds. They name nobody. */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../../api/contract.js';
import { isNodeOperator, type NodeOperators } from '../../api/node-operators.js';
import { denial } from '../../api/rules-errors.js';
import { milliseconds, pageOf, pageQuery, pubkey, showPage } from '../../api/schemas.js';
import { readDefaultCommunity } from '../../communities/communities.sql.js';
import type { NostrEvent } from '../../events/rules/event.js';
import { listKeys } from '../../keys/keys.sql.js';
import { readErasure } from '../erasures.sql.js';
import {
  knownCertificates,
  type ListedCertificate,
  listCertificatesOf,
  readCertificate,
} from './certificates.sql.js';
import { readDocument } from './files.js';
import { certificateProblems, rowsOf } from './rules.js';

const CERTIFICATES = '/admin/erasure-certificates';

export interface CertificateOptions extends NodeOperators {
  readonly pool: Pool;
}

const count = z.number().int();
const listed = z.strictObject({
  erasure_id: z.uuid(),
  certificate_id: z.string().describe('The id of the signed event'),
  position: count.describe('Its place among all certificates of the node'),
  community: z.string().describe('Its slug'),
  type: z.enum(['member', 'community']),
  requested_at: milliseconds,
  signed_at: milliseconds,
  stores: count.nullable(),
  rows_deleted: count.nullable().describe('Null: a version that this program does not know'),
});
const verification = z.strictObject({
  holds: z.boolean().describe('Nothing is wrong with it, and this node signed it'),
  problems: z.array(z.string()).describe('What is wrong with its id, signature or content'),
  signed_by: pubkey.nullable(),
  is_own_key: z.boolean().describe('The key is, or was, the one that this node signs certificates with'),
  previous: z.string().nullable().describe('The id of the certificate before it; null for the first one'),
  previous_known: z.boolean().nullable().describe('Whether that one is here; null for the first one'),
});

function show({
  requestedAt,
  erasureId,
  event,
  id,
  at,
  ...same
}: ListedCertificate): z.output<typeof listed> {
  const { certificate } = certificateProblems(JSON.parse(event) as NostrEvent);
  const rows = certificate === undefined ? undefined : rowsOf(certificate);
  return {
    erasure_id: erasureId,
    certificate_id: id,
    position: same.position,
    community: same.community,
    type: same.type,
    requested_at: requestedAt,
    signed_at: at,
    stores: rows?.length ?? null,
    rows_deleted: rows?.reduce((all, { deleted }) => all + deleted, 0) ?? null,
  };
}

export function certificateRoutes(options: CertificateOptions): Route[] {
  const { pool } = options;
  const shared = { tags: ['admin: erasures'], who: 'operator', method: 'GET', role: 'viewer' } as const;
  return [
    route({
      ...shared,
      url: CERTIFICATES,
      summary: 'Certificates of completed erasures, the newest request first',
      description: 'Operators of the node see those of whole communities as well, at the default community.',
      query: pageQuery,
      response: pageOf(listed),
      errors: [],
      handler: async (call) => {
        const of = { community: call.community.id, communities: isNodeOperator(options, call) };
        return showPage(await listCertificatesOf(pool, of, call.query), show);
      },
    }),
    route({
      ...shared,
      url: `${CERTIFICATES}/:erasure_id/verification`,
      summary: 'Whether a certificate holds',
      description: 'Checks its id, its signature, its sums and times, who signed it, and the one before it.',
      params: z.strictObject({ erasure_id: z.uuid() }),
      response: verification,
      errors: ['NOT_FOUND', 'NOT_READY'],
      handler: async (call) => {
        const erasure = await readErasure(pool, call.params.erasure_id);
        const isSeen =
          erasure?.community === call.community.id ||
          (erasure?.type === 'community' && isNodeOperator(options, call));
        if (erasure === undefined || !isSeen) return denial('NOT_FOUND');
        const kept = await readCertificate(pool, erasure.erasureId);
        return kept === undefined ? denial('NOT_READY') : verify(pool, kept.event);
      },
    }),
  ];
}

async function verify(pool: Pool, text: string): Promise<z.output<typeof verification>> {
  const { event, certificate, problems } = readDocument(text);
  const keys = await listKeys(pool, await readDefaultCommunity(pool));
  const signer = event?.pubkey ?? null;
  const isOwn = keys.some(({ purpose, pubkey: own }) => purpose === 'erasure' && own === signer);
  const previous = certificate?.previous ?? null;
  return {
    holds: problems.length === 0 && isOwn,
    problems: [...problems],
    signed_by: signer,
    is_own_key: isOwn,
    previous,
    previous_known: previous === null ? null : (await knownCertificates(pool, [previous])).has(previous),
  };
}
