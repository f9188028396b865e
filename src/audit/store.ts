/** What both stores of the audit log can do, for an erasure and for the end of what is kept. */
import type { AuditRows } from '../store/audit.js';

export interface PersonAuditRows extends AuditRows {
  readonly pubkey: string;
}

/** All reject when the store does not answer. */
export interface AuditStore {
  count(rows: AuditRows): Promise<number>;
  /** When the youngest of them was written. */
  youngest(rows: AuditRows): Promise<number | null>;
  /** Gives after each batch how many rows went in it. What fails later does not take that back. */
  delete(rows: AuditRows): AsyncGenerator<number>;
  /** The same, but the rows stay: `alias` takes the place of the key, and as the actor nobody. */
  anonymise(rows: PersonAuditRows, alias: string): AsyncGenerator<number>;
}
