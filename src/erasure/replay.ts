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
import { countLeftovers, type ErasedSubject, type FoundAgain, findErased } from './reaudit.js';
import {
  erasedCommunities,
  keepProof,
  type Place,
  placeOf,
  refuseAgain,
  refusedUntil,
  takeUpAgain,
} from './replay.sql.js';
import type { DeletionRegistry } from './stores/deletion-registry.js';

export interface ReplayOptions {
  readonly pool: Pool;
  readonly client: Client;
  readonly subjectKey: SubjectKey;
  readonly registry: DeletionRegistry;
  readonly signal: AbortSignal;
  readonly now: () => number;
  /** Also those that the database knows: another store was restored, and PostgreSQL was not. */
  readonly all?: boolean;
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
  /** The database knows it. There is something to do only for a store that was restored without it. */
  readonly known: number;
  /** Of communities that are not here: nothing to do. */
  readonly elsewhere: number;
  /** The refusal is in force again; nothing of theirs was here. */
  readonly marked: number;
  /** Erasures that the job carries out again. */
  readonly again: readonly string[];
  /** Rows of erased communities that were deleted again. */
  readonly deleted: number;
}

type Forgotten = Proof & Place;

export async function replayErasures(options: ReplayOptions, proofs: readonly Proof[]): Promise<Replayed> {
  const { pool, now, subjectKey } = options;
  const [fingerprint] = proofs.map(({ certificate }) => certificate.subject.key);
  if (fingerprint === undefined) return { known: 0, elsewhere: 0, marked: 0, again: [], deleted: 0 };
  if (!(await subjectKey.load(fingerprint))) throw new SubjectKeyMissing(subjectKey.path, fingerprint);
  // From now on every instance needs the key.
  subjectKey.check(await fixSubjectFingerprint(pool, fingerprint));
  const places = await Promise.all(
    proofs.map(async (proof): Promise<Forgotten> => ({ ...proof, ...(await placeOf(pool, proof)) })),
  );
  const forgotten = places.filter(({ isKnown, community }) => !isKnown && community !== undefined);
  for (const { community, certificate } of forgotten) await refuseAgain(pool, community!, certificate, now());
  const again = [...(await members(options, forgotten)), ...(await communities(options, forgotten))];
  const known = places.filter(({ isKnown }) => isKnown);
  const { all = false } = options;
  const back = all ? await membersBack(options, known) : [];
  const deleted = all ? await deleteCommunitiesAgain(options) : 0;
  for (const proof of places) if (!proof.isKnown) await keepProof(pool, proof, now());
  const elsewhere = places.length - known.length - forgotten.length;
  const marked = forgotten.length - again.length;
  return { known: known.length, elsewhere, marked, again: [...again, ...back], deleted };
}

async function members(options: ReplayOptions, forgotten: readonly Forgotten[]): Promise<string[]> {
  return eraseAgain(options, await findErased(options, erasedMembers(forgotten)));
}

/** Members whose erasure the database knows, and of whom a store has rows from before. */
async function membersBack(options: ReplayOptions, known: readonly Forgotten[]): Promise<string[]> {
  const here = known.filter(({ community }) => community !== undefined);
  const found = await findErased(options, erasedMembers(here));
  const { leftovers, failed } = await countLeftovers(options.registry, found);
  for (const [name, why] of failed) throw new Error(`${name} could not be counted: ${why}`);
  const back = new Set(leftovers.map(({ pubkey }) => pubkey));
  return eraseAgain(
    options,
    found.filter(({ pubkey }) => back.has(pubkey)),
  );
}

/** Their certificates have no number, so the database names them. */
async function deleteCommunitiesAgain({ pool, registry, signal }: ReplayOptions): Promise<number> {
  let deleted = 0;
  for (const community of await erasedCommunities(pool)) {
    const subject = { type: 'community', community } as const;
    const { succeeded } = await registry.countAll(subject);
    if ([...succeeded.values()].every((count) => count === 0)) continue;
    const { failed } = await registry.deleteAll(subject, async (_store, taken) => {
      deleted += taken;
      signal.throwIfAborted();
    });
    for (const [name, why] of failed) throw new Error(`${name} could not be emptied: ${why}`);
  }
  return deleted;
}

function erasedMembers(forgotten: readonly Forgotten[]): ErasedSubject[] {
  return forgotten.flatMap(({ community, certificate: { subject, until, cause, completed_at } }) =>
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
}

async function eraseAgain(options: ReplayOptions, found: readonly FoundAgain[]): Promise<string[]> {
  const again: string[] = [];
  for (const { community, pubkey, until, vanishes } of found) {
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
