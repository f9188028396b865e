/** What is erased, the stages of an erasure, and how its rows add up. */

/**
 * Whose data. `until` (seconds, as in Nostr) limits it to what is from then or before; without it everything.
 */
export interface MemberSubject {
  readonly type: 'member';
  readonly community: number;
  readonly pubkey: string;
  readonly until?: number;
  /** Milliseconds: since then nothing of theirs is accepted, but the rates of their requests are counted. */
  readonly fencedAt?: number;
  /**
   * Milliseconds: when a completed erasure ended. What a member who came back has made since is not erased.
   */
  readonly erasedAt?: number;
  /** A request to vanish (NIP-62): the request itself and its mark stay for the operator. */
  readonly vanishes?: boolean;
}

export interface CommunitySubject {
  readonly type: 'community';
  readonly community: number;
  readonly fencedAt?: number;
}

export type Subject = MemberSubject | CommunitySubject;

/** The same limit in milliseconds, for rows that the node itself has written. */
export function untilMs({ until, erasedAt = Number.MAX_SAFE_INTEGER }: MemberSubject): number {
  return until === undefined ? Number.MAX_SAFE_INTEGER : Math.min(until * 1_000 + 999, erasedAt);
}

/**
 * requested → (grace: it can be cancelled) → fenced: nothing new is accepted → counted → deleting →
 * verifying → completed. A hold or a failure stops it in its stage.
 */
export const ERASURE_STAGES = [
  'requested',
  'grace',
  'fenced',
  'counted',
  'deleting',
  'verifying',
  'completed',
  'cancelled',
] as const;
export type ErasureStage = (typeof ERASURE_STAGES)[number];
/** As people see it. */
export const SHOWN_STAGES = [...ERASURE_STAGES, 'held', 'failed'] as const;
export type ShownStage = (typeof SHOWN_STAGES)[number];

/**
 * Who requested it: the member, an operator, a request to vanish (NIP-62), or a certificate after a restore.
 */
export const ERASURE_CAUSES = ['member', 'operator', 'vanish', 'replay'] as const;
export type ErasureCause = (typeof ERASURE_CAUSES)[number];

// ── The rows of a store add up ─────────────────────────────────────────────────────────────────────────────

export type Counts = Readonly<Record<string, number>>;

export const sum = (counts: Counts): number => Object.values(counts).reduce((all, one) => all + one, 0);

/**
 * By the name of the store. After each count: counted + added = deleted + otherwise + what the count found.
 */
export interface Ledger {
  /** Found by the first count. */
  readonly counted: Counts;
  /** Added after the first count: the outbox rows of the deletes, or rows that were written meanwhile. */
  readonly added: Counts;
  readonly deleted: Counts;
  /** Deleted by something else than this erasure: a consumer, a job, or an expiry. */
  readonly otherwise: Counts;
}

/**
 * Makes the ledger agree with what a count has found. Rows that were added and deleted between two counts are
 * in neither.
 */
export function settle(
  { counted, added, deleted, otherwise }: Ledger,
  found: Iterable<readonly [store: string, rows: number]>,
): Pick<Ledger, 'counted' | 'added' | 'otherwise'> {
  const after = { counted: { ...counted }, added: { ...added }, otherwise: { ...otherwise } };
  for (const [store, rows] of found) {
    const first = counted[store];
    const gone = (deleted[store] ?? 0) + (otherwise[store] ?? 0);
    if (first === undefined) {
      after.counted[store] = rows + gone;
      continue;
    }
    const more = rows + gone - first - (added[store] ?? 0);
    if (more > 0) after.added[store] = (added[store] ?? 0) + more;
    if (more < 0) after.otherwise[store] = (otherwise[store] ?? 0) - more;
  }
  return after;
}

// ── Steps ──────────────────────────────────────────────────────────────────────────────────────────────────

/** How the size of batches follows the time that they take. */
export interface Pace {
  /** How long a batch should take. */
  readonly batchMs: number;
  /** A batch has at most this many times the rows of the first. */
  readonly growthMax: number;
  /** One slow or fast batch says little: the size changes by this factor at most. */
  readonly changeMax: number;
}

/** A client's OK may wait for the batch, and for the batch of events before it. */
export const IN_LANE: Pace = { batchMs: 50, growthMax: 20, changeMax: 2 };
/**
 * Nobody waits for the batch, except a consumer that changes one of its rows. Large batches: each one begins
 * with a walk over what the batches before it have deleted.
 */
export const BESIDE_LANE: Pace = { batchMs: 500, growthMax: 100, changeMax: 10 };

/**
 * How many rows the next batch takes, after one of `rows` rows took `tookMs`. Never fewer than the first: on
 * a busy machine a small batch mostly waits, and an even smaller one would take no less.
 */
export function nextRows(
  rows: number,
  tookMs: number,
  firstRows: number,
  { batchMs, growthMax, changeMax }: Pace = IN_LANE,
): number {
  const factor = Math.min(changeMax, Math.max(1 / changeMax, batchMs / Math.max(1, tookMs)));
  return Math.max(firstRows, Math.min(firstRows * growthMax, Math.round(rows * factor)));
}
