/** The consumers and their states. */
import { useQuery } from '@tanstack/react-query';
import { api, dataOf } from '../../../shared/api.js';

const REFETCH_MS = 3_000;
export const CONSUMERS_KEY = ['consumers'];

export function useConsumers() {
  return useQuery({
    queryKey: CONSUMERS_KEY,
    queryFn: () => dataOf(api.GET('/v1/admin/consumers')),
    refetchInterval: REFETCH_MS,
  });
}

export type Consumer = NonNullable<ReturnType<typeof useConsumers>['data']>['items'][number];

const COLORS = {
  paused: 'orange',
  rebuilding: 'blue',
  failing: 'red',
  behind: 'red',
  stopped: 'orange',
  following: 'blue',
  current: 'teal',
} as const;
type State = keyof typeof COLORS;

/** The state that matters most. */
export function stateOf(of: Consumer): { readonly state: State; readonly color: (typeof COLORS)[State] } {
  const state = firstOf(of);
  return { state, color: COLORS[state] };
}

function firstOf(of: Consumer): State {
  if (of.paused_at !== null) return 'paused';
  if (of.rebuild !== null) return 'rebuilding';
  if (of.behind) return 'behind';
  if (of.failing_since !== null) return 'failing';
  if (!of.held && of.lag_rows > 0) return 'stopped';
  return of.lag_rows > 0 ? 'following' : 'current';
}
