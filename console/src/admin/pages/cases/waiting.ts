/** How much waits for moderators, as numbers beside the tabs. */
import { useQuery } from '@tanstack/react-query';
import { api, dataOf } from '../../../shared/api.js';
import { number } from '../../../shared/format.js';

const READ_AGAIN_MS = 15_000;

export function useWaiting() {
  return useQuery({
    queryKey: ['waiting'],
    queryFn: () => dataOf(api.GET('/v1/admin/moderation/waiting')),
    refetchInterval: READ_AGAIN_MS,
  }).data;
}

/** "7", or "100+" when the count stopped. */
export const upTo = ({ count, more }: { readonly count: number; readonly more: boolean }): string =>
  `${number(count)}${more ? '+' : ''}`;
