/**
 * Stores an event that a rule holds or hides on arrival: its row and its dedupe row, like those of a removed
 * event, and nothing else. It has no tags, no outbox row and does not count in any total, so no reader finds
 * it (I16). In the lane's transaction.
 */
import type { ClientBase } from 'pg';
import { hexArray, int2Array, int4Array, int8Array, textArray } from '../../../postgres/binary.js';
import type { HeldEvent } from '../../rules/batch/judged.js';
import { expirationOf } from '../../rules/expiration.js';
import { HIDDEN_CODES } from '../../rules/hidden.js';

const HELD_SQL = `
  WITH held AS (
    SELECT nextval('held_events') AS seq, h.*
    FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::smallint[], $6::bytea[], $7::bytea[],
      $8::text[], $9::text[]) AS h (created_at, expires_at, community, kind, keep, id, pubkey, payload, bound)
  ), deduped AS (
    INSERT INTO event_dedupe (seq, ingested_at, first_seen_at, community, keep, hidden, event_id, author)
    SELECT seq, $10::bigint, $10::bigint, community, keep, ${HIDDEN_CODES.removed}, id, pubkey FROM held
  )
  INSERT INTO events
    (seq, ingested_at, created_at, community, kind, keep, hidden, hidden_at, expires_at,
     id, pubkey, payload, bound)
  SELECT seq, $10::bigint, created_at, community, kind, keep, ${HIDDEN_CODES.removed}, $10::bigint,
    nullif(expires_at, 0), id, pubkey, payload, string_to_array(bound, E'\\n')
  FROM held`;

export async function writeHeld(client: ClientBase, held: readonly HeldEvent[], now: number): Promise<void> {
  const events = held.map(({ submission }) => submission.event);
  await client.query({
    name: 'held',
    text: HELD_SQL,
    values: [
      int8Array(events.map((e) => e.created_at)),
      int8Array(events.map((e) => expirationOf(e) ?? 0)),
      int4Array(held.map(({ submission }) => submission.community)),
      int4Array(events.map((e) => e.kind)),
      int2Array(held.map(({ keep }) => keep)),
      hexArray(events.map((e) => e.id)),
      hexArray(events.map((e) => e.pubkey)),
      textArray(held.map(({ submission }) => submission.payload)),
      textArray(held.map(({ bound }) => (bound.length === 0 ? undefined : bound.join('\n')))),
      now,
    ],
  });
}
