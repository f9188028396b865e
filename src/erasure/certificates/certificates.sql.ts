/** The certificates of erasures, in the order in which they were signed. */
import type { Denial } from '../../api/rules-errors.js';
import { NEWEST_FIRST, type Page, type PageOf, readPage } from '../../postgres/page.js';
import type { Db } from '../../postgres/values.js';

export interface KeptCertificate {
  readonly position: number;
  readonly at: number;
  readonly erasureId: string;
  readonly id: string;
  /** The signed event, as JSON. */
  readonly event: string;
}

const COLUMNS = `position, at, erasure_id AS "erasureId", encode(certificate_id, 'hex') AS id, event`;

export async function listCertificates(
  db: Db,
  { after, limit }: { readonly after: number; readonly limit: number },
): Promise<KeptCertificate[]> {
  const { rows } = await db.query<KeptCertificate>(
    `SELECT ${COLUMNS} FROM erasure_certificates WHERE position > $1 ORDER BY position LIMIT $2`,
    [after, limit],
  );
  return rows;
}

export interface ListedCertificate extends KeptCertificate {
  /** Its slug. */
  readonly community: string;
  readonly type: 'member' | 'community';
  readonly requestedAt: number;
}

/** Of one community, newest request first; `communities`: those of whole communities as well. */
export function listCertificatesOf(
  db: Db,
  { community, communities }: { readonly community: number; readonly communities: boolean },
  page: PageOf,
): Promise<Page<ListedCertificate> | Denial> {
  return readPage(
    page,
    NEWEST_FIRST,
    ({ requestedAt, erasureId }: ListedCertificate) => [requestedAt, erasureId],
    async ([before, id], limit) => {
      const { rows } = await db.query<ListedCertificate>(
        `SELECT c.position, c.at, e.erasure_id AS "erasureId", encode(c.certificate_id, 'hex') AS id, c.event,
           e.slug AS community, e.type, e.requested_at AS "requestedAt"
         FROM erasures e JOIN erasure_certificates c ON c.erasure_id = e.erasure_id
         WHERE (e.community = $1 OR ($5 AND e.type = 'community'))
           AND (e.requested_at, e.erasure_id) < ($2, $3::uuid)
         ORDER BY e.requested_at DESC, e.erasure_id DESC LIMIT $4`,
        [community, before, id, limit, communities],
      );
      return rows;
    },
  );
}

/** Those of the ids that are here. */
export async function knownCertificates(db: Db, ids: readonly string[]): Promise<ReadonlySet<string>> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT encode(certificate_id, 'hex') AS id FROM erasure_certificates WHERE certificate_id = ANY ($1)`,
    [ids.map((id) => Buffer.from(id, 'hex'))],
  );
  return new Set(rows.map(({ id }) => id));
}

export async function readCertificate(db: Db, erasureId: string): Promise<KeptCertificate | undefined> {
  const { rows } = await db.query<KeptCertificate>(
    `SELECT ${COLUMNS} FROM erasure_certificates WHERE erasure_id = $1`,
    [erasureId],
  );
  return rows[0];
}
