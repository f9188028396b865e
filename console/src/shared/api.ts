/**
 * The client of the HTTP API, with types from the OpenAPI document. A refusal is thrown as an `ApiError`,
 * which has the code, the message and the details that the node gave.
 */
import {
  type InfiniteData,
  type QueryClient,
  useInfiniteQuery,
  useMutation,
  useQueryClient,
} from '@tanstack/react-query';
import createClient, { type Middleware } from 'openapi-fetch';
import { useMemo } from 'react';
import { prefix } from './place.js';
import type { paths } from './schema.js';

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: Readonly<Record<string, unknown>> = {},
    /** Seconds until another try makes sense. */
    readonly retryAfter?: number,
  ) {
    super(message);
  }
}

/** What is sent with each request: the token against forged requests, or the token of a member. */
export const credentials: { csrf?: string | undefined; token?: string | undefined } = {};

const middleware: Middleware = {
  onRequest: ({ request }) => {
    if (credentials.token !== undefined) request.headers.set('authorization', `Bearer ${credentials.token}`);
    if (credentials.csrf !== undefined && request.method !== 'GET')
      request.headers.set('x-csrf-token', credentials.csrf);
    return request;
  },
  onResponse: async ({ response }) => {
    if (response.ok) return undefined;
    throw await errorOf(response);
  },
};

export async function errorOf(response: Response): Promise<ApiError> {
  const body = (await response
    .clone()
    .json()
    .catch(() => ({}))) as { code?: string; message?: string; details?: Record<string, unknown> };
  const after = response.headers.get('retry-after');
  return new ApiError(
    response.status,
    body.code ?? 'UNAVAILABLE',
    body.message ?? response.statusText,
    body.details,
    after === null ? undefined : Number(after),
  );
}

export const api = createClient<paths>({ baseUrl: prefix === '' ? '/' : `${prefix}/` });
api.use(middleware);

/** The body of a success. Refusals have been thrown already. */
export async function dataOf<T>(answer: Promise<{ data?: T }>): Promise<T> {
  return (await answer).data as T;
}

export interface Page<T> {
  readonly items: readonly T[];
  readonly next_cursor: string | null;
}

interface ListOptions {
  readonly enabled?: boolean;
  readonly refetchInterval?: number;
  /** What the rows belong to, such as one consumer. Rows of another one do not stay while these are read. */
  readonly of?: string;
}

/** A longer list is not read again by itself: that would be a request for each page. */
const PAGES_READ_AGAIN_MAX = 3;

/**
 * A list that is read page by page, as far as the reader goes. While the rows of other filters are read, the
 * ones before stay.
 */
export function useList<T>(
  key: readonly unknown[],
  read: (cursor: string | undefined, signal: AbortSignal) => Promise<Page<T>>,
  { enabled = true, refetchInterval, of }: ListOptions = {},
) {
  const query = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam, signal }) => read(pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    enabled,
    meta: { of },
    refetchOnMount: isShort,
    refetchOnWindowFocus: isShort,
    refetchOnReconnect: isShort,
    refetchInterval: (one) => (refetchInterval !== undefined && isShort(one) ? refetchInterval : false),
    placeholderData: (before, previous) => (previous?.meta?.of === of ? before : undefined),
  });
  const { data } = query;
  const items = useMemo(() => data?.pages.flatMap((page) => page.items) ?? [], [data]);
  /** Reads it again if it is short. */
  const refresh = () => {
    if (!isLong(data)) void query.refetch();
  };
  return { ...query, items, refresh };
}

const isLong = (data: unknown): data is InfiniteData<unknown> =>
  ((data as Partial<InfiniteData<unknown>> | undefined)?.pages ?? []).length > PAGES_READ_AGAIN_MAX;
const isShort = (query: { readonly state: { readonly data?: unknown } }) => !isLong(query.state.data);

/** Reads again what a key names. Of a long list the first pages are kept; the others are read as one scrolls. */
export async function readAgain(client: QueryClient, queryKey: readonly unknown[]): Promise<void> {
  client.setQueriesData({ queryKey }, (data: unknown) => {
    if (!isLong(data)) return data;
    const first = (all: readonly unknown[]) => all.slice(0, PAGES_READ_AGAIN_MAX);
    return { pages: first(data.pages), pageParams: first(data.pageParams) };
  });
  await client.invalidateQueries({ queryKey });
}

/** Changes something, then reads again what the keys name. */
export function useAction<I, O>(
  act: (input: I) => Promise<O>,
  {
    changes,
    onDone,
  }: { readonly changes: readonly (readonly unknown[])[]; readonly onDone?: (output: O, input: I) => void },
) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: act,
    onSuccess: async (output, input) => {
      onDone?.(output, input);
      await Promise.all(changes.map((queryKey) => readAgain(client, queryKey)));
    },
  });
}
