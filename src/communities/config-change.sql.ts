/**
 * One change of what instances cache: a transaction that locks the row of `config_version` first. So changes
 * run one after another, and every check sees what was committed before. A denial rolls everything back.
 */
import type { Pool, PoolClient } from 'pg';
import { type Denial, isDenial } from '../api/rules-errors.js';
import type { AuditAction } from '../audit/rules.js';
import { LANE_LOCK } from '../events/postgres/lane/lock.js';
import { BEGIN_BRIEFLY, inTransaction } from '../postgres/transaction.js';
import { bytesOrNull } from '../postgres/values.js';

/**
 * Where and when the change happens. The actor is an operator's key; it is missing for the command line on
 * the node's machine.
 */
export interface Scope {
  readonly community: number;
  readonly actor?: string | undefined;
  readonly now: number;
}

export interface Change extends Scope {
  readonly db: PoolClient;
  /** Makes instances reload everything: topics, settings, refused members, operators. */
  raiseVersion(): void;
  /** Announces that a member's rights to topics have changed. */
  raiseRights(): void;
  /** Writes the operator's action to the audit log. */
  audit(action: AuditAction, target: string, details?: Readonly<Record<string, unknown>>): Promise<void>;
}

/** Where a change begins: its own transaction of a pool, or a part of a change that is open. */
export type Within = Pool | Change;

// The lock is a separate statement before any read: a statement that waits for it has already taken its
// snapshot.
const BEGIN_LOCKED = `${BEGIN_BRIEFLY};
  SELECT version FROM config_version FOR UPDATE`;

/**
 * No instance stores events during this change: what is committed later was decided with it. The lock of the
 * lane comes first, as when the lane itself changes the configuration.
 */
const BEGIN_BETWEEN_BATCHES = `${BEGIN_BRIEFLY};
  SELECT pg_advisory_xact_lock(${LANE_LOCK});
  SELECT version FROM config_version FOR UPDATE`;

/** A change that every event decided after its acknowledgement follows. */
export function changeBetweenBatches<T>(
  pool: Pool,
  scope: Scope,
  work: (change: Change) => Promise<T | Denial>,
): Promise<T | Denial> {
  return changeWithin(BEGIN_BETWEEN_BATCHES, pool, scope, work);
}

/** Within an open change the scope is the one of that change, and its denial rolls back both. */
export function changeConfig<T>(
  within: Within,
  scope: Scope,
  work: (change: Change) => Promise<T | Denial>,
): Promise<T | Denial> {
  return 'raiseVersion' in within ? work(within) : changeWithin(BEGIN_LOCKED, within, scope, work);
}

function changeWithin<T>(
  begin: string,
  pool: Pool,
  scope: Scope,
  work: (change: Change) => Promise<T | Denial>,
): Promise<T | Denial> {
  return inTransaction(pool, begin, async (db) => {
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
        `INSERT INTO audit_log (community, at, actor, action, target, details)
         VALUES ($1, $2, $3, $4, $5, $6)`,
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
