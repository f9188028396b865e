/**
 * Conditions that the declarations of several tables share (postgres/table.ts): which rows belong to the
 * member who is erased.
 */
import { DAY_MS } from '../events/rules/retention.js';

export const MINE = 't.pubkey = :pubkey';

/**
 * An account that was made before `until` is deleted as a whole; one that was made later stays as a whole.
 */
export const ACCOUNT = `${MINE} AND EXISTS (SELECT 1 FROM members m
  WHERE m.community = :community AND m.pubkey = :pubkey AND m.created_at <= :ms)`;

/**
 * The topic `<namespace>:user:<pubkey>` is about a person, whoever uses it. Large tables have an index for
 * this condition.
 */
export const TOPIC_OF_PERSON = `t.topic LIKE '%user%' AND right(t.topic, 64) = :hex`;

/** The count of a day in which the member came back belongs to the new account. */
export const IS_PAST_DAY = `t.day < CASE WHEN :bounded THEN :ms / ${DAY_MS} ELSE :ms END`;

/** Why a column that can hold `<namespace>:user:<pubkey>` is in no file. */
export const IS_TOPIC =
  'The id of a topic, made of public words. A topic about a person is used by others; an erasure deletes it.';

/**
 * Rows about an event are deleted with it; rows about a newer event that is still here stay. `:staying` are
 * those that are in another store.
 */
export const aboutTarget = (
  time: string,
) => `t.target_pubkey = :pubkey AND CASE WHEN t.target_event IS NULL OR NOT :bounded THEN ${time} <= :ms
  ELSE NOT EXISTS (SELECT 1 FROM event_dedupe d
    JOIN events e ON e.keep = d.keep AND e.ingested_at = d.ingested_at AND e.seq = d.seq
    WHERE d.community = t.community AND d.event_id = t.target_event)
    AND t.target_event <> ALL (:staying) END`;
/** Rows of a case are as old as the case. */
export const sinceCase = (time: string) =>
  `coalesce((SELECT c.opened_at FROM moderation_cases c WHERE c.case_id = t.case_id), ${time})`;
