/**
 * What the API adds to the port: every route at /v1 (the community by host name) and at /c/<slug>/v1, and its description at
 * /docs. The way of a request: community → address blocked? → rate by address → signature, token or cookie → rate by key → account →
 * consent → shape → quota → handler.
 */
import cookies from '@fastify/cookie';
import cors from '@fastify/cors';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { serializerCompiler, validatorCompiler } from 'fastify-type-provider-zod';
import { addressesOf, toHttp } from '../addresses.js';
import type { AddressOf, ClientAddress } from '../client-address.js';
import type { Communities, Community } from '../communities.js';
import { isInForce } from '../core/auth.js';
import { isKeptOut } from '../core/blocks.js';
import { type Denial, denial, isDenial } from '../core/errors.js';
import { type Http, hostOf } from '../http.js';
import type { Rates } from '../limits/rates.js';
import type { Log } from '../log.js';
import { denialOf, refuse } from './answer.js';
import {
  type AuthOptions,
  authenticate,
  isToken,
  readHeader,
  refuseAccount,
  refuseWithoutConsent,
} from './auth.js';
import {
  type Call,
  type Cookie,
  Download,
  Flow,
  LAST_EVENT_ID,
  REQUEST_ID,
  type Route,
  schemaOf,
  WithCookie,
} from './contract.js';
import { addDocs } from './docs.js';
import { refuseRate } from './limit.js';
import { addManagement } from './management.js';
import { preferredType } from './media-type.js';
import { counted, identityOf } from './quota.js';
import { type RouteOptions, routesOf } from './routes.js';
import { CSRF_HEADER, checkSession, type OpenSession, SESSION_COOKIE } from './session-cookie.js';
import type { Token } from './tokens.js';

const BODY_BYTES_MAX = 65_536;
/** A reader who takes nothing for so long is gone. */
const STALLED_MS_MAX = 60_000;

type Limited = Pick<
  Route,
  'who' | 'isSubscriptionRequest' | 'signedOnly' | 'signingOptional' | 'allowsClosing'
>;
const NOWHERE: Limited = { who: 'public' };

export interface ApiOptions extends AuthOptions, Omit<RouteOptions, 'isClosing'> {
  readonly communities: Communities;
  /** The node's own addresses. */
  readonly bases: () => readonly string[];
  readonly rates: Pick<Rates, 'take'>;
  readonly addressOf: AddressOf;
  readonly version: string;
  readonly log: Log;
  readonly now: () => number;
  /** A minute unless told. */
  readonly stalledMsMax?: number;
}

/** What is known of a request so far. */
interface Known {
  community?: Community;
  client?: ClientAddress;
  pubkey?: string;
  token?: Token | undefined;
  session?: OpenSession;
  /** The body as it came. */
  bytes?: Uint8Array;
}

declare module 'fastify' {
  interface FastifyRequest {
    known: Known;
  }
}

export function addApi(
  http: Http,
  options: ApiOptions,
  routes = routesOf({ ...options, isClosing: () => http.closing }),
): void {
  addManagement(http, options);
  http.app.register(async (scope) => {
    await addDocs(scope, options.version);
    for (const prefix of ['/v1', '/c/:slug/v1']) {
      scope.register(async (under) => addRoutes(under, routes, options, prefix === '/v1'), { prefix });
    }
  });
}

async function addRoutes(
  scope: FastifyInstance,
  routes: readonly Route[],
  options: ApiOptions,
  isShown: boolean,
): Promise<void> {
  scope.setValidatorCompiler(validatorCompiler);
  scope.setSerializerCompiler(serializerCompiler);
  scope.decorateRequest('known');
  keepBytes(scope);
  scope.setErrorHandler<FastifyError>((error, _request, reply) =>
    refuse(reply, denialOf(error, options.log)),
  );
  await scope.register(cookies);
  await scope.register(cors, {
    origin: '*',
    methods: [...new Set(['HEAD', ...routes.map(({ method }) => String(method))])],
    allowedHeaders: ['authorization', 'content-type', REQUEST_ID, LAST_EVENT_ID],
    exposedHeaders: ['retry-after', 'www-authenticate'],
    maxAge: 86_400,
    strictPreflight: false,
  });
  const unknown = (_request: FastifyRequest, reply: FastifyReply) => refuse(reply, denial('NOT_FOUND'));
  scope.setNotFoundHandler(unknown);
  scope.addHook('onRequest', async (request, reply) => {
    // Before a body is read for nothing.
    if (request.is404) return (await enter(request, reply, NOWHERE, options)) ?? unknown(request, reply);
  });
  for (const route of routes) addRoute(scope, route, options, isShown);
}

function addRoute(scope: FastifyInstance, route: Route, options: ApiOptions, isShown: boolean): void {
  const { method, url } = route;
  scope.route({
    method,
    url,
    schema: schemaOf(route, isShown),
    // A HEAD would read the whole of it to say nothing of it.
    exposeHeadRoute: route.produces === undefined,
    bodyLimit: route.bodyBytesMax ?? BODY_BYTES_MAX,
    onRequest: async (request, reply) => enter(request, reply, route, options),
    preValidation: async (request, reply) => {
      const refused = await identify(request, route, options);
      return refused === undefined ? readBody(request, reply, route) : refuse(reply, refused);
    },
    handler: async (request, reply) => {
      const answer = await counted(
        options,
        route,
        requestOf(request),
        callOf(request, reply, route, options.now()),
      );
      if (answer instanceof Download || answer instanceof Flow)
        return sendStream(request, reply, answer, { ...options, type: typeOf(request, route) });
      if (isDenial(answer)) return refuse(reply, answer);
      if (answer instanceof WithCookie) giveCookie(reply, answer.cookie);
      return reply.code(route.status ?? 200).send(answer instanceof WithCookie ? answer.body : answer);
    },
  });
}

function giveCookie(reply: FastifyReply, { name, value, secure, maxAgeSeconds: maxAge }: Cookie): void {
  reply.setCookie(name, value, { path: '/', httpOnly: true, sameSite: 'strict', secure, maxAge });
}

function typeOf({ headers }: FastifyRequest, { produces = {} }: Route): string {
  const types = Object.keys(produces);
  return types.length === 0 ? 'application/json' : preferredType(headers.accept, types);
}

function sendStream(
  request: FastifyRequest,
  reply: FastifyReply,
  answer: Download | Flow,
  { type, log, stalledMsMax = STALLED_MS_MAX }: ApiOptions & { readonly type: string },
): FastifyReply {
  request.raw.socket.setTimeout(stalledMsMax);
  reply.header('cache-control', 'no-store');
  if (answer instanceof Download) {
    reply
      .type(type)
      .header('content-length', String(answer.bytes))
      .header('content-disposition', `attachment; filename="${answer.fileName}"`);
  } else {
    // A proxy that gathers it would hold back what is new.
    reply.type(`${type}; charset=utf-8`).header('x-accel-buffering', 'no');
    answer.stream.once('error', (error) => log.warn({ error: String(error) }, 'a stream of the API broke'));
  }
  return reply.send(answer.stream);
}

/** Which community is asked, and does this address ask too often? Without a signature nothing more of the request is read. */
async function enter(
  request: FastifyRequest,
  reply: FastifyReply,
  limited: Limited,
  { communities, rates, addressOf, now }: ApiOptions,
): Promise<FastifyReply | undefined> {
  const { who, isSubscriptionRequest = false, allowsClosing = false } = limited;
  const { slug } = request.params as { slug?: string };
  const host = hostOf(request.headers);
  const closing = allowsClosing ? communities.findClosing(host, slug) : undefined;
  const community = closing ?? communities.find(host, slug);
  if (community === undefined) return refuse(reply, denial('COMMUNITY_NOT_FOUND'));
  const client = addressOf(request.raw);
  request.known = { community, client };
  if (who !== 'public' || request.method === 'POST') reply.header('cache-control', 'no-store');
  if (isKeptOut(community.blocks, client)) return refuse(reply, denial('ADDRESS_BLOCKED'));
  const taking = { community, client, who, by: client.rateKey, isSubscriptionRequest };
  const refused =
    (await refuseRate(rates, taking, now())) ??
    (isAnonymous(request, limited, now()) ? undefined : unsigned(request, limited));
  return refused === undefined ? undefined : refuse(reply, refused);
}

/** Nobody has to say who asks, and nobody does. */
function isAnonymous(
  { headers, known }: FastifyRequest,
  { who, signingOptional = false }: Limited,
  now: number,
): boolean {
  if (who !== 'reader') return who === 'public';
  return headers.authorization === undefined && (signingOptional || !isInForce(known.community!, now));
}

/** A cookie counts where nothing else is shown, and for operators only. */
function cookieOf({ headers, cookies: sent }: FastifyRequest, { who, signedOnly = false }: Limited) {
  if (who !== 'operator' || signedOnly || headers.authorization !== undefined) return undefined;
  return sent[SESSION_COOKIE];
}

function unsigned(request: FastifyRequest, limited: Limited): Denial | undefined {
  if (cookieOf(request, limited) !== undefined) return undefined;
  const header = readHeader(request.headers.authorization);
  return isDenial(header) ? header : undefined;
}

async function identify(
  request: FastifyRequest,
  route: Route,
  options: ApiOptions,
): Promise<Denial | undefined> {
  const { who, isSubscriptionRequest = false, needsConsent = false, guard } = route;
  const community = request.known.community!;
  const bytes = bytesOf(request);
  request.known.bytes = bytes;
  const now = options.now();
  if (isAnonymous(request, route, now)) return guard?.({ community, headers: request.headers, bytes, now });
  const identified = await proofOf(request, route, options, now);
  if (isDenial(identified)) return identified;
  const { pubkey } = identified;
  Object.assign(request.known, identified);
  const taking = {
    community,
    client: options.addressOf(request.raw),
    who,
    by: pubkey,
    isSubscriptionRequest,
  };
  return (
    (await refuseRate(options.rates, taking, now)) ??
    (await refuseAccount(options, community, pubkey, route)) ??
    (needsConsent ? await refuseWithoutConsent(options, community, pubkey, now) : undefined)
  );
}

/** By its cookie, its token or its signature. */
async function proofOf(
  request: FastifyRequest,
  route: Route,
  options: ApiOptions,
  now: number,
): Promise<(Pick<Known, 'token' | 'session'> & { readonly pubkey: string }) | Denial> {
  const { headers, method, known } = request;
  const community = known.community!;
  const cookie = cookieOf(request, route);
  if (cookie !== undefined) {
    const shown = { cookie, method, csrfToken: headers[CSRF_HEADER]?.toString() };
    const session = await checkSession(options, community.id, shown, now);
    return isDenial(session) ? session : { pubkey: session.pubkey, session };
  }
  const header = headers.authorization;
  if (route.signedOnly && isToken(header)) return denial('AUTH_REQUIRED');
  const urls = urlsOf(request, addressesOf(community, options.bases()));
  return authenticate(options, { community: community.id, method, urls, header, body: known.bytes! }, now);
}

/** The same request under each address of its community. */
function urlsOf({ raw }: FastifyRequest, addresses: readonly string[]): string[] {
  const below = (raw.url ?? '/').replace(/^\/c\/[^/]+(?=\/)/, '');
  return addresses.map((address) => `${toHttp(address).replace(/\/$/, '')}${below}`);
}

/** A signature is about the bytes of a body, so they are kept until it is checked; then they are read as JSON. */
function keepBytes(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, bytes, done) =>
    done(null, bytes),
  );
}

function bytesOf({ body }: FastifyRequest): Uint8Array {
  return Buffer.isBuffer(body) ? body : new Uint8Array();
}

function readBody(request: FastifyRequest, reply: FastifyReply, route: Route): FastifyReply | undefined {
  const bytes = bytesOf(request);
  if (bytes.length === 0) {
    // No body says as much as one without fields.
    request.body = route.body === undefined ? undefined : {};
    return undefined;
  }
  let body: unknown;
  try {
    body = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    return refuse(reply, badBody('not JSON'));
  }
  // Many clients send an empty object with every POST.
  if (route.body === undefined && !isEmptyObject(body)) return refuse(reply, badBody('there must be none'));
  request.body = route.body === undefined ? undefined : body;
  return undefined;
}

function isEmptyObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null && JSON.stringify(value) === '{}';
}

function badBody(message: string): Denial {
  return denial('INVALID_REQUEST', { problems: [{ path: 'body', message }] });
}

function callOf(request: FastifyRequest, reply: FastifyReply, route: Route, now: number): Call<'reader'> {
  const { known, params, query, body, headers } = request;
  const { keepsRequestId = false, resumable = false } = route;
  const lastEventId = resumable ? headers[LAST_EVENT_ID] : undefined;
  const { community, client, pubkey, token, session } = known;
  return {
    community: community!,
    client: client!,
    pubkey,
    token,
    session,
    requestKey: keepsRequestId ? identityOf(requestOf(request)) : undefined,
    type: typeOf(request, route),
    left: route.produces === undefined ? undefined : leaving(reply),
    lastEventId: lastEventId === undefined ? undefined : Number(lastEventId),
    params: params as object,
    query: query as object,
    body: (body ?? {}) as object,
    now,
  };
}

function leaving(reply: FastifyReply): AbortSignal {
  const left = new AbortController();
  reply.raw.once('close', () => left.abort());
  return left.signal;
}

function requestOf({ raw, known, headers }: FastifyRequest) {
  const { method = '', url = '' } = raw;
  return { method, url, bytes: known.bytes!, id: headers[REQUEST_ID]?.toString() };
}
