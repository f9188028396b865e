/**
 * Consents of members: one row from a consent to its withdrawal, with the hash of the text that was read. At
 * most one consent per member and version is in force. Every change raises the version of rights, because
 * rights need consent.
 */
import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import { changeConfig } from '../communities/config-change.sql.js';
import { ensureMember, refuseMember } from '../members/members.sql.js';
import { NEWEST_FIRST, type Page, type PageOf, readPage } from '../postgres/page.js';
import { bytes, type Db, isUuid } from '../postgres/values.js';
import { readPolicy } from './policies.sql.js';
import type { PolicyRef, PolicyType } from './rules.js';

export interface Consent extends PolicyRef {
  readonly consentId: string;
  readonly pubkey: string;
  readonly locale: string;
  /** Hash of the text that was agreed to, hex. */
  readonly contentHash: string;
  readonly consentedAt: number;
  readonly withdrawnAt: number | null;
}

const COLUMNS = `consent_id AS "consentId", encode(pubkey, 'hex') AS pubkey, type, version, locale,
  encode(content_hash, 'hex') AS "contentHash", consented_at AS "consentedAt", withdrawn_at AS "withdrawnAt"`;

/** A current policy, and the member's consent that is in force, if any. */
export interface Required extends PolicyRef {
  readonly locales: readonly string[];
  readonly consentId: string | null;
  readonly consentedAt: number | null;
}

export async function readRequired(db: Db, community: number, pubkey: string): Promise<Required[]> {
  const { rows } = await db.query<Required>({
    name: 'consents-required',
    text: `SELECT v.type, v.version, c.consent_id AS "consentId", c.consented_at AS "consentedAt", ARRAY(
             SELECT t.locale FROM policy_texts t
             WHERE t.community = v.community AND t.type = v.type AND t.version = v.version
             ORDER BY t.updated_at, t.locale) AS locales
           FROM policy_versions v
           LEFT JOIN consents c ON c.community = v.community AND c.pubkey = $2 AND c.type = v.type
             AND c.version = v.version AND c.withdrawn_at IS NULL
           WHERE v.community = $1 AND v.status = 'current' ORDER BY v.type`,
    values: [community, bytes(pubkey)],
  });
  return rows;
}

export interface Agreeing extends PolicyRef {
  readonly community: number;
  readonly pubkey: string;
  /** A canonical BCP 47 tag. */
  readonly locale: string;
  /** Hash of the text that the member has read, hex. */
  readonly contentHash?: string | undefined;
}

/** Agreeing twice returns the existing row. A draft is answered as not found. */
export function giveConsent(pool: Pool, wanted: Agreeing, now: number): Promise<Consent | Denial> {
  const { community, pubkey, type, version, locale, contentHash } = wanted;
  return changeConfig(pool, { community, now }, async (change) => {
    const { db } = change;
    const refused = await refuseMember(db, community, pubkey);
    if (refused !== undefined) return refused;
    const policy = await readPolicy(db, community, wanted);
    if (policy === undefined || policy.status === 'draft') return denial('NOT_FOUND');
    if (policy.status !== 'current') return denial('POLICY_NOT_CURRENT');
    const text = policy.texts.find((one) => one.locale === locale);
    if (text === undefined) return denial('NOT_FOUND');
    if (contentHash !== undefined && contentHash !== text.contentHash) {
      return denial('VERSION_MISMATCH', { content_hash: text.contentHash });
    }
    const given = await findInForce(db, wanted);
    if (given !== undefined) return given;
    await ensureMember(change, pubkey);
    const { rows } = await db.query<Consent>(
      `INSERT INTO consents (consent_id, community, pubkey, type, version, locale, content_hash, consented_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING ${COLUMNS}`,
      [randomUUID(), community, bytes(pubkey), type, version, locale, bytes(text.contentHash), now],
    );
    change.raiseRights();
    return rows[0]!;
  });
}

async function findInForce(
  db: Db,
  { community, pubkey, type, version }: Agreeing,
): Promise<Consent | undefined> {
  const { rows } = await db.query<Consent>(
    `SELECT ${COLUMNS} FROM consents
     WHERE community = $1 AND pubkey = $2 AND type = $3 AND version = $4 AND withdrawn_at IS NULL`,
    [community, bytes(pubkey), type, version],
  );
  return rows[0];
}

export interface ConsentRef {
  readonly community: number;
  readonly pubkey: string;
  readonly consentId: string;
}

/**
 * Only the member's own consent; any other id is answered as not found. Withdrawing twice changes nothing.
 */
export function withdrawConsent(
  pool: Pool,
  { community, pubkey, consentId }: ConsentRef,
  now: number,
): Promise<Consent | Denial> {
  if (!isUuid(consentId)) return Promise.resolve(denial('NOT_FOUND'));
  return changeConfig(pool, { community, now }, async (change) => {
    const { rows } = await change.db.query<Consent>(
      `SELECT ${COLUMNS} FROM consents WHERE community = $1 AND pubkey = $2 AND consent_id = $3`,
      [community, bytes(pubkey), consentId],
    );
    const before = rows[0];
    if (before === undefined) return denial('NOT_FOUND');
    if (before.withdrawnAt !== null) return before;
    const changed = await change.db.query<Consent>(
      `UPDATE consents SET withdrawn_at = $2 WHERE consent_id = $1 RETURNING ${COLUMNS}`,
      [consentId, now],
    );
    change.raiseRights();
    return changed.rows[0]!;
  });
}

const keyOf = ({ consentedAt, consentId }: Consent): [number, string] => [consentedAt, consentId];

/** Consents of one member, including withdrawn ones, newest first. */
export function listConsentsOf(
  db: Db,
  { community, pubkey }: { community: number; pubkey: string },
  page: PageOf,
): Promise<Page<Consent> | Denial> {
  return readPage(page, NEWEST_FIRST, keyOf, async ([at, id], limit) => {
    const { rows } = await db.query<Consent>(
      `SELECT ${COLUMNS} FROM consents
       WHERE community = $1 AND pubkey = $2 AND (consented_at, consent_id) < ($3, $4::uuid)
       ORDER BY consented_at DESC, consent_id DESC LIMIT $5`,
      [community, bytes(pubkey), at, id, limit],
    );
    return rows;
  });
}

/** Consents, including withdrawn ones, of all members or of one, newest first. */
export function listConsents(
  db: Db,
  {
    community,
    pubkey,
    type,
    version,
  }: {
    community: number;
    pubkey?: string | undefined;
    type?: PolicyType | undefined;
    version?: string | undefined;
  },
  page: PageOf,
): Promise<Page<Consent> | Denial> {
  return readPage(page, NEWEST_FIRST, keyOf, async ([at, id], limit) => {
    const { rows } = await db.query<Consent>(
      `SELECT ${COLUMNS} FROM consents
       WHERE community = $1 AND (consented_at, consent_id) < ($2, $3::uuid)
         AND ($4::text IS NULL OR type = $4) AND ($5::text IS NULL OR version = $5)
         ${pubkey === undefined ? '' : 'AND pubkey = $7'}
       ORDER BY consented_at DESC, consent_id DESC LIMIT $6`,
      [community, at, id, type ?? null, version ?? null, limit, ...(pubkey ? [bytes(pubkey)] : [])],
    );
    return rows;
  });
}
