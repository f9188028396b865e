/**
 * How busy topics are: posts of the last day and week, and the newest one. One index scan per topic, and each
 * stops at its limit, so a busy topic costs no more than `POSTS_COUNTED_MAX` rows.
 */
import type { Db } from '../../../postgres/values.js';
import type { Filter } from '../../rules/filter.js';
import { DAY_MS } from '../../rules/retention.js';
import {
  type ActivityOf,
  POST_KINDS,
  POSTS_COUNTED_MAX,
  type TopicActivity,
  WEEK_DAYS,
} from '../../stored-events.js';
import { eventAt } from '../places.js';
import type { TagHash } from '../tag-hash.js';
import { carries, conditions, contextOf, requestedTags, servedKeeps } from './query.js';
import { Parameters, run } from './statement.js';

/** The activity of each of these topics, also of those without posts. */
export async function readTopicActivity(
  db: Db,
  tagHash: TagHash,
  { community, topics, rules, now }: ActivityOf,
): Promise<Map<string, TopicActivity>> {
  const tag = { name: 't', values: new Set(topics) };
  const filter: Filter = { kinds: POST_KINDS, tags: [tag] };
  const params = new Parameters();
  const query = { community, filter, limit: POSTS_COUNTED_MAX, now, rules };
  const context = contextOf(query, tagHash, params, '');
  const daysAgo = (days: number) => params.add(Math.floor((now - days * DAY_MS) / 1_000), 'bigint');
  const posts = `SELECT g.created_at FROM event_tags g ${eventAt('g')}
      WHERE g.tag = asked.tag AND g.keep IN (${servedKeeps(filter)}) AND ${carries(tag, filter)}
        AND ${conditions(context, { tag })}`;
  const text = `SELECT asked.topic, coalesce(recent.day, 0), coalesce(recent.week, 0), newest.created_at
    FROM ${requestedTags(context, tag)}
    LEFT JOIN LATERAL (
      SELECT count(*) FILTER (WHERE p.created_at >= ${daysAgo(1)}) AS day, count(*) AS week
      FROM (${posts} AND g.created_at >= ${daysAgo(WEEK_DAYS)}
        ORDER BY g.created_at DESC LIMIT ${context.limit}) p) recent ON true
    LEFT JOIN LATERAL (${posts} ORDER BY g.created_at DESC LIMIT 1) newest ON true`;
  const { rows } = await run<[string, number, number, number | null]>(db, { text, values: params.values });
  return new Map(
    rows.map(([topic, postsDay, postsWeek, lastPostAt]) => [topic, { postsDay, postsWeek, lastPostAt }]),
  );
}
