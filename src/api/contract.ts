/**
 * The declaration of a route of the API: one value gives its validation, its types and its part of the
 * OpenAPI document. Every route under /v1 is declared this way.
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import type { FastifySchema, HTTPMethods } from 'fastify';
import { z } from 'zod';
import type { Community } from '../communities/communities.js';
import type { Role } from '../members/rules-roles.js';
import type { DailyMetric } from '../plans/rules.js';
import type { ClientAddress } from '../port/client-address.js';
import { isReading, type OpenSession } from '../sessions/cookie.js';
import type { Token } from '../sessions/tokens.js';
import type { Denial, ErrorCode } from './rules-errors.js';

/**
 * `public`: anyone. `reader`: anyone if clients need not authenticate; a signing key is identified all the
 * same. `member`: any key that signs. `operator`: a key with a role in this community, at least the `role` of
 * the route.
 */
export type Who = 'public' | 'reader' | 'member' | 'operator';

type Input = z.ZodType<object>;
const nothing = z.strictObject({});
type Nothing = typeof nothing;

/** The checked input of a handler. */
export type Call<W extends Who, P = object, Q = object, B = object> = {
  readonly community: Community;
  readonly params: P;
  readonly query: Q;
  readonly body: B;
  /** The address of the client. */
  readonly client: ClientAddress;
  readonly now: number;
} & (W extends 'public'
  ? unknown
  : {
      readonly pubkey: W extends 'reader' ? string | undefined : string;
      /** The token or session of the request, if it was not signed. */
      readonly token?: Token | undefined;
      readonly session?: OpenSession | undefined;
      /** For a route that `keepsRequestId`: equal for equal requests with the same X-Request-Id. */
      readonly requestKey?: string | undefined;
      /** For a route that `produces` several types: the one that the client prefers. */
      readonly type: string;
      /** For a route that `produces` a stream: aborted when the client has disconnected. */
      readonly left?: AbortSignal | undefined;
      /** For a route that is `resumable`: the last offset that the client has received. */
      readonly lastEventId?: number | undefined;
    } & (W extends 'operator' ? Ranked : Partial<Ranked>));

/** For routes of operators: the role of the caller, and the least role that the route needs. */
interface Ranked {
  readonly role: Role;
  readonly leastRole: Role;
}

/** The unchecked input of a guard. */
export interface Knock {
  readonly community: Community;
  readonly headers: IncomingHttpHeaders;
  /** The raw body. */
  readonly bytes: Uint8Array;
  readonly now: number;
}

interface Description {
  readonly method: HTTPMethods;
  /** Below /v1, with `:name` for each of `params`. */
  readonly url: string;
  readonly summary: string;
  readonly description?: string;
  readonly tags: readonly [string, ...string[]];
  /** For routes of operators: the least role that may call it; `operator` by default. */
  readonly role?: Role;
  /** The status of a success; 200 by default. */
  readonly status?: 200 | 201 | 202;
  /** Also for a disabled or deleted account: requests about a person's own data. */
  readonly allowsDisabled?: boolean;
  /** Also for a member who is being erased: the progress and the certificate. */
  readonly allowsErased?: boolean;
  /**
   * Also in a community that is being erased: its followers read the deletes and acknowledge them (I17).
   */
  readonly allowsClosing?: boolean;
  /**
   * The success is not JSON: its possible media types, the default first, each with its schema. The handler
   * returns a `Download` or a `Flow`.
   */
  readonly produces?: Readonly<Record<string, z.ZodType>>;
  /** A client can resume after a disconnect (Last-Event-ID). */
  readonly resumable?: boolean;
  /** Neither a token nor a cookie is accepted. */
  readonly signedOnly?: boolean;
  /**
   * A reader need not authenticate, even if clients must; one that does also gets its own data.
   */
  readonly signingOptional?: boolean;
  /** The longest body, if 64 KiB are not enough. */
  readonly bodyBytesMax?: number;
  /** The refusals of the handler; those of the checks before it are added. */
  readonly errors: readonly ErrorCode[];
  /** Also limited by rate.subscriptionRequestsPerHour. */
  readonly isSubscriptionRequest?: boolean;
  /**
   * If clients must authenticate, the member must have agreed to the current policies.
   */
  readonly needsConsent?: boolean;
  /**
   * Each call counts as one use of this metric of the member's plan, right before the handler. If the handler
   * refuses or fails, the use is given back.
   */
  readonly counts?: DailyMetric;
  /**
   * The handler gets the X-Request-Id, and treats repeated requests with the same id as one.
   */
  readonly keepsRequestId?: boolean;
  /** An additional check of a public route, before the body is parsed as JSON. */
  readonly guard?: (knock: Knock) => Promise<Denial | undefined>;
}

type Answer<R> = R | WithCookie<R> | Denial;

export interface RouteSpec<
  W extends Who,
  P extends Input,
  Q extends Input,
  B extends Input,
  R extends z.ZodType,
> extends Description {
  readonly who: W;
  readonly params?: P;
  readonly query?: Q;
  readonly body?: B;
  readonly response: R;
  readonly handler: (
    call: Call<W, z.output<P>, z.output<Q>, z.output<B>>,
  ) => Promise<Answer<z.output<R>>> | Answer<z.output<R>>;
}

/** A declared route without its type parameters. */
export interface Route extends Description {
  readonly who: Who;
  readonly params?: Input;
  readonly query?: Input;
  readonly body?: Input;
  readonly response: z.ZodType;
  readonly handler: (call: Call<'reader'>) => unknown;
}

export function route<
  const W extends Who,
  R extends z.ZodType,
  P extends Input = Nothing,
  Q extends Input = Nothing,
  B extends Input = Nothing,
>(spec: RouteSpec<W, P, Q, B, R>): Route {
  // The input of the handler is checked with the schemas that give it its types.
  return spec as unknown as Route;
}

export const REQUEST_ID = 'x-request-id';
const named = z.looseObject({
  [REQUEST_ID]: z
    .string()
    .regex(/^[ -~]{1,128}$/, '1 to 128 printable characters')
    .optional()
    .describe('The id of this request: a repeated request is counted once'),
});
export const LAST_EVENT_ID = 'last-event-id';
const SEQ_DIGITS_MAX = 15;
const resuming = z.looseObject({
  [LAST_EVENT_ID]: z
    .string()
    .regex(new RegExp(`^\\d{1,${SEQ_DIGITS_MAX}}$`), 'a number')
    .optional()
    .describe('Sent by clients of server-sent events; replaces `after`'),
});

/** A file, sent as fast as the client reads it. */
export class Download {
  constructor(
    readonly stream: Readable,
    readonly bytes: number,
    readonly fileName: string,
  ) {}
}

/** A stream without a known end, sent as fast as the client reads it. */
export class Flow {
  constructor(readonly stream: Readable) {}
}

export interface Cookie {
  readonly name: string;
  readonly value: string;
  /** Only over TLS. */
  readonly secure: boolean;
  /** 0: the browser deletes it. */
  readonly maxAgeSeconds: number;
}

/** An answer that sets or deletes a cookie. */
export class WithCookie<R> {
  constructor(
    readonly body: R,
    readonly cookie: Cookie,
  ) {}
}

/** The OpenAPI schema of a file. */
export const binary = z.string().meta({ format: 'binary' });

const OF_MEMBERS = [
  'AUTH_REQUIRED',
  'INVALID_AUTH',
  'REPLAYED_AUTH',
  'INVALID_TOKEN',
  'ACCOUNT_DISABLED',
  'ACCOUNT_DELETED',
  'BEING_ERASED',
] as const;
const BY_WHO: Record<Who, readonly ErrorCode[]> = {
  public: [],
  reader: OF_MEMBERS,
  member: OF_MEMBERS,
  operator: [...OF_MEMBERS, 'INVALID_SESSION', 'CSRF_REQUIRED', 'OPERATORS_ONLY'],
};

/** The least role that may call a route of operators. */
export const leastRoleOf = ({ role = 'operator' }: Pick<Route, 'role'>): Role => role;

/** All refusals of a route. */
export function errorsOf(route: Route): ErrorCode[] {
  const { method, who, errors, counts, needsConsent = false } = route;
  const { allowsDisabled = false, allowsErased = false, signedOnly = false } = route;
  const impossible: ErrorCode[] = [
    ...(allowsDisabled ? (['ACCOUNT_DISABLED', 'ACCOUNT_DELETED'] as const) : []),
    ...(allowsErased ? (['BEING_ERASED'] as const) : []),
    ...(signedOnly ? (['INVALID_TOKEN', 'INVALID_SESSION', 'CSRF_REQUIRED'] as const) : []),
    ...(isReading(String(method)) ? (['CSRF_REQUIRED'] as const) : []),
  ];
  const ofBody: ErrorCode[] = method === 'GET' ? [] : ['PAYLOAD_TOO_LARGE', 'UNSUPPORTED_MEDIA_TYPE'];
  return [
    ...new Set<ErrorCode>([
      'INVALID_REQUEST',
      'ADDRESS_BLOCKED',
      ...ofBody,
      ...BY_WHO[who].filter((code) => !impossible.includes(code)),
      ...(needsConsent ? (['CONSENT_REQUIRED'] as const) : []),
      ...(counts === undefined ? [] : (['QUOTA_EXCEEDED'] as const)),
      ...errors,
      'RATE_LIMITED',
      'UNAVAILABLE',
      'INTERNAL',
    ]),
  ];
}

const SIGNED = [{ nostr: [] }, { token: [] }];
const READING = [{ session: [] }];
/** Both are required. */
const CHANGING = [{ session: [], csrf: [] }];

/** The accepted ways to authenticate. */
function securityOf({ who, method, signedOnly = false }: Route): { [name: string]: string[] }[] {
  if (signedOnly) return [{ nostr: [] }];
  if (who === 'reader') return [...SIGNED, {}];
  if (who === 'member') return SIGNED;
  return [...SIGNED, ...(isReading(String(method)) ? READING : CHANGING)];
}

/** Validation and documentation of a route. Only one of its two paths is in the documentation. */
export function schemaOf(route: Route, isShown: boolean): FastifySchema {
  const { summary, tags, who, body } = route;
  const headers = headersOf(route);
  const description = descriptionOf(route);
  return {
    summary,
    tags: [...tags],
    operationId: operationId(route),
    ...(description === undefined ? {} : { description }),
    ...(who === 'public' ? {} : { security: securityOf(route) }),
    ...(who === 'operator' ? { 'x-role': leastRoleOf(route) } : {}),
    ...(isShown ? {} : { hide: true }),
    params: paramsOf(route, isShown),
    querystring: route.query ?? nothing,
    ...(headers === undefined ? {} : { headers }),
    ...(body === undefined ? {} : { body }),
    response: responsesOf(route),
  };
}

/** For routes of operators it ends with the least role. */
function descriptionOf(route: Route): string | undefined {
  const { who, description } = route;
  if (who !== 'operator') return description;
  const needed = `Least role: \`${leastRoleOf(route)}\`.`;
  return description === undefined ? needed : `${description}\n\n${needed}`;
}

function headersOf({ counts, keepsRequestId = false, resumable = false }: Route): z.ZodType | undefined {
  if (resumable) return resuming;
  return counts === undefined && !keepsRequestId ? undefined : named;
}

/** Under /c/<slug> the slug is one more parameter. */
function paramsOf({ params }: Route, isShown: boolean): unknown {
  if (isShown) return params ?? nothing;
  const slug = z.object({ slug: z.string() });
  return params === undefined ? slug : z.intersection(slug, loosened(params));
}

/** Its own parameters are checked as strictly as before; only the slug is allowed beside them. */
function loosened(params: Input): z.ZodType {
  return params instanceof z.ZodObject ? params.loose() : params;
}

export function operationId({ method, url }: Pick<Route, 'method' | 'url'>): string {
  const words = url.split(/[^A-Za-z0-9]+/).filter((word) => word !== '');
  return [String(method).toLowerCase(), ...words].join('-');
}

/** Only of a success. Many routes share refusals: the OpenAPI document has each once (`document.ts`). */
function responsesOf({ status = 200, response, produces }: Route): Record<number, unknown> {
  return { [status]: produces === undefined ? json('Done', response) : typed(produces) };
}

const json = (description: string, schema: z.ZodType) => ({
  description,
  content: { 'application/json': { schema } },
});

const typed = (types: Readonly<Record<string, z.ZodType>>) => ({
  description: 'Done',
  content: Object.fromEntries(Object.entries(types).map(([type, schema]) => [type, { schema }])),
});
