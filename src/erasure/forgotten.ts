/**
 * Finds certificates in the data folder that the database does not know: it was restored from a backup made
 * before those erasures, or it is another database. The file is read line by line, because it has every
 * erasure that the node has ever completed.
 */
import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import type { Pool } from 'pg';
import { readDefaultCommunity, readMadeAt } from '../communities/communities.sql.js';
import type { NodeKeys } from '../keys/keys.js';
import { listKeys, type NodeKey } from '../keys/keys.sql.js';
import { readSubjectFingerprint } from '../node/state.sql.js';
import { errorCode } from '../postgres/rules-error-code.js';
import { knownCertificates } from './certificates/certificates.sql.js';
import { readDocument } from './certificates/files.js';
import { certificatesFile } from './certificates/sign.js';
import type { Proof } from './replay.js';

const PORTION = 500;
/** They are held in memory. More than a node completes in years. */
const FORGOTTEN_MAX = 50_000;
const ID = /"id":"([0-9a-f]{64})"/;

export interface Forgotten {
  readonly proofs: readonly Proof[];
  /** Certificates of the file that the database knows. */
  readonly known: number;
  /** Lines that a crash has truncated, or that are no certificates. */
  readonly unreadable: number;
}

/** From certificates.jsonl in the data folder; nothing when there is no such file. */
export async function findForgotten(pool: Pool, folder: string): Promise<Forgotten> {
  const proofs: Proof[] = [];
  let known = 0;
  let unreadable = 0;
  for await (const lines of portionsOf(certificatesFile(folder))) {
    const byId = new Map(
      lines.flatMap((line) => (ID.test(line) ? [[ID.exec(line)![1]!, line] as const] : [])),
    );
    const here = await knownCertificates(pool, [...byId.keys()]);
    known += here.size;
    unreadable += lines.length - byId.size;
    for (const [id, line] of byId) {
      if (here.has(id)) continue;
      const { event, certificate, problems } = readDocument(line);
      if (event === undefined || certificate === undefined || problems.length > 0) unreadable += 1;
      else proofs.push({ certificate, id: event.id, pubkey: event.pubkey, event: line });
    }
    if (proofs.length > FORGOTTEN_MAX)
      throw new Error(
        `${certificatesFile(folder)} has more than ${FORGOTTEN_MAX} certificates that the database ` +
          'does not know; apply them in parts: minato erase replay FILE',
      );
  }
  return { proofs, known, unreadable };
}

async function* portionsOf(path: string): AsyncGenerator<string[]> {
  let portion: string[] = [];
  const input = createReadStream(path);
  try {
    for await (const line of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
      if (line.trim() !== '') portion.push(line);
      if (portion.length < PORTION) continue;
      yield portion;
      portion = [];
    }
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error;
  } finally {
    input.destroy();
  }
  if (portion.length > 0) yield portion;
}

/**
 * Why these certificates are of another database, in a sentence; undefined when they are of this one. A
 * backup of the same database knows a key that has signed one of them, or, when it is older than that key,
 * was made before all of them.
 */
export async function strangeOrigin(
  pool: Pool,
  { proofs, known }: Pick<Forgotten, 'proofs' | 'known'>,
): Promise<string | undefined> {
  const fingerprint = await readSubjectFingerprint(pool);
  if (fingerprint !== undefined && proofs.some(({ certificate }) => certificate.subject.key !== fingerprint))
    return 'the certificates were made with another erasure key than the one that this database knows';
  if (known > 0 || proofs.length === 0) return undefined;
  const keys = await erasureKeys(pool);
  const signers = new Set(proofs.map(({ pubkey }) => pubkey));
  if (keys.length > 0)
    return keys.some(({ pubkey }) => signers.has(pubkey))
      ? undefined
      : 'none of them is signed by a key of this database';
  const madeAt = await readMadeAt(pool);
  return proofs.some(({ certificate }) => certificate.requested_at < madeAt)
    ? 'they are older than this database'
    : undefined;
}

/** All keys that have signed certificates of this database. */
export async function erasureKeys(pool: Pool): Promise<NodeKey[]> {
  const keys = await listKeys(pool, await readDefaultCommunity(pool));
  return keys.filter(({ purpose }) => purpose === 'erasure');
}

/**
 * Signers that are no keys of this node. A key belongs to the node when its secret is here, even if a
 * restored database does not know it yet, or when the database knows it, even if the machine with the secret
 * no longer exists.
 */
export async function strangersAmong(
  { pool, keys }: { readonly pool: Pool; readonly keys: NodeKeys },
  proofs: readonly Proof[],
): Promise<string[]> {
  const named = new Set((await erasureKeys(pool)).map(({ pubkey }) => pubkey));
  const strangers: string[] = [];
  for (const signer of new Set(proofs.map(({ pubkey }) => pubkey)))
    if (!named.has(signer) && !(await keys.isHere(signer))) strangers.push(signer);
  return strangers;
}
