/**
 * The list of the finder. It keeps what a row shows and no more, so that 100,000 rows fit into the memory of
 * a browser.
 */
import { api, dataOf, useList } from '../../../shared/api.js';
import { day, type FiltersOf, oneOf, text } from '../../../shared/filters.js';
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

export const filters = {
  text,
  id: text,
  author: text,
  topic: text,
  kind: text,
  since: day,
  until: day,
  state: oneOf(SHOWN),
};
export type Filters = FiltersOf<typeof filters>;

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
  const read = async (cursor: string | undefined, signal: AbortSignal) => {
    const params = { query: queryOf(asked, cursor) };
    const page = await dataOf(api.GET('/v1/admin/events', { params, signal }));
    return { items: page.items.map(rowOf), next_cursor: page.next_cursor };
  };
  return useList(['events', asked], read, { enabled });
}
