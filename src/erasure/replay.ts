/**
 * After a restore from a backup: what was erased since is here again. The certificates, which lie beside the database, tell of whom by a
 * keyed hash and up to when; so everybody who is here is compared, and whoever was erased is erased again.
 *
 * The marks come first, so that nothing more comes in; the proofs are kept last, so that a replay which was cut off is done again.
 */
import type { Client, Pool } from 'pg';
import type { Certificate } from '../core/certificate.js';
import {
  keepProof,
  type Place,
  placeOf,
  refuseAgain,
  refusedUntil,
  takeUpAgain,
} from '../store/erasure-replay.js';
import { fixSubjectPrint } from '../store/node-state.js';
import { type SubjectKey, SubjectKeyMissing } from '../subject-key.js';
import type { DeletionRegistry } from './deletion-registry.js';
import { findErased } from './reaudit.js';

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
  readonly pubkey: string;
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

type Forgotten = Proof & Place;

export async function replayErasures(options: ReplayOptions, proofs: readonly Proof[]): Promise<Replayed> {
  const { pool, now, subjectKey } = options;
  const [print] = proofs.map(({ certificate }) => certificate.subject.key);
  if (print === undefined) return { known: 0, elsewhere: 0, marked: 0, again: [] };
  if (!(await subjectKey.load(print))) throw new SubjectKeyMissing(subjectKey.path, print);
  // From here on every instance needs it.
  subjectKey.check(await fixSubjectPrint(pool, print));
  const places = await Promise.all(
    proofs.map(async (proof): Promise<Forgotten> => ({ ...proof, ...(await placeOf(pool, proof)) })),
  );
  const forgotten = places.filter(({ isKnown, community }) => !isKnown && community !== undefined);
  for (const { community, certificate } of forgotten) await refuseAgain(pool, community!, certificate, now());
  const again = [...(await members(options, forgotten)), ...(await communities(options, forgotten))];
  for (const proof of places) if (!proof.isKnown) await keepProof(pool, proof, now());
  const known = places.filter(({ isKnown }) => isKnown).length;
  const elsewhere = places.length - known - forgotten.length;
  return { known, elsewhere, marked: forgotten.length - again.length, again };
}

async function members(options: ReplayOptions, forgotten: readonly Forgotten[]): Promise<string[]> {
  const erased = forgotten.flatMap(({ community, certificate: { subject, until, cause, completed_at } }) =>
    subject.type === 'member' && until !== null
      ? [
          {
            community: community!,
            subject: subject.hash,
            until,
            erasedAt: completed_at,
            vanishes: cause === 'vanish',
          },
        ]
      : [],
  );
  const again: string[] = [];
  for (const { community, pubkey, until, vanishes } of await findErased(options, erased)) {
    const cause = vanishes ? 'vanish' : 'replay';
    again.push(await takeUpAgain(options.pool, { community, pubkey, until, cause }, options.now()));
  }
  return again;
}

/** A community of the same name that was made since is another one: the hash is of its number. */
async function communities(
  { pool, subjectKey, now }: ReplayOptions,
  forgotten: readonly Forgotten[],
): Promise<string[]> {
  const again: string[] = [];
  for (const { community, certificate } of forgotten) {
    const { type, hash } = certificate.subject;
    if (type !== 'community' || subjectKey.hash(community!).toString('hex') !== hash) continue;
    const until = refusedUntil(certificate)!;
    again.push(await takeUpAgain(pool, { community: community!, until, cause: 'replay' }, now()));
  }
  return again;
}
