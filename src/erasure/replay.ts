/**
 * After a restore from a backup, rows of members who were erased since are here again. The certificates
 * outside the database name them by a keyed hash, with `until`. So every key in the database is compared, and
 * erased members are erased again.
 *
 * The marks are written first, so that nothing more is accepted. The certificates are stored last, so that an
 * interrupted replay is repeated.
 */
import type { Client, Pool } from 'pg';
import { type SubjectKey, SubjectKeyMissing } from '../keys/subject-key.js';
import { fixSubjectFingerprint } from '../node/state.sql.js';
import type { Certificate } from './certificates/rules.js';
import { findErased } from './reaudit.js';
import { keepProof, type Place, placeOf, refuseAgain, refusedUntil, takeUpAgain } from './replay.sql.js';
import type { DeletionRegistry } from './stores/deletion-registry.js';

export interface ReplayOptions {
  readonly pool: Pool;
  readonly client: Client;
  readonly subjectKey: SubjectKey;
  readonly registry: DeletionRegistry;
  readonly signal: AbortSignal;
  readonly now: () => number;
}

/** A certificate whose signature was checked, and its event. */
export interface Proof {
  readonly certificate: Certificate;
  readonly id: string;
  readonly pubkey: string;
  /** The event, as JSON. */
  readonly event: string;
}

export interface Replayed {
  /** The database knows it: nothing to do. */
  readonly known: number;
  /** Of communities that are not here: nothing to do. */
  readonly elsewhere: number;
  /** The refusal is in force again; nothing of theirs was here. */
  readonly marked: number;
  /** Erasures that the job carries out again. */
  readonly again: readonly string[];
}

type Forgotten = Proof & Place;

export async function replayErasures(options: ReplayOptions, proofs: readonly Proof[]): Promise<Replayed> {
  const { pool, now, subjectKey } = options;
  const [fingerprint] = proofs.map(({ certificate }) => certificate.subject.key);
  if (fingerprint === undefined) return { known: 0, elsewhere: 0, marked: 0, again: [] };
  if (!(await subjectKey.load(fingerprint))) throw new SubjectKeyMissing(subjectKey.path, fingerprint);
  // From now on every instance needs the key.
  subjectKey.check(await fixSubjectFingerprint(pool, fingerprint));
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

/** A community of the same name that was made later is another one: the hash is of its id. */
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
