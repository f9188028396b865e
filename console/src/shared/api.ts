/**
 * The client of the HTTP API, with types from the OpenAPI document. A refusal is thrown as an `ApiError`,
 * which has the code, the message and the details that the node gave.
 */
import { useInfiniteQuery, useMutation, useQueryClient } from '@tanstack/react-query';
import createClient, { type Middleware } from 'openapi-fetch';
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

/** A list that is read page by page, as far as the reader goes. */
export function useList<T>(
  key: readonly unknown[],
  read: (cursor: string | undefined) => Promise<Page<T>>,
  options: { readonly enabled?: boolean; readonly refetchInterval?: number } = {},
) {
  const query = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam }) => read(pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    ...options,
  });
  return { ...query, items: query.data?.pages.flatMap(({ items }) => items) ?? [] };
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
      await Promise.all(changes.map((queryKey) => client.invalidateQueries({ queryKey })));
    },
  });
}
