/**
 * One change of what instances hold in memory: a transaction that takes the row of `config_version` first, so that changes
 * follow one another and every check sees what was committed before. A denial takes everything back.
 */
import type { ClientBase, Pool, PoolClient } from 'pg';
import { type Denial, isDenial } from '../core/errors.js';
import type { AuditAction } from '../core/membership.js';
import { BEGIN_BRIEFLY, inTransaction } from './transaction.js';

export type Db = ClientBase | Pool;

/** Where and when; who is an operator's key, or nobody for the command line on the node's own machine. */
export interface Scope {
  readonly community: number;
  readonly actor?: string | undefined;
  readonly now: number;
}

export interface Change extends Scope {
  readonly db: PoolClient;
  /** Instances read everything anew: topics, settings, refused members, operators. */
  raiseVersion(): void;
  /** A member's rights to topics have changed. */
  raiseRights(): void;
  /** The operator's action, for the audit log. */
  audit(action: AuditAction, target: string, details?: Readonly<Record<string, unknown>>): Promise<void>;
}

// The lock is a statement of its own before any read: one that waits for it inside itself has taken its snapshot already.
const BEGIN_LOCKED = `${BEGIN_BRIEFLY};
  SELECT version FROM config_version FOR UPDATE`;

export function changeConfig<T>(
  pool: Pool,
  scope: Scope,
  work: (change: Change) => Promise<T | Denial>,
): Promise<T | Denial> {
  return inTransaction(pool, BEGIN_LOCKED, async (db) => {
    const raised = { version: 0, rights: 0 };
    const result = await work(changeOf(db, scope, raised));
    if (!isDenial(result)) await raise(db, raised);
    return result;
  });
}

function changeOf(db: PoolClient, scope: Scope, raised: { version: number; rights: number }): Change {
  return {
    ...scope,
    db,
    raiseVersion: () => {
      raised.version = 1;
    },
    raiseRights: () => {
      raised.rights = 1;
    },
    audit: async (action, target, details = {}) => {
      await db.query(
        `INSERT INTO audit_log (community, at, actor, action, target, details) VALUES ($1, $2, $3, $4, $5, $6)`,
        [scope.community, scope.now, bytesOrNull(scope.actor), action, target, JSON.stringify(details)],
      );
    },
  };
}

async function raise(db: PoolClient, raised: { version: number; rights: number }): Promise<void> {
  if (raised.version + raised.rights === 0) return;
  await db.query('UPDATE config_version SET version = version + $1, rights_version = rights_version + $2', [
    raised.version,
    raised.rights,
  ]);
}

/** What is no UUID is as unknown as one that never was. */
export function isUuid(text: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);
}

export function bytes(hex: string): Buffer {
  return Buffer.from(hex, 'hex');
}

export function bytesOrNull(hex: string | undefined): Buffer | null {
  return hex === undefined ? null : bytes(hex);
}
