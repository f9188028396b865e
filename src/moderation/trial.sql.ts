/**
 * Tries a rule on the newest events of a community, in portions: memory and pauses for other work do not
 * depend on their number (I14).
 */

import type { Settings } from '../communities/rules-settings.js';
import { NOT_VANISHED } from '../events/postgres/read/hidden-at-read.js';
import type { NostrEvent } from '../events/rules/event.js';
import { rest } from '../limits/time-slices.js';
import { bytes, type Db } from '../postgres/values.js';
import { asMatched, UNBOUND } from '../topics/rules.js';
import { inSteps } from './patterns/thread.js';
import { TRY_EVENTS_MAX } from './rules.js';
import type { CompiledRule } from './rules-match.js';
import { Trial, type TrialResult } from './rules-trial.js';

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
      WHERE e.community = $1 AND e.hidden IS NULL AND e.created_at <= $2 AND (e.created_at < $2 OR e.id > $3)
        AND ${NOT_VANISHED}
      ORDER BY e.created_at DESC, e.id LIMIT $4`,
    values: [community, createdAt, bytes(id), limit],
  });
  return rows;
}

async function lookAt(trial: Trial, rows: readonly Row[]): Promise<void> {
  for (const { payload, bound } of rows) {
    await inSteps(trial.look(asMatched(JSON.parse(payload) as NostrEvent, bound ?? UNBOUND)));
    await rest();
  }
}
