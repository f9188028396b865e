/** I9: the search index, read by SQL, has exactly the posts that are served; followed live or rebuilt. */
import type pg from 'pg';
import type { Expected } from '../model.js';
import type { Violations } from '../violations.js';

export interface IndexState {
  readonly generation: number;
  readonly isCurrent: boolean;
  /** Of posts in the first community. */
  readonly documents: ReadonlySet<string>;
}

export async function readIndex(client: pg.Client): Promise<IndexState> {
  const { rows } = await client.query<{ generation: number; isCurrent: boolean }>(
    `SELECT o.generation, o.last_seq >= (SELECT max(seq) FROM events_outbox) AS "isCurrent"
     FROM consumer_offsets o WHERE o.consumer = 'search'`,
  );
  const [state] = rows;
  const found = await client.query<{ id: string }>(
    `SELECT encode(event_id, 'hex') AS id FROM post_search_documents
     WHERE generation = $1 AND deleted_at IS NULL AND kind = 1
       AND community = (SELECT id FROM communities WHERE slug = 'default')`,
    [state?.generation ?? 0],
  );
  return {
    generation: state?.generation ?? 0,
    isCurrent: state?.isCurrent ?? false,
    documents: new Set(found.rows.map(({ id }) => id)),
  };
}

export function checkIndex(
  what: string,
  { documents }: IndexState,
  { served, open, expired }: Expected,
  violations: Violations,
): void {
  const expected = new Set([...served.values()].flatMap(({ id, kind }) => (kind === 1 ? [id] : [])));
  const seen = new Set([...documents].filter((id) => !open.has(id) && !expired.has(id)));
  violations.same('I9', `the search index, ${what}`, { expected, seen });
}
