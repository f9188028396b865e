/** The names of people, as their profiles have them, for lists that know keys only. */
import { useQueries } from '@tanstack/react-query';
import { api, dataOf } from '../../../shared/api.js';

/** Keys of one request. */
const PART = 50;
const STALE_MS = 60_000;

interface Profile {
  readonly name: string | null;
  readonly display_name: string | null;
}

export const nameIn = (profile: Profile | null | undefined): string | null =>
  profile?.display_name ?? profile?.name ?? null;

/** Keys are asked in the order of the list, so that a longer list asks for its new rows only. */
export function useNames(pubkeys: readonly string[]): ReadonlyMap<string, string> {
  const keys = [...new Set(pubkeys)];
  const parts = Array.from({ length: Math.ceil(keys.length / PART) }, (_, at) =>
    keys.slice(at * PART, (at + 1) * PART),
  );
  return useQueries({
    queries: parts.map((part) => ({
      queryKey: ['profiles', ...part],
      queryFn: () =>
        dataOf(api.GET('/v1/admin/profiles', { params: { query: { pubkeys: part.join(',') } } })),
      staleTime: STALE_MS,
    })),
    combine: (answers) =>
      new Map(
        answers.flatMap(({ data }) =>
          (data?.items ?? []).flatMap(({ pubkey, profile }) => {
            const name = nameIn(profile);
            return name === null ? [] : [[pubkey, name] as const];
          }),
        ),
      ),
  });
}
