/**
 * Reads and writes for events that match rules on arrival. All of it runs in the lane's transaction, under
 * its lock: so rates are exact over all instances, and a held event has its action and its case from the
 * moment it is stored (I16).
 */
import { randomUUID } from 'node:crypto';
import type { ClientBase } from 'pg';
import type { CountedEvent, HeldEvent } from '../../events/rules/batch/judged.js';
import { hexArray, int4Array, int8Array, textArray } from '../../postgres/binary.js';
import { allTopics } from '../../topics/rules.js';
import type { Rule } from '../rules.js';

export interface RateQuery {
  readonly rule: Rule;
  readonly pubkey: string;
}

/** Reads at most as many rows as the rule allows: the cost per event does not grow with a flood. */
export const RATES_SQL = `SELECT c.rule_id || '/' || encode(c.pubkey, 'hex') AS key, latest.count
  FROM unnest($1::text[], $2::bytea[], $3::int[], $4::bigint[]) AS c (rule_id, pubkey, allowed, since)
  CROSS JOIN LATERAL (SELECT count(*) FROM (SELECT 1 FROM moderation_rates r WHERE r.rule_id = c.rule_id::uuid
    AND r.pubkey = c.pubkey AND r.at > c.since ORDER BY r.at DESC LIMIT c.allowed) found) latest`;

/** Counts by `rateKey`. Every event that was committed before counts, whatever the clock of its instance. */
export async function readRates(
  client: ClientBase,
  queries: readonly RateQuery[],
  now: number,
): Promise<Map<string, number>> {
  if (queries.length === 0) return new Map();
  const { rows } = await client.query<{ key: string; count: number }>({
    name: 'arrival-rates',
    text: RATES_SQL,
    values: [
      textArray(queries.map(({ rule }) => rule.ruleId)),
      hexArray(queries.map(({ pubkey }) => pubkey)),
      int4Array(queries.map(({ rule }) => rule.conditions.rate!.count)),
      int8Array(queries.map(({ rule }) => now - rule.conditions.rate!.seconds * 1_000)),
    ],
  });
  return new Map(rows.map(({ key, count }) => [key, count]));
}

/** `seq` is 0 because the event has none yet; the lane counts events in commit order. */
export async function writeCounted(
  client: ClientBase,
  counted: readonly CountedEvent[],
  now: number,
): Promise<void> {
  if (counted.length === 0) return;
  await client.query({
    name: 'arrival-counted',
    text: `INSERT INTO moderation_rates (rule_id, community, event_id, at, seq, pubkey)
      SELECT rule_id::uuid, community, event_id, $5::bigint, 0, pubkey
      FROM unnest($1::text[], $2::int[], $3::bytea[], $4::bytea[]) AS c (rule_id, community, event_id, pubkey)
      ON CONFLICT DO NOTHING`,
    values: [
      textArray(counted.map(({ rule }) => rule.ruleId)),
      int4Array(counted.map(({ submission }) => submission.community)),
      hexArray(counted.map(({ submission }) => submission.event.id)),
      hexArray(counted.map(({ submission }) => submission.event.pubkey)),
      now,
    ],
  });
}

/**
 * Writes the action of the rule as done, and its case: held, or resolved when the rule hides the event. An
 * event whose dedupe row was purged may arrive again while a case about it is open: it joins that case, and
 * hiding it does not resolve what others reported there.
 */
const RULED_SQL = `
  WITH held AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::bytea[], $6::bytea[], $7::text[],
      $8::text[], $9::text[])
      AS h (case_id, action_id, rule_id, community, event_id, pubkey, status, reason, topics)
  ), joined AS (
    UPDATE moderation_cases c SET updated_at = $10::bigint,
      status = CASE WHEN h.status = 'held' THEN 'held' ELSE c.status END
    FROM held h WHERE c.community = h.community AND c.target_event = h.event_id
      AND c.status IN ('open', 'held')
    RETURNING c.case_id, c.community, c.target_event
  ), made AS (
    INSERT INTO moderation_cases
      (case_id, community, status, opened_at, updated_at, closed_at, rule_id, target_event, target_pubkey,
       reason, topics)
    SELECT h.case_id::uuid, h.community, h.status, $10::bigint, $10::bigint,
      CASE WHEN h.status = 'resolved' THEN $10::bigint END, h.rule_id::uuid, h.event_id, h.pubkey, h.reason,
      string_to_array(h.topics, E'\\n')
    FROM held h WHERE NOT EXISTS
      (SELECT 1 FROM joined j WHERE j.community = h.community AND j.target_event = h.event_id)
    RETURNING case_id, community, target_event
  )
  INSERT INTO moderation_actions AS a
    (action_id, community, case_id, rule_id, action, at, done_at, outcome, target_event, target_pubkey, note)
  SELECT h.action_id::uuid, h.community, c.case_id, h.rule_id::uuid, 'remove', $10::bigint, $10::bigint,
    'removed', h.event_id, h.pubkey, h.reason
  FROM held h JOIN (SELECT * FROM joined UNION ALL SELECT * FROM made) c
    ON c.community = h.community AND c.target_event = h.event_id
  ON CONFLICT (rule_id, target_event) WHERE rule_id IS NOT NULL
  DO UPDATE SET at = excluded.at, done_at = excluded.done_at, outcome = excluded.outcome,
    case_id = excluded.case_id`;

export async function writeRulings(
  client: ClientBase,
  held: readonly HeldEvent[],
  now: number,
): Promise<void> {
  if (held.length === 0) return;
  await client.query({
    name: 'arrival-held',
    text: RULED_SQL,
    values: [
      textArray(held.map(() => randomUUID())),
      textArray(held.map(() => randomUUID())),
      textArray(held.map(({ by }) => by.rule.ruleId)),
      int4Array(held.map(({ submission }) => submission.community)),
      hexArray(held.map(({ submission }) => submission.event.id)),
      hexArray(held.map(({ submission }) => submission.event.pubkey)),
      textArray(held.map(({ by }) => (by.unfinished || by.rule.action === 'hold' ? 'held' : 'resolved'))),
      textArray(held.map(reasonOf)),
      textArray(held.map(({ submission, bound }) => allTopics(submission.event, bound).join('\n'))),
      now,
    ],
  });
}

function reasonOf({ by: { rule, unfinished } }: HeldEvent): string {
  return unfinished ? `rule: ${rule.name} (too long to be judged on arrival)` : `rule: ${rule.name}`;
}

/** The consumer judges up to this position of the outbox; later events were judged on arrival. */
export async function readJudgedAfter(client: ClientBase): Promise<number> {
  const { rows } = await client.query<{ after: number }>(
    'SELECT judged_after AS after FROM moderation_version',
  );
  return rows[0]!.after;
}
