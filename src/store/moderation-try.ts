/** A rule tried against the newest events of a community, in portions: memory and the turns of other work do not depend on how many (I14). */
import type { NostrEvent } from '../core/event.js';
import { TRY_EVENTS_MAX } from '../core/moderation.js';
import type { CompiledRule } from '../core/rule-match.js';
import { Trial, type TrialResult } from '../core/rule-trial.js';
import type { Settings } from '../core/settings.js';
import { asMatched, UNBOUND } from '../core/topic.js';
import { inTurns, Turns } from '../turns.js';
import { bytes, type Db } from './config-change.js';
import { NOT_VANISHED } from './query.js';

const PORTION_ROWS = 200;

interface Place {
  readonly createdAt: number;
  readonly id: string;
}

interface Row extends Place {
  readonly payload: string;
  readonly bound: string[] | null;
}

export async function tryRule(
  db: Db,
  { id: community, settings }: { readonly id: number; readonly settings: Settings },
  rule: CompiledRule,
  last: number,
): Promise<TrialResult> {
  const trial = new Trial(rule, settings);
  let after: Place = { createdAt: Number.MAX_SAFE_INTEGER, id: '' };
  for (let left = Math.min(last, TRY_EVENTS_MAX); left > 0; ) {
    const rows = await newest(db, community, after, Math.min(left, PORTION_ROWS));
    await lookAt(trial, rows);
    left -= rows.length;
    if (rows.length < PORTION_ROWS) break;
    after = rows.at(-1)!;
  }
  return trial.result();
}

async function newest(db: Db, community: number, { createdAt, id }: Place, limit: number): Promise<Row[]> {
  const { rows } = await db.query<Row>({
    name: 'newest-events',
    text: `SELECT e.created_at AS "createdAt", encode(e.id, 'hex') AS id, e.payload, e.bound FROM events e
      WHERE e.community = $1 AND e.hidden IS NULL AND e.created_at <= $2 AND (e.created_at < $2 OR e.id > $3) AND ${NOT_VANISHED}
      ORDER BY e.created_at DESC, e.id LIMIT $4`,
    values: [community, createdAt, bytes(id), limit],
  });
  return rows;
}

async function lookAt(trial: Trial, rows: readonly Row[]): Promise<void> {
  const turns = new Turns();
  for (const { payload, bound } of rows) {
    await inTurns(trial.look(asMatched(JSON.parse(payload) as NostrEvent, bound ?? UNBOUND)), turns);
    await turns.rest();
  }
}
