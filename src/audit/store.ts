/** The contract of both stores of the audit log, for erasures and retention. */
import type { AuditRows } from './audit.sql.js';

export interface PersonAuditRows extends AuditRows {
  readonly pubkey: string;
}

/** Every method rejects when the store does not respond. */
export interface AuditStore {
  count(rows: AuditRows): Promise<number>;
  /** When the newest of them was written. */
  youngest(rows: AuditRows): Promise<number | null>;
  /** Yields the number of deleted rows after each batch. A later error does not undo earlier batches. */
  delete(rows: AuditRows): AsyncGenerator<number>;
  /** Like `delete`, but keeps the rows: `alias` replaces the key, and the actor becomes null. */
  anonymise(rows: PersonAuditRows, alias: string): AsyncGenerator<number>;
}
