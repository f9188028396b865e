/**
 * After a restore from a backup: what was erased since is here again. The certificates, which lie beside the database, tell of whom by a
 * keyed hash and up to when; so everybody who is here is compared, and whoever was erased is erased again.
 */
import type { Client, Pool } from 'pg';
import type { Certificate } from '../core/certificate.js';
import { settleReplayed, takeUpReplayed } from '../store/erasure-replay.js';
import { fixSubjectPrint } from '../store/node-state.js';
import { type SubjectKey, SubjectKeyMissing } from '../subject-key.js';
import type { DeletionRegistry } from './deletion-registry.js';
import { type ErasedSubject, findErased } from './reaudit.js';

export interface ReplayOptions {
  readonly pool: Pool;
  readonly client: Client;
  readonly subjectKey: SubjectKey;
  readonly registry: DeletionRegistry;
  readonly signal: AbortSignal;
  readonly now: () => number;
}

/** A certificate with its signature checked, and the event that it stands in. */
export interface Proof {
  readonly certificate: Certificate;
  readonly id: string;
  /** The event, as JSON. */
  readonly event: string;
}

export interface Replayed {
  /** Known to the database, so nothing was forgotten. */
  readonly known: number;
  /** Of communities that are not here: nothing to do. */
  readonly elsewhere: number;
  /** The refusal is in force again; nothing of theirs was here. */
  readonly marked: number;
  /** Erasures that were taken up again: they are carried out by the job. */
  readonly again: readonly string[];
}

export async function replayErasures(options: ReplayOptions, proofs: readonly Proof[]): Promise<Replayed> {
  const { pool, now, subjectKey } = options;
  if (!(await subjectKey.load())) throw new SubjectKeyMissing(subjectKey.path, false);
  // From here on every instance needs it.
  subjectKey.check(await fixSubjectPrint(pool, subjectKey.print!));
  const settled = await settleReplayed(pool, proofs, now());
  const erased = settled.missing.filter(
    (one): one is typeof one & { until: number } => one.type === 'member' && one.until !== null,
  );
  const found = await findErased(
    options,
    erased.map(
      ({ community, subject, until }): ErasedSubject => ({ community, subject, until, vanishes: false }),
    ),
  );
  const again: string[] = [];
  for (const { community, pubkey, until } of found)
    again.push(...(await takeUpReplayed(pool, { community, pubkey, until }, now())));
  for (const { community, type } of settled.missing)
    if (type === 'community') again.push(...(await takeUpReplayed(pool, { community }, now())));
  return {
    known: settled.known,
    elsewhere: settled.elsewhere,
    marked: settled.missing.length - again.length,
    again,
  };
}
