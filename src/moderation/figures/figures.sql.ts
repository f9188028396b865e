/**
 * Numbers for the pages of moderators: how much waits, and what deleting a rule releases. Every count stops
 * at a limit, so that it costs little however many rows there are (I14).
 */
import { type Denial, isDenial } from '../../api/rules-errors.js';
import type { Db } from '../../postgres/values.js';
import { RELEASABLE } from '../batches.sql.js';
import { findRule } from '../stored-rules.sql.js';

export interface Counted {
  readonly count: number;
  /** There are more than were counted. */
  readonly more: boolean;
}

/** Cases and batches of one kind that are counted. */
export const WAITING_MAX = 100;
/** Events or labels of a rule that are counted. */
export const RELEASED_MAX = 10_000;

const upTo = (max: number, found: number): Counted => ({ count: Math.min(found, max), more: found > max });
const countSql = (from: string, max: number) => `(SELECT count(*) FROM (SELECT 1 FROM ${from}
    LIMIT ${max + 1}) AS counted)`;

export interface Waiting {
  readonly open: Counted;
  readonly held: Counted;
  readonly appealed: Counted;
  readonly batches: Counted;
}

const ofStatus = (status: 'open' | 'held') =>
  countSql(`moderation_cases WHERE community = $1 AND status = '${status}'`, WAITING_MAX);

export async function countWaiting(db: Db, community: number): Promise<Waiting> {
  const { rows } = await db.query<Record<keyof Waiting, number>>(
    `SELECT ${ofStatus('open')} AS open, ${ofStatus('held')} AS held,
       ${countSql(
         `moderation_cases WHERE community = $1 AND appealed_at IS NOT NULL AND status IN ('open', 'held')`,
         WAITING_MAX,
       )} AS appealed,
       ${countSql(
         `moderation_batches WHERE community = $1 AND status IN ('running', 'undoing')`,
         WAITING_MAX,
       )} AS batches`,
    [community],
  );
  const { open, held, appealed, batches } = rows[0]!;
  return {
    open: upTo(WAITING_MAX, open),
    held: upTo(WAITING_MAX, held),
    appealed: upTo(WAITING_MAX, appealed),
    batches: upTo(WAITING_MAX, batches),
  };
}

export interface Releases {
  /** Events that it holds, and nobody has decided about. */
  readonly held: Counted;
  /** Events that it has hidden, and nobody has decided about. */
  readonly hidden: Counted;
  /** Labels in force. */
  readonly labels: Counted;
}

export async function countReleases(
  db: Db,
  community: number,
  ruleId: string,
  now: number,
): Promise<Releases | Denial> {
  const rule = await findRule(db, community, ruleId);
  if (isDenial(rule)) return rule;
  const { rows } = await db.query<Record<keyof Releases, number>>(
    `SELECT ${countSql(`${RELEASABLE} AND c.status = 'held'`, RELEASED_MAX)} AS held,
       ${countSql(`${RELEASABLE} AND c.status <> 'held'`, RELEASED_MAX)} AS hidden,
       ${countSql(`labels WHERE rule_id = $1 AND withdrawn_at IS NULL AND lapses_at > $2`, RELEASED_MAX)}
         AS labels`,
    [ruleId, Math.floor(now / 1_000)],
  );
  const { held, hidden, labels } = rows[0]!;
  return {
    held: upTo(RELEASED_MAX, held),
    hidden: upTo(RELEASED_MAX, hidden),
    labels: upTo(RELEASED_MAX, labels),
  };
}
