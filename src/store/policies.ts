/**
 * The texts that members agree to, by version and language: draft → published → current. A published text never changes, so
 * that a consent means what was read; a translation may still be added. One version of a type is current, and every instance
 * holds which, so that a new one raises the polled versions.
 */
import { createHash } from 'node:crypto';
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Denial, denial, isDenial } from '../core/errors.js';
import {
  LOCALES_MAX,
  POLICY_STEPS,
  type PolicyAction,
  type PolicyRef,
  type PolicyStatus,
  policyKey,
} from '../core/policies.js';
import { isStorable } from '../core/text.js';
import { type Change, changeConfig, type Db } from './config-change.js';
import { type Order, type Page, type PageOf, readPage } from './page.js';

/** A text without its words. */
export interface TextHead {
  readonly locale: string;
  readonly title: string;
  /** SHA-256 of the content as UTF-8, hex. */
  readonly contentHash: string;
  readonly updatedAt: number;
}

export interface PolicyText extends TextHead {
  readonly content: string;
}

export interface PolicyVersion extends PolicyRef {
  readonly status: PolicyStatus;
  readonly createdAt: number;
  readonly publishedAt: number | null;
  /** When it was made current for the last time. */
  readonly currentAt: number | null;
  /** The one that has stood longest first. */
  readonly texts: readonly TextHead[];
}

const COLUMNS = `v.type, v.version, v.status, v.created_at AS "createdAt", v.published_at AS "publishedAt", v.current_at AS "currentAt",
  coalesce((SELECT jsonb_agg(jsonb_build_object('locale', t.locale, 'title', t.title,
      'contentHash', encode(t.content_hash, 'hex'), 'updatedAt', t.updated_at) ORDER BY t.updated_at, t.locale)
    FROM policy_texts t WHERE t.community = v.community AND t.type = v.type AND t.version = v.version), '[]') AS texts
  FROM policy_versions v`;

const NEWEST_VERSION: Order<[number, string, string]> = {
  schema: z.tuple([z.number().int().min(0), z.string().refine(isStorable), z.string().refine(isStorable)]),
  start: [Number.MAX_SAFE_INTEGER, '', ''],
};

export async function readPolicy(
  db: Db,
  community: number,
  { type, version }: PolicyRef,
): Promise<PolicyVersion | undefined> {
  const { rows } = await db.query<PolicyVersion>(
    `SELECT ${COLUMNS} WHERE v.community = $1 AND v.type = $2 AND v.version = $3`,
    [community, type, version],
  );
  return rows[0];
}

export async function readCurrentPolicies(db: Db, community: number): Promise<PolicyVersion[]> {
  const { rows } = await db.query<PolicyVersion>(
    `SELECT ${COLUMNS} WHERE v.community = $1 AND v.status = 'current' ORDER BY v.type`,
    [community],
  );
  return rows;
}

/** The newest first. */
export function listPolicies(db: Db, community: number, page: PageOf): Promise<Page<PolicyVersion> | Denial> {
  return readPage(
    page,
    NEWEST_VERSION,
    ({ createdAt, type, version }: PolicyVersion) => [createdAt, type, version],
    async ([at, type, version], limit) => {
      const { rows } = await db.query<PolicyVersion>(
        `SELECT ${COLUMNS} WHERE v.community = $1 AND (v.created_at < $2 OR (v.created_at = $2 AND (v.type, v.version) > ($3, $4)))
         ORDER BY v.created_at DESC, v.type, v.version LIMIT $5`,
        [community, at, type, version, limit],
      );
      return rows;
    },
  );
}

export async function readText(
  db: Db,
  community: number,
  { type, version }: PolicyRef,
  locale: string,
): Promise<PolicyText | undefined> {
  const { rows } = await db.query<PolicyText>(
    `SELECT locale, title, content, encode(content_hash, 'hex') AS "contentHash", updated_at AS "updatedAt"
     FROM policy_texts WHERE community = $1 AND type = $2 AND version = $3 AND locale = $4`,
    [community, type, version, locale],
  );
  return rows[0];
}

// ─── What operators do ─────────────────────────────────────────────────────────────────────────────────────────

export interface PolicyChange extends PolicyRef {
  readonly community: number;
  readonly actor?: string | undefined;
}

export interface TextChange extends PolicyChange {
  /** In its canonical spelling. */
  readonly locale: string;
}

export function createPolicy(pool: Pool, wanted: PolicyChange, now: number): Promise<PolicyVersion | Denial> {
  const { community, actor, type, version } = wanted;
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const { rowCount } = await change.db.query(
      `INSERT INTO policy_versions (community, type, version, created_at) VALUES ($1, $2, $3, $4)
       ON CONFLICT (community, type, version) DO NOTHING`,
      [community, type, version, now],
    );
    const made = (await readPolicy(change.db, community, wanted))!;
    if (rowCount === 0) return denial('POLICY_EXISTS', { status: made.status });
    await change.audit('policy.create', policyKey(wanted));
    return made;
  });
}

/** A draft with its texts. */
export function deletePolicy(pool: Pool, ref: PolicyChange, now: number): Promise<PolicyVersion | Denial> {
  return changingPolicy(pool, ref, now, async (change, before) => {
    if (before.status !== 'draft') return published(before);
    const key = [ref.community, ref.type, ref.version];
    await change.db.query(
      'DELETE FROM policy_texts WHERE community = $1 AND type = $2 AND version = $3',
      key,
    );
    await change.db.query(
      'DELETE FROM policy_versions WHERE community = $1 AND type = $2 AND version = $3',
      key,
    );
    await change.audit('policy.delete', policyKey(ref));
    return before;
  });
}

/** Any text of a draft; of what is published only a language that it does not have yet. Writing the same again changes nothing. */
export function writeText(
  pool: Pool,
  ref: TextChange,
  { title, content }: { readonly title: string; readonly content: string },
  now: number,
): Promise<PolicyText | Denial> {
  const { community, type, version, locale } = ref;
  return changingPolicy(pool, ref, now, async (change, policy) => {
    const before = await readText(change.db, community, ref, locale);
    if (before?.title === title && before.content === content) return before;
    if (before !== undefined && policy.status !== 'draft') return published(policy);
    if (before === undefined && policy.texts.length >= LOCALES_MAX) {
      return denial('STATUS_CONFLICT', { texts_max: LOCALES_MAX });
    }
    const hash = createHash('sha256').update(content).digest();
    await change.db.query(
      `INSERT INTO policy_texts (community, type, version, locale, title, content, content_hash, updated_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
       ON CONFLICT (community, type, version, locale) DO UPDATE
       SET title = excluded.title, content = excluded.content, content_hash = excluded.content_hash, updated_at = excluded.updated_at`,
      [community, type, version, locale, title, content, hash, now],
    );
    await change.audit('policy-text.write', textKey(ref), { content_hash: hash.toString('hex') });
    return (await readText(change.db, community, ref, locale))!;
  });
}

/** Of a draft. */
export function deleteText(pool: Pool, ref: TextChange, now: number): Promise<TextHead | Denial> {
  const { community, type, version, locale } = ref;
  return changingPolicy(pool, ref, now, async (change, policy) => {
    const before = policy.texts.find((text) => text.locale === locale);
    if (before === undefined) return denial('NOT_FOUND');
    if (policy.status !== 'draft') return published(policy);
    await change.db.query(
      'DELETE FROM policy_texts WHERE community = $1 AND type = $2 AND version = $3 AND locale = $4',
      [community, type, version, locale],
    );
    await change.audit('policy-text.delete', textKey(ref), { content_hash: before.contentHash });
    return before;
  });
}

/** From now on its texts stay as they are. Doing it again changes nothing. */
export function publishPolicy(pool: Pool, ref: PolicyChange, now: number): Promise<PolicyVersion | Denial> {
  return step(pool, ref, 'publish', now, async ({ db }, { texts }) => {
    if (texts.length === 0) return denial('STATUS_CONFLICT', { status: 'draft', texts: 0 });
    await db.query(
      `UPDATE policy_versions SET status = 'published', published_at = $4
       WHERE community = $1 AND type = $2 AND version = $3`,
      [ref.community, ref.type, ref.version, now],
    );
    return undefined;
  });
}

/** Every member is asked for this version from now on, and no longer for the one before. Doing it again changes nothing. */
export function makeCurrent(pool: Pool, ref: PolicyChange, now: number): Promise<PolicyVersion | Denial> {
  return step(pool, ref, 'make-current', now, async (change) => {
    await change.db.query(
      `UPDATE policy_versions SET status = 'published' WHERE community = $1 AND type = $2 AND status = 'current'`,
      [ref.community, ref.type],
    );
    await change.db.query(
      `UPDATE policy_versions SET status = 'current', current_at = $4
       WHERE community = $1 AND type = $2 AND version = $3`,
      [ref.community, ref.type, ref.version, now],
    );
    change.raiseVersion();
    change.raiseRights();
    return undefined;
  });
}

function step(
  pool: Pool,
  ref: PolicyChange,
  action: PolicyAction,
  now: number,
  work: (change: Change, before: PolicyVersion) => Promise<Denial | undefined>,
): Promise<PolicyVersion | Denial> {
  return changingPolicy(pool, ref, now, async (change, before) => {
    const found = POLICY_STEPS[action][before.status];
    if (found === 'conflict') return denial('STATUS_CONFLICT', { status: before.status });
    if (found === 'done') return before;
    const refused = await work(change, before);
    if (isDenial(refused)) return refused;
    await change.audit(`policy.${action}`, policyKey(ref));
    return (await readPolicy(change.db, ref.community, ref))!;
  });
}

function changingPolicy<T>(
  pool: Pool,
  ref: PolicyChange,
  now: number,
  work: (change: Change, policy: PolicyVersion) => Promise<T | Denial>,
): Promise<T | Denial> {
  const { community, actor } = ref;
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const policy = await readPolicy(change.db, community, ref);
    return policy === undefined ? denial('NOT_FOUND') : work(change, policy);
  });
}

const published = ({ status }: PolicyVersion): Denial => denial('POLICY_PUBLISHED', { status });
const textKey = (ref: TextChange): string => `${policyKey(ref)}/${ref.locale}`;
