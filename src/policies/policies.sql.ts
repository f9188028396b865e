/**
 * The texts that members agree to, by version and language: draft → published → current. A published text
 * never changes, so that a consent always refers to what was read. A translation may still be added. One
 * version of each type is current. Every instance caches which, so a change raises the polled versions.
 */
import { createHash } from 'node:crypto';
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { type Change, changeConfig, type Within } from '../communities/config-change.sql.js';
import { isStorable } from '../events/rules/text.js';
import { type Order, type Page, type PageOf, readPage } from '../postgres/page.js';
import type { Db } from '../postgres/values.js';
import {
  LOCALES_MAX,
  POLICY_STEPS,
  type PolicyAction,
  type PolicyRef,
  type PolicyStatus,
  policyKey,
} from './rules.js';

/** A text without its content. */
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
  /** When it last became current. */
  readonly currentAt: number | null;
  /** Oldest first. */
  readonly texts: readonly TextHead[];
}

const COLUMNS = `v.type, v.version, v.status, v.created_at AS "createdAt",
  v.published_at AS "publishedAt", v.current_at AS "currentAt",
  coalesce((SELECT jsonb_agg(jsonb_build_object('locale', t.locale, 'title', t.title,
      'contentHash', encode(t.content_hash, 'hex'), 'updatedAt', t.updated_at)
      ORDER BY t.updated_at, t.locale)
    FROM policy_texts t
    WHERE t.community = v.community AND t.type = v.type AND t.version = v.version), '[]') AS texts
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

/** Newest first. */
export function listPolicies(db: Db, community: number, page: PageOf): Promise<Page<PolicyVersion> | Denial> {
  return readPage(
    page,
    NEWEST_VERSION,
    ({ createdAt, type, version }: PolicyVersion) => [createdAt, type, version],
    async ([at, type, version], limit) => {
      const { rows } = await db.query<PolicyVersion>(
        `SELECT ${COLUMNS} WHERE v.community = $1
           AND (v.created_at < $2 OR (v.created_at = $2 AND (v.type, v.version) > ($3, $4)))
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

// ─── Changes by operators ──────────────────────────────────────────────────────────────────────────────────

export interface PolicyChange extends PolicyRef {
  readonly community: number;
  readonly actor?: string | undefined;
}

export interface TextChange extends PolicyChange {
  /** A canonical BCP 47 tag. */
  readonly locale: string;
}

export function createPolicy(
  within: Within,
  wanted: PolicyChange,
  now: number,
): Promise<PolicyVersion | Denial> {
  const { community, actor, type, version } = wanted;
  return changeConfig(within, { community, actor, now }, async (change) => {
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

/** Deletes a draft with its texts. */
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

/**
 * Writes any text of a draft, or adds a language to a published version. Writing the same text twice changes
 * nothing.
 */
export function writeText(
  within: Within,
  ref: TextChange,
  { title, content }: { readonly title: string; readonly content: string },
  now: number,
): Promise<PolicyText | Denial> {
  const { community, type, version, locale } = ref;
  return changingPolicy(within, ref, now, async (change, policy) => {
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
       SET title = excluded.title, content = excluded.content, content_hash = excluded.content_hash,
         updated_at = excluded.updated_at`,
      [community, type, version, locale, title, content, hash, now],
    );
    await change.audit('policy-text.write', textKey(ref), { content_hash: hash.toString('hex') });
    return (await readText(change.db, community, ref, locale))!;
  });
}

/** Deletes a text of a draft. */
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

/** From now on the texts cannot change. Publishing twice changes nothing. */
export function publishPolicy(
  within: Within,
  ref: PolicyChange,
  now: number,
): Promise<PolicyVersion | Denial> {
  return step(within, ref, 'publish', now, async ({ db }, { texts }) => {
    if (texts.length === 0) return denial('STATUS_CONFLICT', { status: 'draft', texts: 0 });
    await db.query(
      `UPDATE policy_versions SET status = 'published', published_at = $4
       WHERE community = $1 AND type = $2 AND version = $3`,
      [ref.community, ref.type, ref.version, now],
    );
    return undefined;
  });
}

/**
 * From now on every member must agree to this version instead of the previous one. Doing it twice changes
 * nothing.
 */
export function makeCurrent(within: Within, ref: PolicyChange, now: number): Promise<PolicyVersion | Denial> {
  return step(within, ref, 'make-current', now, async (change) => {
    await change.db.query(
      `UPDATE policy_versions SET status = 'published'
       WHERE community = $1 AND type = $2 AND status = 'current'`,
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
  within: Within,
  ref: PolicyChange,
  action: PolicyAction,
  now: number,
  work: (change: Change, before: PolicyVersion) => Promise<Denial | undefined>,
): Promise<PolicyVersion | Denial> {
  return changingPolicy(within, ref, now, async (change, before) => {
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
  within: Within,
  ref: PolicyChange,
  now: number,
  work: (change: Change, policy: PolicyVersion) => Promise<T | Denial>,
): Promise<T | Denial> {
  const { community, actor } = ref;
  return changeConfig(within, { community, actor, now }, async (change) => {
    const policy = await readPolicy(change.db, community, ref);
    return policy === undefined ? denial('NOT_FOUND') : work(change, policy);
  });
}

const published = ({ status }: PolicyVersion): Denial => denial('POLICY_PUBLISHED', { status });
const textKey = (ref: TextChange): string => `${policyKey(ref)}/${ref.locale}`;
