/** What operators did. Rows are written by the transactions of the actions themselves, and never change. */
import type { Denial } from '../core/errors.js';
import type { AuditAction } from '../core/membership.js';
import type { Db } from './config-change.js';
import { NEWEST_POSITION, type Page, type PageOf, readPage } from './page.js';

export interface AuditEntry {
  readonly position: number;
  readonly at: number;
  /** Nobody: the command line on the node's own machine. */
  readonly actor: string | null;
  readonly action: AuditAction;
  readonly target: string;
  readonly details: Readonly<Record<string, unknown>>;
}

/** The newest first. */
export function listAudit(db: Db, community: number, page: PageOf): Promise<Page<AuditEntry> | Denial> {
  return readPage(
    page,
    NEWEST_POSITION,
    ({ position }: AuditEntry) => [position],
    async ([before], limit) => {
      const { rows } = await db.query<AuditEntry>(
        `SELECT position, at, encode(actor, 'hex') AS actor, action, target, details FROM audit_log
         WHERE community = $1 AND position < $2 ORDER BY position DESC LIMIT $3`,
        [community, before, limit],
      );
      return rows;
    },
  );
}
