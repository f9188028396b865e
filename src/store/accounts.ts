/** What the operator has decided about a key, as it is now. */
import type { ClientBase, Pool } from 'pg';

export type MemberStatus = 'active' | 'disabled' | 'deleted';

/** undefined: one who has never asked for anything. */
export async function readMemberStatus(
  db: ClientBase | Pool,
  community: number,
  pubkey: string,
): Promise<MemberStatus | undefined> {
  const { rows } = await db.query<{ status: MemberStatus }>({
    name: 'member-status',
    text: `SELECT status FROM members WHERE community = $1 AND pubkey = decode($2, 'hex')`,
    values: [community, pubkey],
  });
  return rows[0]?.status;
}
