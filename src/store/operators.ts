/** Operators that were added to those of MINATO_ADMIN_PUBKEYS, who are fixed and operators of every community. */
import type { Pool } from 'pg';
import { type Denial, denial } from '../core/errors.js';
import { bytes, bytesOrNull, type Change, changeConfig, type Db } from './config-change.js';
import type { Fixed } from './members.js';
import { BY_PUBKEY, type Page, type PageOf, readPage } from './page.js';

export interface Operator {
  readonly pubkey: string;
  readonly addedBy: string | null;
  readonly createdAt: number;
}

interface OperatorRef {
  readonly community: number;
  readonly pubkey: string;
  readonly actor?: string | undefined;
}

const COLUMNS = `encode(pubkey, 'hex') AS pubkey, encode(added_by, 'hex') AS "addedBy", created_at AS "createdAt"`;

async function readOperator(db: Db, community: number, pubkey: string): Promise<Operator | undefined> {
  const { rows } = await db.query<Operator>(
    `SELECT ${COLUMNS} FROM operators WHERE community = $1 AND pubkey = $2`,
    [community, bytes(pubkey)],
  );
  return rows[0];
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

/** Adding one who is an operator already changes nothing. */
export function addOperator(
  pool: Pool,
  ref: OperatorRef,
  fixed: Fixed,
  now: number,
): Promise<Operator | Denial> {
  const { community, pubkey, actor } = ref;
  return withOperator(pool, ref, fixed, now, async (change, before) => {
    if (before !== undefined) return before;
    await change.db.query(
      'INSERT INTO operators (community, pubkey, added_by, created_at) VALUES ($1, $2, $3, $4)',
      [community, bytes(pubkey), bytesOrNull(actor), now],
    );
    await change.audit('operator.add', pubkey);
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
    await change.audit('operator.remove', pubkey);
    change.raiseVersion();
    return before;
  });
}

function withOperator(
  pool: Pool,
  { community, pubkey, actor }: OperatorRef,
  { fixed }: Fixed,
  now: number,
  work: (change: Change, before: Operator | undefined) => Promise<Operator | Denial>,
): Promise<Operator | Denial> {
  return changeConfig(pool, { community, actor, now }, async (change) => {
    if (fixed.includes(pubkey)) return denial('FIXED_OPERATOR');
    return work(change, await readOperator(change.db, community, pubkey));
  });
}
