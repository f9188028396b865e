/** Signs the certificates of erasures, each with the id of the one before it, and keeps them as files too: a restore of the database forgets. */
import { mkdir, readdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Pool } from 'pg';
import { type Certificate, KIND_CERTIFICATE } from '../core/certificate.js';
import type { NodeKeys } from '../keys.js';
import { listCertificates } from '../store/certificates.js';
import { readDefaultCommunity } from '../store/communities.js';
import { lastCertificate, type SignedCertificate } from '../store/erasure-steps.js';
import type { Erasure } from '../store/erasures.js';

export interface CertificatesOptions {
  readonly pool: Pool;
  readonly keys: NodeKeys;
  /** The data folder. */
  readonly folder: string;
  readonly version: string;
}

export const certificatesIn = (folder: string) => join(folder, 'certificates');
const PORTION = 100;

export class Certificates {
  constructor(private readonly options: CertificatesOptions) {}

  /** By the node's own key: that of the default community, which is never erased. */
  async sign(erasure: Erasure, now: number): Promise<SignedCertificate> {
    const { pool, keys, version } = this.options;
    const previous = (await lastCertificate(pool))?.id;
    const content = certificateOf(erasure, { version, previous, now });
    const event = await keys.sign(await readDefaultCommunity(pool), 'erasure', {
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

  /** Those that this machine does not have yet, as files: a worker on another machine may have made them. */
  async keepFiles(): Promise<number> {
    const folder = certificatesIn(this.options.folder);
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const names = (await readdir(folder)).filter((name) => name.endsWith('.json'));
    let last = Math.max(0, ...names.map((name) => Number.parseInt(name, 10) || 0));
    let written = 0;
    for (;;) {
      const certificates = await listCertificates(this.options.pool, { after: last, limit: PORTION });
      for (const { position, erasureId, event } of certificates) {
        const path = join(folder, `${String(position).padStart(6, '0')}-${erasureId}.json`);
        await writeFile(`${path}.new`, `${event}\n`, { mode: 0o600 });
        await rename(`${path}.new`, path);
        last = position;
        written += 1;
      }
      if (certificates.length < PORTION) return written;
    }
  }
}

function certificateOf(
  erasure: Erasure,
  {
    version,
    previous,
    now,
  }: { readonly version: string; readonly previous: string | undefined; readonly now: number },
): Certificate {
  const { erasureId, slug, type, cause, subject, counted, deleted, verified, kept } = erasure;
  return {
    type: 'minato-erasure-certificate',
    version: 1,
    erasure_id: erasureId,
    software: { name: 'minato', version },
    community: slug,
    subject: { type, hash: subject! },
    cause,
    requested_at: erasure.requestedAt,
    fenced_at: erasure.fencedAt!,
    counted_at: erasure.countedAt!,
    completed_at: now,
    until: erasure.until,
    stores: Object.keys(verified).map((name) => ({
      name,
      before: counted[name] ?? null,
      deleted: deleted[name] ?? 0,
      after: verified[name]!,
    })),
    kept: Object.entries(kept).map(([name, rows]) => ({ name, ...rows })),
    previous: previous ?? null,
  };
}
