/** What is erased, and the way of an erasure. */

/**
 * Whose data. `until` (seconds, as Nostr has them) bounds it to what is from then or before; without it everything of the member is
 * meant.
 */
export interface MemberSubject {
  readonly type: 'member';
  readonly community: number;
  readonly pubkey: string;
  readonly until?: number;
  /** Milliseconds: since then nothing of theirs is taken in, though how often they ask is still counted. */
  readonly fencedAt?: number;
  /** Milliseconds: when an erasure that is over had ended. Whoever came back since is as new as that. */
  readonly erasedAt?: number;
  /** They asked to vanish (NIP-62): the request itself stays for the operator, and so does its mark. */
  readonly vanishes?: boolean;
}

export interface CommunitySubject {
  readonly type: 'community';
  readonly community: number;
  readonly fencedAt?: number;
}

export type Subject = MemberSubject | CommunitySubject;

/** Times in milliseconds up to this one are meant: of what the node itself has noted, nothing from after the erasure. */
export function untilMs({ until, erasedAt = Number.MAX_SAFE_INTEGER }: MemberSubject): number {
  return until === undefined ? Number.MAX_SAFE_INTEGER : Math.min(until * 1_000 + 999, erasedAt);
}

/**
 * requested → (grace: it can be taken back) → fenced: nothing new is taken in → counted → deleting → verifying → completed. A hold or a
 * failure stops it where it stands.
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
/** As people are told it. */
export const SHOWN_STAGES = [...ERASURE_STAGES, 'held', 'failed'] as const;
export type ShownStage = (typeof SHOWN_STAGES)[number];

/** Who asked: the member, an operator, a request to vanish (NIP-62), or the proof of an earlier one after a restore. */
export const ERASURE_CAUSES = ['member', 'operator', 'vanish', 'replay'] as const;
export type ErasureCause = (typeof ERASURE_CAUSES)[number];

// ── The rows of a store add up ────────────────────────────────────────────────────────────────────────────────────

export type Counts = Readonly<Record<string, number>>;

/**
 * By the name of the store. After each count: counted + added = deleted + otherwise + what the count found.
 */
export interface Ledger {
  /** Found by the first count. */
  readonly counted: Counts;
  /** Came after the first count: the outbox rows of the deletes, or what was written meanwhile. */
  readonly added: Counts;
  readonly deleted: Counts;
  /** Gone, but not by a deleter of this erasure: a consumer, a job, or a time that was over. */
  readonly otherwise: Counts;
}

/**
 * Makes the ledger agree with what a count has found. Rows that came and went between two counts are in
 * neither.
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
