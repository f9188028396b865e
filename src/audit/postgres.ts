/** The audit log in PostgreSQL, where every row is written first. */
import type { Pool } from 'pg';
import {
  type AuditKey,
  type AuditRows,
  type AuditStretch,
  anonymiseAudit,
  countAudit,
  deleteAudit,
  findYoungest,
} from './audit.sql.js';
import type { AuditStore, PersonAuditRows } from './store.js';

/** Rows that one transaction reads. */
const STRETCH_ROWS = 500;

export class PostgresAudit implements AuditStore {
  constructor(private readonly pool: Pool) {}

  count(rows: AuditRows): Promise<number> {
    return countAudit(this.pool, rows);
  }

  youngest(rows: AuditRows): Promise<number | null> {
    return findYoungest(this.pool, rows);
  }

  delete(rows: AuditRows): AsyncGenerator<number> {
    return walk((after) => deleteAudit(this.pool, rows, after, STRETCH_ROWS));
  }

  anonymise(rows: PersonAuditRows, alias: string): AsyncGenerator<number> {
    return walk((after) => anonymiseAudit(this.pool, rows, alias, after, STRETCH_ROWS));
  }
}

/** Walks from the oldest row on, and looks at each row once. */
async function* walk(
  stretch: (after: AuditKey) => Promise<AuditStretch | undefined>,
): AsyncGenerator<number> {
  for (let after: AuditKey = [0, 0]; ; ) {
    const walked = await stretch(after);
    if (walked === undefined) return;
    if (walked.taken > 0) yield walked.taken;
    after = walked.last;
  }
}
