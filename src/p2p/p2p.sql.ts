/**
 * The lease of the gossip endpoint with its offset in the outbox, and the machines of this database. Only the
 * holder of the lease saves an offset, so a former holder cannot move it back.
 */
import type { ClientBase, Pool } from 'pg';
import type { P2pState } from './rules-state.js';

type Db = ClientBase | Pool;

// ── Lease and offset ───────────────────────────────────────────────────────────────────────────────────────

export interface P2pLease {
  readonly holder: string | null;
  readonly beat: number;
  /** Null until gossip has started, and after it was switched off. */
  readonly lastSeq: number | null;
  readonly updatedAt: number;
}

export async function readP2pLease(db: Db): Promise<P2pLease> {
  const { rows } = await db.query<P2pLease>(
    'SELECT holder, beat, last_seq AS "lastSeq", updated_at AS "updatedAt" FROM p2p_lease',
  );
  return rows[0]!;
}

/** False if another instance was faster, or the holder has renewed it. */
export async function takeP2pLease(db: Db, seen: P2pLease, holder: string): Promise<boolean> {
  const { rowCount } = await db.query(
    `UPDATE p2p_lease SET holder = $1, beat = beat + 1
     WHERE holder IS NOT DISTINCT FROM $2::uuid AND beat = $3`,
    [holder, seen.holder, seen.beat],
  );
  return rowCount === 1;
}

/** False if another instance has taken it over. */
export async function renewP2pLease(db: Db, holder: string): Promise<boolean> {
  const { rowCount } = await db.query('UPDATE p2p_lease SET beat = beat + 1 WHERE holder = $1', [holder]);
  return rowCount === 1;
}

export async function releaseP2pLease(db: Db, holder: string): Promise<void> {
  await db.query('UPDATE p2p_lease SET holder = NULL WHERE holder = $1', [holder]);
}

/** False if another instance holds the lease. */
export async function saveP2pOffset(db: Db, holder: string, seq: number, now: number): Promise<boolean> {
  const { rowCount } = await db.query(
    'UPDATE p2p_lease SET last_seq = $2, updated_at = $3, beat = beat + 1 WHERE holder = $1',
    [holder, seq, now],
  );
  return rowCount === 1;
}

/** Gossip is switched off: when it is switched on again, it begins with what is posted then. */
export async function forgetP2pOffset(db: Db): Promise<void> {
  await db.query('UPDATE p2p_lease SET last_seq = NULL WHERE last_seq IS NOT NULL');
}

// ── Machines ───────────────────────────────────────────────────────────────────────────────────────────────

export interface P2pMachine {
  readonly machine: string;
  readonly seenAt: number;
  /** UDP addresses. */
  readonly addresses: readonly string[];
  /** The HTTP addresses at which this machine serves. */
  readonly bases: readonly string[];
  /** Of the machine that holds the lease, or held it last. */
  readonly state: P2pState | null;
}

export async function writeMachine(db: Db, machine: Omit<P2pMachine, 'state'>): Promise<void> {
  await db.query(
    `INSERT INTO p2p_machines AS m (machine, seen_at, addresses, bases) VALUES ($1, $2, $3, $4)
     ON CONFLICT (machine) DO UPDATE
     SET seen_at = excluded.seen_at, addresses = excluded.addresses, bases = excluded.bases`,
    [machine.machine, machine.seenAt, machine.addresses, machine.bases],
  );
}

/** Only one machine has a state: the one that holds the endpoint. */
export async function writeP2pState(db: Db, machine: string, state: P2pState, now: number): Promise<void> {
  await db.query(
    `UPDATE p2p_machines SET state = CASE WHEN machine = $1 THEN $2::jsonb END,
       seen_at = CASE WHEN machine = $1 THEN $3 ELSE seen_at END
     WHERE machine = $1 OR state IS NOT NULL`,
    [machine, JSON.stringify(state), now],
  );
}

/** The machines that were seen since then, the one with the endpoint first. Older ones are deleted. */
export async function listMachines(db: Db, since: number): Promise<P2pMachine[]> {
  const { rows } = await db.query<P2pMachine>(
    `SELECT machine, seen_at AS "seenAt", addresses, bases, state FROM p2p_machines
     WHERE seen_at >= $1 ORDER BY state IS NULL, machine`,
    [since],
  );
  return rows;
}

export async function forgetMachines(db: Db, seenBefore: number): Promise<void> {
  await db.query('DELETE FROM p2p_machines WHERE seen_at < $1', [seenBefore]);
}
