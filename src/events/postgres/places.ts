/**
 * SQL that reads one row by a known place or a known id. It always uses the unique index, whatever the
 * planner estimates.
 */

/**
 * The event at a known place. The fence (OFFSET 0) keeps every other condition out, so that only the unique
 * index on the place can be used, whatever the planner estimates about a table that was empty when the
 * statement was prepared.
 */
export function eventAt(place: string): string {
  return `CROSS JOIN LATERAL (SELECT * FROM events at
      WHERE at.keep = ${place}.keep AND at.ingested_at = ${place}.ingested_at AND at.seq = ${place}.seq
      OFFSET 0) e`;
}

/** The dedupe row of a known id, fenced for the same reason. */
export function dedupeOf(community: string, id: string): string {
  return `CROSS JOIN LATERAL (SELECT * FROM event_dedupe at
      WHERE at.community = ${community} AND at.event_id = ${id} OFFSET 0) d`;
}
