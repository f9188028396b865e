/** The names of carried topics; the others are known by their ids only. */
import { useQuery } from '@tanstack/react-query';
import { api, dataOf } from '../shared/api.js';

const KEPT_MS = 60_000;

export function useTopicNames(): ReadonlyMap<string, string> {
  const { data } = useQuery({
    queryKey: ['topics', 'names'],
    queryFn: async () => {
      const query = { limit: 200 };
      const { items } = await dataOf(api.GET('/v1/admin/node-subscriptions', { params: { query } }));
      return new Map(items.flatMap(({ topic_id: id, name }) => (name === null ? [] : [[id, name] as const])));
    },
    staleTime: KEPT_MS,
  });
  return data ?? NONE;
}

const NONE: ReadonlyMap<string, string> = new Map();
