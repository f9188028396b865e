/** Filters of a page live in its URL, so that a link to what one sees can be shared. */
import { useNavigate, useSearch } from '@tanstack/react-router';
import { z } from 'zod';

// The policy of the pages allows no code from text; without this zod tries it once.
z.config({ jitless: true });

/**
 * The filters of this page, and a function that changes some of them. What the URL has in a wrong form is as
 * if it were missing; undefined and empty values are left out of the URL.
 */
export function useFilters<S extends z.ZodObject>(
  schema: S,
): readonly [z.output<S>, (change: Partial<z.output<S>>) => void] {
  const search = useSearch({ strict: false }) as Record<string, unknown>;
  const navigate = useNavigate();
  const parsed = schema.safeParse(search);
  const value = parsed.success ? parsed.data : schema.parse({});
  const set = (change: Partial<z.output<S>>) => {
    const next = Object.entries({ ...value, ...change }).filter(
      ([, each]) => each !== undefined && each !== '',
    );
    // The router has no types for routes that the folders declare.
    void navigate({ search: Object.fromEntries(next), replace: true } as unknown as Parameters<
      typeof navigate
    >[0]);
  };
  return [value, set];
}
