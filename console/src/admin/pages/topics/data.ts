/** What the API says about topics. */
import type { paths } from '../../../shared/schema.js';

const TOPICS = '/v1/admin/node-subscriptions';
type Answer = paths[typeof TOPICS]['get']['responses'][200]['content']['application/json'];
export type Topic = Answer['items'][number];
export type Policy = Topic['ingest_policy'];
export type Preview =
  paths['/v1/admin/node-subscriptions/{topic_id}/preview']['post']['responses'][200]['content']['application/json'];

export const TOPICS_KEY = ['topics'] as const;
export const BLOCKED_KEY = ['blocked-topics'] as const;

export const nameOf = ({ name, topic_id }: Pick<Topic, 'name' | 'topic_id'>): string => name ?? topic_id;

/** Only rules that decide what is purged need a preview. */
export function purgesDiffer(a: Policy, b: Policy): boolean {
  return (['retentionDays', 'maxEvents', 'maxBytes'] as const).some((key) => a[key] !== b[key]);
}
