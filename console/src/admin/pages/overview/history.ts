/** The history of the node, read once and shared by the pages that show a part of it. */
import { useQuery } from '@tanstack/react-query';
import { api, dataOf } from '../../../shared/api.js';
import { type FiltersOf, oneOfOr } from '../../../shared/filters.js';

export const range = { range: oneOfOr(['24h', '30d'], '24h') };
export type Range = FiltersOf<typeof range>['range'];

const REFETCH_MS = 60_000;

export function useHistory(of: Range) {
  return useQuery({
    queryKey: ['history', of],
    queryFn: () => dataOf(api.GET('/v1/admin/history', { params: { query: { range: of } } })),
    refetchInterval: REFETCH_MS,
    placeholderData: (before) => before,
  });
}

export type History = NonNullable<ReturnType<typeof useHistory>['data']>;
export type NodeHistory = NonNullable<History['node']>;

/** Seconds, as charts want them. */
export const secondsOf = (at: readonly number[]): number[] => at.map((ms) => ms / 1_000);

/** Adds series step by step. A step that no series has stays empty. */
export function addSeries(all: readonly (readonly (number | null)[] | undefined)[]): (number | null)[] {
  const known = all.filter((series) => series !== undefined);
  const length = Math.max(0, ...known.map((series) => series.length));
  return Array.from({ length }, (_, at) => {
    const values = known.flatMap((series) => series[at] ?? []);
    return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0);
  });
}
