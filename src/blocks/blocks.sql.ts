/**
 * What the operator refuses on arrival: authors, words, addresses. Every instance keeps all of it in memory,
 * so each kind has a limit (I14). Callers pass values in canonical form (blocks/rules-words.ts,
 * limits/rules-network.ts).
 */
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Denial, denial } from '../api/rules-errors.js';
import type { AuditAction } from '../audit/rules.js';
import { changeConfig } from '../communities/config-change.sql.js';
import { isStorable } from '../events/rules/text.js';
import { holdsAddress } from '../limits/rules-network.js';
import type { Fixed } from '../members/members.sql.js';
import { type Order, type Page, type PageOf, readPage } from '../postgres/page.js';
import type { Db } from '../postgres/values.js';
import { BLOCKED_WORDS_MAX } from './rules-words.js';

export const BLOCK_KINDS = ['author', 'word', 'address'] as const;
export type BlockKind = (typeof BLOCK_KINDS)[number];

export interface Block {
  /** A public key in hex, a word, or a network. */
  readonly value: string;
  readonly reason: string | null;
  readonly createdAt: number;
}

interface Kept {
  readonly table: string;
  readonly column: string;
  /** SQL that converts the column to text; `given` converts text to the column. */
  readonly shown: string;
  readonly given: (parameter: string) => string;
  readonly max: number;
}

const KEPT: Record<BlockKind, Kept> = {
  author: {
    table: 'blocked_authors',
    column: 'pubkey',
    shown: "encode(pubkey, 'hex')",
    given: (parameter) => `decode(${parameter}, 'hex')`,
    max: 10_000,
  },
  word: {
    table: 'blocked_words',
    column: 'word',
    shown: 'word',
    given: (parameter) => `${parameter}::text`,
    max: BLOCKED_WORDS_MAX,
  },
  address: {
    table: 'blocked_addresses',
    column: 'network',
    shown: 'network::text',
    given: (parameter) => `${parameter}::cidr`,
    max: 10_000,
  },
};

const columns = ({ shown }: Kept) => `${shown} AS value, reason, created_at AS "createdAt"`;

async function readBlock(
  db: Db,
  kind: BlockKind,
  community: number,
  value: string,
): Promise<Block | undefined> {
  const kept = KEPT[kind];
  const { rows } = await db.query<Block>(
    `SELECT ${columns(kept)} FROM ${kept.table}
     WHERE community = $1 AND ${kept.column} = ${kept.given('$2')}`,
    [community, value],
  );
  return rows[0];
}

const BY_VALUE: Order<[string]> = {
  schema: z.tuple([z.string().max(1_000).refine(isStorable)]),
  start: [''],
};

export function listBlocks(
  db: Db,
  kind: BlockKind,
  community: number,
  page: PageOf,
): Promise<Page<Block> | Denial> {
  const kept = KEPT[kind];
  return readPage(
    page,
    BY_VALUE,
    ({ value }: Block) => [value],
    async ([after], limit) => {
      const { rows } = await db.query<Block>(
        `SELECT ${columns(kept)} FROM ${kept.table} WHERE community = $1 AND ${kept.shown} COLLATE "C" > $2
         ORDER BY ${kept.shown} COLLATE "C" LIMIT $3`,
        [community, after, limit],
      );
      return rows;
    },
  );
}

interface BlockRef {
  readonly kind: BlockKind;
  readonly community: number;
  readonly value: string;
  readonly actor?: string | undefined;
}

export interface Blocking extends BlockRef {
  readonly reason?: string | undefined;
  /** The address of the operator, so that operators cannot block themselves. */
  readonly from?: string | undefined;
}

export async function isBlocked(db: Db, { kind, community, value }: BlockRef): Promise<boolean> {
  return (await readBlock(db, kind, community, value)) !== undefined;
}

/**
 * Blocking again may change the reason; without a reason the old one stays. Added operators cannot block the
 * operators of the node.
 */
export function block(
  pool: Pool,
  { kind, community, value, actor, reason, from }: Blocking,
  { fixed }: Fixed,
  now: number,
): Promise<Block | Denial> {
  const { table, column, given, max } = KEPT[kind];
  return changeConfig(pool, { community, actor, now }, async (change) => {
    if (kind === 'author' && fixed.includes(value)) return denial('FIXED_OPERATOR');
    if (kind === 'address' && from !== undefined && holdsAddress(value, from)) return denial('OWN_ADDRESS');
    const before = await readBlock(change.db, kind, community, value);
    const reasonAfter = reason ?? before?.reason ?? null;
    if (before !== undefined && before.reason === reasonAfter) return before;
    if (before === undefined && (await countBlocks(change.db, kind, community)) >= max)
      return denial('BLOCK_LIMIT_REACHED', { limit: max });
    await change.db.query(
      `INSERT INTO ${table} (community, ${column}, reason, created_at) VALUES ($1, ${given('$2')}, $3, $4)
       ON CONFLICT (community, ${column}) DO UPDATE SET reason = excluded.reason`,
      [community, value, reasonAfter, now],
    );
    await change.audit(auditOf(kind, 'block'), value, { reason: reasonAfter });
    if (before === undefined) change.raiseVersion();
    return (await readBlock(change.db, kind, community, value))!;
  });
}

export function unblock(
  pool: Pool,
  { kind, community, value, actor }: BlockRef,
  now: number,
): Promise<Block | Denial> {
  const { table, column, given } = KEPT[kind];
  return changeConfig(pool, { community, actor, now }, async (change) => {
    const before = await readBlock(change.db, kind, community, value);
    if (before === undefined) return denial('NOT_FOUND');
    await change.db.query(`DELETE FROM ${table} WHERE community = $1 AND ${column} = ${given('$2')}`, [
      community,
      value,
    ]);
    await change.audit(auditOf(kind, 'unblock'), value);
    change.raiseVersion();
    return before;
  });
}

function auditOf(kind: BlockKind, what: 'block' | 'unblock'): AuditAction {
  return `${kind}.${what}`;
}

async function countBlocks(db: Db, kind: BlockKind, community: number): Promise<number> {
  const { rows } = await db.query<{ blocks: number }>(
    `SELECT count(*) AS blocks FROM ${KEPT[kind].table} WHERE community = $1`,
    [community],
  );
  return rows[0]!.blocks;
}

export type BlockedValues = Readonly<Record<BlockKind, readonly string[]>>;
export const NO_BLOCKS: BlockedValues = { author: [], word: [], address: [] };

/** The blocks of each community, for the cache of instances. A community without blocks is not listed. */
export async function readBlocks(db: Db): Promise<Map<number, BlockedValues>> {
  const parts = BLOCK_KINDS.map((kind) => {
    const { table, shown } = KEPT[kind];
    return `SELECT community, '${kind}' AS kind, array_agg(${shown} ORDER BY ${shown}) AS found
      FROM ${table} GROUP BY community`;
  });
  const { rows } = await db.query<{ community: number; kind: BlockKind; found: string[] }>(
    parts.join(' UNION ALL '),
  );
  const blocks = new Map<number, BlockedValues>();
  for (const { community, kind, found } of rows)
    blocks.set(community, { ...(blocks.get(community) ?? NO_BLOCKS), [kind]: found });
  return blocks;
}
