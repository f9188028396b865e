/**
 * Signed HTTP requests (NIP-98): checks whether an event authenticates a request. Its id and its signature
 * are checked elsewhere. Pure.
 */
import type { NostrEvent } from '../events/rules/event.js';
import { toHttp } from '../events/rules/relay-url.js';

export const KIND_HTTP_AUTH = 27_235;
/** How much the clock of a client may differ. */
export const AUTH_SECONDS_MAX = 60;

export interface SignedRequest {
  readonly method: string;
  /** All public URLs of the requested resource. */
  readonly urls: readonly string[];
  /** SHA-256 of the body, hex; undefined without a body. */
  readonly bodyHash: string | undefined;
  readonly nowSeconds: number;
}

/** Which check failed. */
export type AuthProblem = 'kind' | 'created_at' | 'method' | 'url' | 'payload';

/** SHA-256 of an empty body: some clients sign it when they send no body. */
const EMPTY_HASH = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

export function findAuthProblem(event: NostrEvent, request: SignedRequest): AuthProblem | undefined {
  if (event.kind !== KIND_HTTP_AUTH) return 'kind';
  if (Math.abs(request.nowSeconds - event.created_at) > AUTH_SECONDS_MAX) return 'created_at';
  if (onlyTag(event, 'method')?.toUpperCase() !== request.method) return 'method';
  const url = normalizeHttpUrl(onlyTag(event, 'u') ?? '');
  if (url === undefined || !request.urls.some((ours) => normalizeHttpUrl(ours) === url)) return 'url';
  const named = event.tags.some(([name]) => name === 'payload');
  if (request.bodyHash === undefined && !named) return undefined;
  return onlyTag(event, 'payload')?.toLowerCase() === (request.bodyHash ?? EMPTY_HASH)
    ? undefined
    : 'payload';
}

/** A signature is for one request, so a repeated tag is ambiguous and refused. */
function onlyTag(event: NostrEvent, wanted: string): string | undefined {
  const values = event.tags.filter(([name]) => name === wanted);
  return values.length === 1 ? values[0]?.[1] : undefined;
}

/** Makes equivalent URLs equal: case of the host, a default port, `:` and `%3A`, a trailing slash. */
export function normalizeHttpUrl(text: string): string | undefined {
  if (!URL.canParse(text)) return undefined;
  const { protocol, username, password, host, pathname, search, hash } = new URL(toHttp(text));
  if (!/^https?:$/.test(protocol) || username !== '' || password !== '' || hash !== '') return undefined;
  const path = respell(pathname.replace(/\/$/, ''));
  return path === undefined ? undefined : `${protocol}//${host}${path}${search}`;
}

function respell(path: string): string | undefined {
  try {
    return path
      .split('/')
      .map((segment) => encodeURIComponent(decodeURIComponent(segment)))
      .join('/');
  } catch {
    return undefined;
  }
}
