/** Who may use which topics, public ones aside: the derived rights (`topic_rights`) of many members in one statement. */
import type { ClientBase, Pool } from 'pg';
import { hexArray, int4Array } from './binary.js';

export interface MemberKey {
  readonly community: number;
  readonly pubkey: string;
}

/** The topics of each member, in the order asked. */
export async function readRights(
  db: ClientBase | Pool,
  members: readonly MemberKey[],
): Promise<ReadonlySet<string>[]> {
  const rights = members.map(() => new Set<string>());
  if (members.length === 0) return rights;
  const { rows } = await db.query<{ place: number; topic: string }>({
    name: 'rights',
    text: `SELECT asked.place::int, r.topic
      FROM unnest($1::int[], $2::bytea[]) WITH ORDINALITY AS asked (community, pubkey, place)
      JOIN topic_rights r ON r.community = asked.community AND r.pubkey = asked.pubkey`,
    values: [int4Array(members.map((m) => m.community)), hexArray(members.map((m) => m.pubkey))],
  });
  for (const { place, topic } of rows) rights[place - 1]!.add(topic);
  return rights;
}
