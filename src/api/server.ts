/**
 * Adds the API to the port: every route at /v1 (the host name selects the community) and at /c/<slug>/v1, and
 * the documentation at /docs. A request passes these checks: community → blocked address → rate of the
 * address → signature, token or cookie → rate of the key → account → role or consent → validation → quota →
 * handler.
 */
import cookies from '@fastify/cookie';
import cors from '@fastify/cors';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { serializerCompiler, validatorCompiler } from 'fastify-type-provider-zod';
import { isKeptOut } from '../blocks/rules.js';
import { addressesOf, toHttp } from '../communities/addresses.js';
import type { Communities, Community } from '../communities/communities.js';
import { addManagement } from '../communities/management.js';
import type { Rates } from '../limits/rates.js';
import type { Role } from '../members/rules-roles.js';
import type { Log } from '../node/log.js';
import { counted, identityOf } from '../plans/quota.js';
import type { AddressOf, ClientAddress } from '../port/client-address.js';
import { type Http, hostOf } from '../port/http.js';
import { refuseRate } from '../port/rate.js';
import { isInForce } from '../relay/rules-auth.js';
import { CSRF_HEADER, checkSession, type OpenSession, SESSION_COOKIE } from '../sessions/cookie.js';
import type { Token } from '../sessions/tokens.js';
import { denialOf, refuse } from './answer.js';
import {
  type AuthOptions,
  authenticate,
  checkRole,
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
  leastRoleOf,
  REQUEST_ID,
  type Route,
  schemaOf,
  WithCookie,
} from './contract.js';
import { addDocs } from './docs.js';
import { preferredType } from './media-type.js';
import { readJson } from './read-json.js';
import { type RouteOptions, routesOf } from './routes.js';
import { type Denial, denial, isDenial } from './rules-errors.js';

const BODY_BYTES_MAX = 65_536;
/** A client that reads nothing for this long is disconnected. */
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
  /** A minute by default. */
  readonly stalledMsMax?: number;
}

/** What the checks have found out about a request so far. */
interface Known {
  community?: Community;
  client?: ClientAddress;
  pubkey?: string;
  role?: Role;
  token?: Token | undefined;
  session?: OpenSession;
  /** The raw body. */
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
    await addDocs(scope, options.version, routes);
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
  const unknown = (request: FastifyRequest, reply: FastifyReply) =>
    refuse(reply, denial('NOT_FOUND'), pathOf(request));
  scope.setNotFoundHandler(unknown);
  scope.addHook('onRequest', async (request, reply) => {
    // Before the body is read.
    if (request.is404)
      return refuse(reply, meet(request, NOWHERE, options) ?? denial('NOT_FOUND'), pathOf(request));
  });
  for (const route of routes) addRoute(scope, route, options, isShown);
}

/** What was looked for, if there is no such route. */
const pathOf = ({ url }: FastifyRequest) => ({ path: url.split('?')[0] });

/** What was looked for, if the handler has not found it. */
function soughtBy({ params }: FastifyRequest): object {
  const { slug: _slug, ...own } = params as { slug?: string };
  return own;
}

function addRoute(scope: FastifyInstance, route: Route, options: ApiOptions, isShown: boolean): void {
  const { method, url } = route;
  scope.route({
    method,
    url,
    schema: schemaOf(route, isShown),
    // A HEAD request would produce the whole stream for nothing.
    exposeHeadRoute: route.produces === undefined,
    config: { entry: 'own' },
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
      if (isDenial(answer)) return refuse(reply, answer, soughtBy(request));
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
    // A proxy must not buffer it.
    reply.type(`${type}; charset=utf-8`).header('x-accel-buffering', 'no');
    answer.stream.once('error', (error) => log.warn({ error: String(error) }, 'a stream of the API failed'));
  }
  return reply.send(answer.stream);
}

/** Finds the community, and checks whether the address is blocked there. */
function meet(
  request: FastifyRequest,
  { allowsClosing = false }: Limited,
  { communities, addressOf }: ApiOptions,
): Denial | undefined {
  const { slug } = request.params as { slug?: string };
  const host = hostOf(request.headers);
  const closing = allowsClosing ? communities.findClosing(host, slug) : undefined;
  const community = closing ?? communities.find(host, slug);
  if (community === undefined) return denial('COMMUNITY_NOT_FOUND');
  const client = addressOf(request.raw);
  request.known = { community, client };
  return isKeptOut(community.blocks, client) ? denial('ADDRESS_BLOCKED') : undefined;
}

/** Checks the rate of the address. Without a required signature nothing more of the request is read. */
async function enter(
  request: FastifyRequest,
  reply: FastifyReply,
  limited: Limited,
  options: ApiOptions,
): Promise<FastifyReply | undefined> {
  const { who, isSubscriptionRequest = false } = limited;
  const { rates, now } = options;
  if (who !== 'public' || request.method === 'POST') reply.header('cache-control', 'no-store');
  const unmet = meet(request, limited, options);
  if (unmet !== undefined) return refuse(reply, unmet);
  const { community, client } = request.known as { community: Community; client: ClientAddress };
  const taking = { community, client, who, by: client.rateKey, isSubscriptionRequest };
  const refused =
    (await refuseRate(rates, taking, now())) ??
    (isAnonymous(request, limited, now()) ? undefined : unsigned(request, limited));
  return refused === undefined ? undefined : refuse(reply, refused);
}

/** The request need not authenticate, and does not. */
function isAnonymous(
  { headers, known }: FastifyRequest,
  { who, signingOptional = false }: Limited,
  now: number,
): boolean {
  if (who !== 'reader') return who === 'public';
  return headers.authorization === undefined && (signingOptional || !isInForce(known.community!, now));
}

/** A cookie counts only for operators, and only without an Authorization header. */
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
  const refused =
    (await refuseRate(options.rates, taking, now)) ??
    (await refuseAccount(options, community, pubkey, route)) ??
    (needsConsent ? await refuseWithoutConsent(options, community, pubkey, now) : undefined);
  if (refused !== undefined || who !== 'operator') return refused;
  const role = await checkRole(options, community, pubkey, leastRoleOf(route));
  if (isDenial(role)) return role;
  request.known.role = role;
  return undefined;
}

/** Authenticates by cookie, token or signature. */
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
  const client = options.addressOf(request.raw);
  const signed = { community: community.id, client, method, urls, header, body: known.bytes! };
  return authenticate(options, signed, now);
}

/** The URL of the request at each address of its community. */
function urlsOf({ raw }: FastifyRequest, addresses: readonly string[]): string[] {
  const below = (raw.url ?? '/').replace(/^\/c\/[^/]+(?=\/)/, '');
  return addresses.map((address) => `${toHttp(address).replace(/\/$/, '')}${below}`);
}

/** A signature covers the bytes of a body, so they are kept until it is checked, and then parsed as JSON. */
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
    // No body means the same as an empty object.
    request.body = route.body === undefined ? undefined : {};
    return undefined;
  }
  const read = readJson(bytes, (costMs) => request.charge(costMs));
  if ('problem' in read) return refuse(reply, badBody(read.problem));
  const { value: body } = read;
  // Many clients send an empty object with every POST.
  if (route.body === undefined && !isEmptyObject(body))
    return refuse(reply, badBody('this request must have no body'));
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
  const { community, client, pubkey, role, token, session } = known;
  return {
    community: community!,
    client: client!,
    pubkey,
    ...(role === undefined ? {} : { role, leastRole: leastRoleOf(route) }),
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
