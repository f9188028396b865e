/** Counts the references to events, for the scores of search. */
import { int8Array } from '../../../postgres/binary.js';
import type { View } from '../../rules/access.js';
import type { Query } from '../../store.js';
import { eventAt } from '../places.js';
import type { Tables } from './find.js';
import { conditions, contextOf } from './query.js';
import { Parameters, run } from './statement.js';

/** The most tag rows read for one event, even when many of them belong to hidden events. */
const REFERENCES_LOOKED_MAX = 500;

export interface ReferencesOf extends Pick<Query, 'community' | 'now' | 'rules'> {
  readonly ids: readonly string[];
  /** The count stops here. */
  readonly max: number;
  /** References after this position do not count. */
  readonly cut: number;
  /** Only references visible in this view count. */
  readonly view: View;
}

/**
 * How many events visible in the view refer to each of these events (`e` tag), in the order of `ids`. The tag
 * hash is enough, because no event is returned.
 */
export async function countReferences({ pool, tagHash }: Tables, of: ReferencesOf): Promise<number[]> {
  const { ids, max, cut, view, ...query } = of;
  const params = new Parameters();
  const context = contextOf({ ...query, filter: { tags: [], view }, limit: max }, tagHash, params, '');
  const tags = params.add(int8Array(ids.map((id) => tagHash(query.community, 'e', id))), 'bigint[]');
  const text = `SELECT asked.place::int, (SELECT count(*) FROM (
      SELECT 1 FROM (SELECT * FROM event_tags t
        WHERE t.tag = asked.tag AND t.seq <= ${params.add(cut, 'bigint')}
        ORDER BY t.created_at DESC LIMIT ${REFERENCES_LOOKED_MAX}) g
      ${eventAt('g')}
      WHERE ${conditions(context, {})} LIMIT ${context.limit}) r)
    FROM unnest(${tags}) WITH ORDINALITY AS asked (tag, place) ORDER BY asked.place`;
  const { rows } = await run<[number, number]>(pool, { text, values: params.values });
  return rows.map(([, count]) => count);
}
