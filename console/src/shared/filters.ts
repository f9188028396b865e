/** Filters of a page live in its URL, so that a link to what one sees can be shared. */
import { useNavigate, useSearch } from '@tanstack/react-router';

/** Reads one value of the URL. What is missing or has a wrong form gives the default, or undefined. */
type Reader<T> = (given: unknown) => T;
type Readers = Readonly<Record<string, Reader<unknown>>>;
export type FiltersOf<R extends Readers> = { readonly [K in keyof R]: ReturnType<R[K]> };

const TEXT_MAX = 2_000;
const DAY = /^\d{4}-\d\d-\d\d$/;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The router reads a value that looks like a number as one. */
function textIn(given: unknown, form?: RegExp): string | undefined {
  const read = typeof given === 'number' || typeof given === 'boolean' ? String(given) : given;
  const isText = typeof read === 'string' && read.length <= TEXT_MAX;
  return isText && (form === undefined || form.test(read)) ? read : undefined;
}

export const text: Reader<string | undefined> = (given) => textIn(given);

export const textLike =
  (form: RegExp): Reader<string | undefined> =>
  (given) =>
    textIn(given, form);

export const textOr =
  (otherwise: string, form?: RegExp): Reader<string> =>
  (given) =>
    textIn(given, form) ?? otherwise;

export const day = textLike(DAY);
export const uuid = textLike(UUID);

export const flag: Reader<boolean | undefined> = (given) => (typeof given === 'boolean' ? given : undefined);

export const oneOf =
  <const V extends string>(values: readonly V[]): Reader<V | undefined> =>
  (given) =>
    values.find((value) => value === given);

export const oneOfOr =
  <const V extends string>(values: readonly V[], otherwise: NoInfer<V>): Reader<V> =>
  (given) =>
    values.find((value) => value === given) ?? otherwise;

/**
 * The filters of this page, and a function that changes some of them. Undefined and empty values are left out
 * of the URL.
 */
export function useFilters<R extends Readers>(
  readers: R,
): readonly [FiltersOf<R>, (change: Partial<FiltersOf<R>>) => void] {
  const search = useSearch({ strict: false }) as Record<string, unknown>;
  const navigate = useNavigate();
  const value = Object.fromEntries(
    Object.entries(readers).map(([name, read]) => [name, read(search[name])]),
  ) as FiltersOf<R>;
  const set = (change: Partial<FiltersOf<R>>) => {
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
