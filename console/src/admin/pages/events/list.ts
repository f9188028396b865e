/**
 * The list of the finder. It keeps what a row shows and no more, so that 100,000 rows fit into the memory of
 * a browser; and it does not read its pages again by itself, because that would be as many requests.
 */
import { useInfiniteQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { z } from 'zod';
import { api, dataOf } from '../../../shared/api.js';
import type { paths } from '../../../shared/schema.js';

type Answer = paths['/v1/admin/events']['get']['responses'][200]['content']['application/json'];
export type FoundEvent = Answer['items'][number];
export type State = FoundEvent['state'];

export interface Row {
  readonly id: string;
  readonly author: string;
  readonly kind: number;
  /** Milliseconds. */
  readonly at: number;
  readonly state: State;
  readonly concealed: FoundEvent['concealed'];
  readonly text: string;
  readonly topics: readonly string[];
}

export const SHOWN = ['served', 'hidden', 'deleted', 'removed'] as const;
const text = z.coerce.string().max(2_000).optional().catch(undefined);
const day = z
  .string()
  .regex(/^\d{4}-\d\d-\d\d$/)
  .optional()
  .catch(undefined);

export const filters = z.object({
  text,
  id: text,
  author: text,
  topic: text,
  kind: text,
  since: day,
  until: day,
  state: z.enum(SHOWN).optional().catch(undefined),
});
export type Filters = z.output<typeof filters>;

/** The first page is short, so that it is there at once; who scrolls on gets longer ones. */
const FIRST_PAGE = 60;
const NEXT_PAGE = 200;
const TEXT_MAX = 240;
const DAY_SECONDS = 86_400;

/** The first second of a day in the time zone of the reader. */
const startOf = (given: string): number => Math.floor(new Date(`${given}T00:00:00`).getTime() / 1_000);

function queryOf({ since, until, ...rest }: Filters, cursor: string | undefined) {
  return {
    ...rest,
    ...(since === undefined ? {} : { since: startOf(since) }),
    ...(until === undefined ? {} : { until: startOf(until) + DAY_SECONDS - 1 }),
    ...(cursor === undefined ? { limit: FIRST_PAGE } : { limit: NEXT_PAGE, cursor }),
  };
}

const rowOf = (found: FoundEvent): Row => ({
  id: found.event_id,
  author: found.author,
  kind: found.kind,
  at: found.created_at * 1_000,
  state: found.state,
  concealed: found.concealed,
  text: found.event?.content.slice(0, TEXT_MAX) ?? '',
  topics: found.topics,
});

export function useEvents(asked: Filters, enabled: boolean) {
  const query = useInfiniteQuery({
    queryKey: ['events', asked],
    queryFn: async ({ pageParam, signal }) => {
      const params = { query: queryOf(asked, pageParam) };
      const page = await dataOf(api.GET('/v1/admin/events', { params, signal }));
      return { items: page.items.map(rowOf), next_cursor: page.next_cursor };
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    enabled,
    staleTime: 30_000,
    refetchOnWindowFocus: false,
    refetchOnReconnect: false,
    placeholderData: (before) => before,
  });
  const { data } = query;
  const items = useMemo(() => data?.pages.flatMap((page) => page.items) ?? [], [data]);
  return { ...query, items };
}
