/**
 * How a route of the API is declared: one value that gives its validation, its types and its place in the OpenAPI document.
 * A route that is not declared so cannot exist under /v1.
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import type { FastifySchema, HTTPMethods } from 'fastify';
import { z } from 'zod';
import type { ClientAddress } from '../client-address.js';
import type { Community } from '../communities.js';
import { type Denial, ERRORS, type ErrorCode } from '../core/errors.js';
import type { DailyMetric } from '../core/plan-limits.js';
import { isReading, type OpenSession } from './session-cookie.js';
import type { Token } from './tokens.js';

/**
 * `public`: anyone. `reader`: anyone, where clients need not authenticate; a key that signs is known all the same. `member`: any
 * key that signs. `operator`: a key that runs this community.
 */
export type Who = 'public' | 'reader' | 'member' | 'operator';

type Input = z.ZodType<object>;
const nothing = z.strictObject({});
type Nothing = typeof nothing;

/** What a handler gets: all of it checked. */
export type Call<W extends Who, P = object, Q = object, B = object> = {
  readonly community: Community;
  readonly params: P;
  readonly query: Q;
  readonly body: B;
  /** Where it comes from. */
  readonly client: ClientAddress;
  readonly now: number;
} & (W extends 'public'
  ? unknown
  : {
      readonly pubkey: W extends 'reader' ? string | undefined : string;
      /** What it was asked with, when that is no signature. */
      readonly token?: Token | undefined;
      readonly session?: OpenSession | undefined;
      /** Of a route that `keepsRequestId`: the same for the same request under the same name. */
      readonly requestKey?: string | undefined;
      /** Of a route that `produces` several types: the one that the client would rather have. */
      readonly type: string;
      /** Of a route that `produces` a stream: aborted once the client is gone. */
      readonly left?: AbortSignal | undefined;
      /** Of a route that is `resumable`: the number that the client has come to. */
      readonly lastEventId?: number | undefined;
    });

/** What a guard goes by: nothing of it is checked yet. */
export interface Knock {
  readonly community: Community;
  readonly headers: IncomingHttpHeaders;
  /** The body as it came. */
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
  /** Of a success; 200 unless told. */
  readonly status?: 200 | 201 | 202;
  /** Also for an account that is disabled or deleted: what a person may ask about their own data. */
  readonly allowsDisabled?: boolean;
  /** Also for one who is being erased: how far it has come, and the proof of it. */
  readonly allowsErased?: boolean;
  /**
   * Also in a community that is being erased: its followers read what is deleted, and acknowledge it (I17).
   */
  readonly allowsClosing?: boolean;
  /**
   * The success is no JSON: the types that it can have, the usual one first, each with what it holds. The handler gives a
   * `Download` or a `Flow`.
   */
  readonly produces?: Readonly<Record<string, z.ZodType>>;
  /** A client that was cut off tells where it goes on (Last-Event-ID). */
  readonly resumable?: boolean;
  /** Neither a token nor a cookie will do. */
  readonly signedOnly?: boolean;
  /** A reader need not say who asks, not even where clients must authenticate; who does learns what is theirs. */
  readonly signingOptional?: boolean;
  /** Longest body, where 64 KiB are too few. */
  readonly bodyBytesMax?: number;
  /** Refusals of the handler; those of the checks before it are added. */
  readonly errors: readonly ErrorCode[];
  /** Counted by rate.subscriptionRequestsPerHour as well. */
  readonly isSubscriptionRequest?: boolean;
  /** Uses the node on the member's behalf: where clients must authenticate, the current policies must be agreed to. */
  readonly needsConsent?: boolean;
  /**
   * Each call of a key is one use of this metric of its plan, counted right before the handler. When the handler refuses or
   * fails, the use is given back.
   */
  readonly counts?: DailyMetric;
  /** What the sender named the request (X-Request-Id) goes to the handler, which makes one thing of it however often it is sent. */
  readonly keepsRequestId?: boolean;
  /** A proof of its own that a public route asks for, before the body is read as JSON. */
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

/** A declared route whose types have done their work. */
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
  // The schemas that give the handler its types are the ones that its input is checked with.
  return spec as unknown as Route;
}

export const REQUEST_ID = 'x-request-id';
const named = z.looseObject({
  [REQUEST_ID]: z
    .string()
    .regex(/^[ -~]{1,128}$/, '1 to 128 printable characters')
    .optional()
    .describe('Names this request: sent again, it is not counted again'),
});
export const LAST_EVENT_ID = 'last-event-id';
const SEQ_DIGITS_MAX = 15;
const resuming = z.looseObject({
  [LAST_EVENT_ID]: z
    .string()
    .regex(new RegExp(`^\\d{1,${SEQ_DIGITS_MAX}}$`), 'a number')
    .optional()
    .describe('Sent by clients of server-sent events; counts instead of `after`'),
});

/** A file, sent as fast as its reader takes it. */
export class Download {
  constructor(
    readonly stream: Readable,
    readonly bytes: number,
    readonly fileName: string,
  ) {}
}

/** What has no known end, sent as fast as its reader takes it. */
export class Flow {
  constructor(readonly stream: Readable) {}
}

export interface Cookie {
  readonly name: string;
  readonly value: string;
  /** Only over TLS. */
  readonly secure: boolean;
  /** 0: the browser forgets it. */
  readonly maxAgeSeconds: number;
}

/** An answer that gives the browser a cookie or takes it away. */
export class WithCookie<R> {
  constructor(
    readonly body: R,
    readonly cookie: Cookie,
  ) {}
}

/** What the bytes of a file are to OpenAPI. */
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

/** Every refusal that a route may answer. */
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
/** Both together. */
const CHANGING = [{ session: [], csrf: [] }];

/** How one may prove who asks. */
function securityOf({ who, method, signedOnly = false }: Route): { [name: string]: string[] }[] {
  if (signedOnly) return [{ nostr: [] }];
  if (who === 'reader') return [...SIGNED, {}];
  if (who === 'member') return SIGNED;
  return [...SIGNED, ...(isReading(String(method)) ? READING : CHANGING)];
}

/** Validation and documentation of a route. Only one of its two addresses is shown. */
export function schemaOf(route: Route, isShown: boolean): FastifySchema {
  const { summary, description, tags, who, body } = route;
  const headers = headersOf(route);
  return {
    summary,
    tags: [...tags],
    operationId: operationId(route),
    ...(description === undefined ? {} : { description }),
    ...(who === 'public' ? {} : { security: securityOf(route) }),
    ...(isShown ? {} : { hide: true }),
    params: paramsOf(route, isShown),
    querystring: route.query ?? nothing,
    ...(headers === undefined ? {} : { headers }),
    ...(body === undefined ? {} : { body }),
    response: responsesOf(route),
  };
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

/** Its own parameters are checked as strictly as before, only the slug beside them is no stranger. */
function loosened(params: Input): z.ZodType {
  return params instanceof z.ZodObject ? params.loose() : params;
}

function operationId({ method, url }: Route): string {
  const words = url.split(/[^A-Za-z0-9]+/).filter((word) => word !== '');
  return [String(method).toLowerCase(), ...words].join('-');
}

function responsesOf(route: Route): Record<number, unknown> {
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of errorsOf(route)) {
    const { status } = ERRORS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  const refusals = [...byStatus].map(([status, codes]) => [status, refusalOf(codes)]);
  return {
    [route.status ?? 200]:
      route.produces === undefined ? json('Done', route.response) : typed(route.produces),
    ...Object.fromEntries(refusals),
  };
}

function refusalOf(codes: readonly ErrorCode[]): unknown {
  const words = codes.map((code) => `\`${code}\`: ${ERRORS[code].message}`);
  return json(words.join('  \n'), errorBody(codes));
}

export function errorBody(codes: readonly ErrorCode[]) {
  return z.strictObject({
    code: z.enum(codes),
    message: z.string(),
    details: z.record(z.string(), z.unknown()),
  });
}

const json = (description: string, schema: z.ZodType) => ({
  description,
  content: { 'application/json': { schema } },
});

const typed = (types: Readonly<Record<string, z.ZodType>>) => ({
  description: 'Done',
  content: Object.fromEntries(Object.entries(types).map(([type, schema]) => [type, { schema }])),
});
