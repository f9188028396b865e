/**
 * Signs the certificates of erasures, each with the id of the one before it. They are also kept in a file,
 * because a restored database lacks the latest.
 */
import { mkdir, open, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Pool } from 'pg';
import { readDefaultCommunity } from '../../communities/communities.sql.js';
import type { NodeKeys } from '../../keys/keys.js';
import type { Log } from '../../node/log.js';
import { readSubjectFingerprint } from '../../node/state.sql.js';
import { giveToOwner } from '../../postgres/owned-file.js';
import type { Erasure } from '../erasures.sql.js';
import { lastCertificate, type SignedCertificate } from '../steps.sql.js';
import { listCertificates } from './certificates.sql.js';
import { type Certificate, KIND_CERTIFICATE } from './rules.js';

export interface CertificatesOptions {
  readonly pool: Pool;
  readonly keys: NodeKeys;
  /** The data folder. */
  readonly folder: string;
  readonly version: string;
  readonly log?: Log | undefined;
}

/** One event per line. After a restore the database lacks what came after the backup. */
export const certificatesFile = (folder: string) => join(folder, 'certificates.jsonl');
const PORTION = 100;
/** How long to wait for machines that share the signing key: they check twice a second. */
const SIGNER_WAIT_MS = 10_000;

export class Certificates {
  private kept: Set<string> | undefined;
  private position = 0;

  constructor(private readonly options: CertificatesOptions) {}

  /**
   * With the key of the default community, which is never erased. When that key is lost, a new one signs, so
   * that the erasure is not held up.
   */
  async sign(erasure: Erasure, now: number): Promise<SignedCertificate> {
    const { pool, keys, version, log } = this.options;
    const previous = (await lastCertificate(pool))?.id;
    const key = (await readSubjectFingerprint(pool))!;
    const content = certificateOf(erasure, { version, previous, key, now });
    const community = await readDefaultCommunity(pool);
    const signer = await keys.ready(community, 'erasure', SIGNER_WAIT_MS, (before, made) =>
      log?.warn(
        { before, pubkey: made, path: keys.pathOf(before) },
        'no machine that answered had the secret of the erasure key; ' +
          'certificates are signed by a new key from now on',
      ),
    );
    const event = await keys.signAs(signer, 'erasure', {
      kind: KIND_CERTIFICATE,
      created_at: Math.floor(now / 1_000),
      tags: [
        ['alt', 'Certificate of an erasure'],
        ...(previous === undefined ? [] : [['previous', previous]]),
      ],
      content: JSON.stringify(content),
    });
    return { id: event.id, previous, event: JSON.stringify(event) };
  }

  /** Adds those that are not in the file yet: a worker on another machine may have signed them. */
  async keepFile(): Promise<void> {
    const { pool, folder } = this.options;
    this.kept ??= await idsIn(certificatesFile(folder));
    for (;;) {
      const certificates = await listCertificates(pool, { after: this.position, limit: PORTION });
      const lines = certificates.filter(({ id }) => !this.kept!.has(id)).map(({ event }) => `${event}\n`);
      if (lines.length > 0) await append(certificatesFile(folder), lines.join(''));
      for (const { id, position } of certificates) {
        this.kept.add(id);
        this.position = position;
      }
      if (certificates.length < PORTION) return;
    }
  }
}

/** The ids of the certificates in the file; a line that a crash has truncated is none. */
async function idsIn(path: string): Promise<Set<string>> {
  const text = await readFile(path, 'utf8').catch(() => '');
  return new Set([...text.matchAll(/^\{.*"id":"([0-9a-f]{64})".*\}$/gm)].map((match) => match[1]!));
}

async function append(path: string, text: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const file = await open(path, 'a', 0o600);
  await giveToOwner(dirname(path), path);
  try {
    const { size } = await file.stat();
    // A truncated line stays on a line of its own.
    await file.write(size === 0 ? text : `\n${text}`);
    await file.sync();
  } finally {
    await file.close();
  }
}

interface Signing {
  readonly version: string;
  readonly previous: string | undefined;
  /** The fingerprint of the key that the hash was made with. */
  readonly key: string;
  readonly now: number;
}

function certificateOf(erasure: Erasure, { version, previous, key, now }: Signing): Certificate {
  const { erasureId, slug, type, cause, subject, counted, added, deleted, otherwise, verified, kept } =
    erasure;
  return {
    type: 'minato-erasure-certificate',
    version: 2,
    erasure_id: erasureId,
    software: { name: 'minato', version },
    community: slug,
    subject: { type, hash: subject!, key },
    cause,
    requested_at: erasure.requestedAt,
    fenced_at: erasure.fencedAt!,
    counted_at: erasure.countedAt!,
    completed_at: now,
    until: erasure.until,
    banned: erasure.banned,
    stores: Object.keys(verified).map((name) => ({
      name,
      before: (counted[name] ?? 0) + (added[name] ?? 0),
      added: added[name] ?? 0,
      deleted: deleted[name] ?? 0,
      otherwise: otherwise[name] ?? 0,
      after: verified[name]!,
    })),
    unacknowledged: erasure.unacknowledged.map((follower) => ({
      name: follower.name,
      acknowledged: follower.acknowledgedSeq,
      needed: follower.neededSeq,
      limit_seconds: follower.limitSeconds,
    })),
    kept: Object.entries(kept).map(([name, rows]) => ({ name, ...rows })),
    previous: previous ?? null,
  };
}
