/** The jobs of the node, and whether the signed-in person is one of its operators. */
import { useQuery } from '@tanstack/react-query';
import { api, dataOf } from '../../../shared/api.js';

const REFETCH_MS = 5_000;

export const JOBS_KEY = ['jobs'];

export function useJobs() {
  return useQuery({
    queryKey: JOBS_KEY,
    queryFn: () => dataOf(api.GET('/v1/admin/jobs')),
    refetchInterval: REFETCH_MS,
  });
}

export type Job = NonNullable<ReturnType<typeof useJobs>['data']>['items'][number];

/** Things of the whole node are changed only by its operators. Undefined while it is not known. */
export function useNodeOperator(): boolean | undefined {
  const { data } = useQuery({
    queryKey: [...JOBS_KEY, 'may-run'],
    queryFn: async () => (await dataOf(api.GET('/v1/admin/jobs'))).may_run,
    staleTime: 60_000,
  });
  return data;
}
