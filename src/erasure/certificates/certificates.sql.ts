/** The certificates of erasures, in the order in which they were signed. */
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
