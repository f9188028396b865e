/**
 * Those who were given a role in a community: operators, moderators and viewers. The keys of
 * MINATO_ADMIN_PUBKEYS are not here: they are operators of every community and cannot be removed.
 */
import type { Pool } from 'pg';
import { type Denial, denial } from '../api/rules-errors.js';
import { type Change, changeConfig, type Within } from '../communities/config-change.sql.js';
import { BY_PUBKEY, type Page, type PageOf, readPage } from '../postgres/page.js';
import { bytes, bytesOrNull, type Db } from '../postgres/values.js';
import type { Fixed } from './members.sql.js';
import type { Role } from './rules-roles.js';

export interface Operator {
  readonly pubkey: string;
  readonly role: Role;
  readonly addedBy: string | null;
  readonly createdAt: number;
}

interface OperatorRef {
  readonly community: number;
  readonly pubkey: string;
  readonly actor?: string | undefined;
}

const COLUMNS = `encode(pubkey, 'hex') AS pubkey, role, encode(added_by, 'hex') AS "addedBy",
  created_at AS "createdAt"`;

async function readOperator(db: Db, community: number, pubkey: string): Promise<Operator | undefined> {
  const { rows } = await db.query<Operator>(
    `SELECT ${COLUMNS} FROM operators WHERE community = $1 AND pubkey = $2`,
    [community, bytes(pubkey)],
  );
  return rows[0];
}

/** The role of a key, besides those of MINATO_ADMIN_PUBKEYS. */
export async function readRole(db: Db, community: number, pubkey: string): Promise<Role | undefined> {
  const { rows } = await db.query<{ role: Role }>({
    name: 'operator-role',
    text: 'SELECT role FROM operators WHERE community = $1 AND pubkey = $2',
    values: [community, bytes(pubkey)],
  });
  return rows[0]?.role;
}

export function listOperators(db: Db, community: number, page: PageOf): Promise<Page<Operator> | Denial> {
  return readPage(
    page,
    BY_PUBKEY,
    ({ pubkey }: Operator) => [pubkey],
    async ([after], limit) => {
      const { rows } = await db.query<Operator>(
        `SELECT ${COLUMNS} FROM operators WHERE community = $1 AND pubkey > $2 ORDER BY pubkey LIMIT $3`,
        [community, bytes(after), limit],
      );
      return rows;
    },
  );
}

/**
 * Gives a role, or changes it. Without a role a new key becomes an operator, and a known one keeps its role.
 * Doing it twice changes nothing.
 */
export function addOperator(
  within: Within,
  { role, ...ref }: OperatorRef & { readonly role?: Role | undefined },
  fixed: Fixed,
  now: number,
): Promise<Operator | Denial> {
  const { community, pubkey, actor } = ref;
  return withOperator(within, ref, fixed, now, async (change, before) => {
    const given = role ?? before?.role ?? 'operator';
    if (before?.role === given) return before;
    await change.db.query(
      `INSERT INTO operators (community, pubkey, role, added_by, created_at) VALUES ($1, $2, $3, $4, $5)
       ON CONFLICT (community, pubkey) DO UPDATE SET role = excluded.role`,
      [community, bytes(pubkey), given, bytesOrNull(actor), now],
    );
    if (before === undefined) await change.audit('operator.add', pubkey, { role: given });
    else await change.audit('operator.change', pubkey, { role: given, before: before.role });
    change.raiseVersion();
    return (await readOperator(change.db, community, pubkey))!;
  });
}

export function removeOperator(
  pool: Pool,
  ref: OperatorRef,
  fixed: Fixed,
  now: number,
): Promise<Operator | Denial> {
  const { community, pubkey } = ref;
  return withOperator(pool, ref, fixed, now, async (change, before) => {
    if (before === undefined) return denial('NOT_FOUND');
    await change.db.query('DELETE FROM operators WHERE community = $1 AND pubkey = $2', [
      community,
      bytes(pubkey),
    ]);
    await change.audit('operator.remove', pubkey, { role: before.role });
    change.raiseVersion();
    return before;
  });
}

function withOperator(
  within: Within,
  { community, pubkey, actor }: OperatorRef,
  { fixed }: Fixed,
  now: number,
  work: (change: Change, before: Operator | undefined) => Promise<Operator | Denial>,
): Promise<Operator | Denial> {
  return changeConfig(within, { community, actor, now }, async (change) => {
    if (fixed.includes(pubkey)) return denial('FIXED_OPERATOR');
    return work(change, await readOperator(change.db, community, pubkey));
  });
}
