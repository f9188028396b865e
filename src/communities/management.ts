/**
 * Relay management (NIP-86): operators' tools call the address of the relay. Each method is one of the
 * operators' actions of the API, with the same effect and the same audit row. Errors of a call are in its
 * response; only a caller without the right gets an error status.
 */
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Pool } from 'pg';
import { z } from 'zod';
import { denialOf } from '../api/answer.js';
import { type AuthOptions, authenticate, checkRole, readHeader, refuseAccount } from '../api/auth.js';
import { readJson } from '../api/read-json.js';
import { type Denial, denial, ERRORS, isDenial } from '../api/rules-errors.js';
import { plainText, pubkey } from '../api/schemas.js';
import { type BlockKind, block, listBlocks, unblock } from '../blocks/blocks.sql.js';
import { isKeptOut } from '../blocks/rules.js';
import type { Rates } from '../limits/rates.js';
import { checkNetwork } from '../limits/rules-network.js';
import type { Log } from '../node/log.js';
import type { AddressOf } from '../port/client-address.js';
import { type Http, hostOf } from '../port/http.js';
import { refuseRate } from '../port/rate.js';
import { addressesOf, toHttp } from './addresses.js';
import type { Communities, Community } from './communities.js';
import { checkSetting, type SettingKey } from './rules-settings.js';
import { changeSetting } from './settings.sql.js';

const CONTENT_TYPE = 'application/nostr+json+rpc';
const BODY_BYTES_MAX = 65_536;
/** A list is returned whole: there cannot be more blocks of a kind than this. */
const LISTED_MAX = 10_000;
/** Tools may be web pages of any origin. */
const CORS = {
  'access-control-allow-origin': '*',
  'access-control-allow-headers': 'authorization, content-type, accept',
  'access-control-allow-methods': 'GET, POST, OPTIONS',
};

export interface ManagementOptions extends AuthOptions {
  readonly pool: Pool;
  readonly communities: Communities;
  /** The public addresses of the node. */
  readonly bases: () => readonly string[];
  readonly rates: Pick<Rates, 'take'>;
  readonly addressOf: AddressOf;
  readonly log: Log;
  readonly now: () => number;
}

export function addManagement(http: Http, options: ManagementOptions): void {
  http.app.register(async (scope) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser(CONTENT_TYPE, { parseAs: 'buffer' }, (_request, bytes, done) =>
      done(null, bytes),
    );
    scope.setErrorHandler<FastifyError>((error, _request, reply) =>
      refuse(reply, denialOf(error, options.log)),
    );
    for (const url of ['/', '/c/:slug']) addTo(scope, url, options);
  });
}

function addTo(scope: FastifyInstance, url: string, options: ManagementOptions): void {
  scope.post(url, {
    config: { entry: 'own' },
    bodyLimit: BODY_BYTES_MAX,
    onRequest: async (request, reply) => {
      const refused = await enter(request, options);
      return refused === undefined ? undefined : refuse(reply, refused);
    },
    handler: async (request, reply) => {
      const caller = await identify(request, options);
      if (isDenial(caller)) return refuse(reply, caller);
      return send(reply.code(200), await answer(request, caller, options));
    },
  });
}

// ── The caller ─────────────────────────────────────────────────────────────────────────────────────────────

interface Caller {
  readonly community: Community;
  readonly pubkey: string;
  readonly from: string;
}

function communityOf({ headers, params }: FastifyRequest, { communities }: ManagementOptions) {
  return communities.find(hostOf(headers), (params as { slug?: string }).slug);
}

/** Runs before the body is read. */
async function enter(request: FastifyRequest, options: ManagementOptions): Promise<Denial | undefined> {
  const community = communityOf(request, options);
  if (community === undefined) return denial('COMMUNITY_NOT_FOUND');
  const client = options.addressOf(request.raw);
  if (isKeptOut(community.blocks, client)) return denial('ADDRESS_BLOCKED');
  const refused = await overRate(options, community, request, client.rateKey);
  if (refused !== undefined) return refused;
  if (!isManagement(request)) return denial('UNSUPPORTED_MEDIA_TYPE');
  const header = readHeader(request.headers.authorization);
  return isDenial(header) ? header : undefined;
}

function isManagement({ headers }: FastifyRequest): boolean {
  return headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() === CONTENT_TYPE;
}

/** Needs a NIP-98 signature of this very body: a token, which lives longer, is not accepted. */
async function identify(request: FastifyRequest, options: ManagementOptions): Promise<Caller | Denial> {
  const community = communityOf(request, options);
  if (community === undefined) return denial('COMMUNITY_NOT_FOUND');
  const query = /\?.*$/.exec(request.raw.url ?? '')?.[0] ?? '';
  const signed = {
    community: community.id,
    client: options.addressOf(request.raw),
    method: request.method,
    urls: addressesOf(community, options.bases()).map((address) => toHttp(address) + query),
    header: request.headers.authorization,
    body: bytesOf(request),
  };
  const identified = await authenticate(options, signed, options.now());
  if (isDenial(identified)) return identified;
  const { pubkey, token } = identified;
  if (token !== undefined) return denial('AUTH_REQUIRED');
  const refused =
    (await overRate(options, community, request, pubkey)) ??
    (await refuseAccount(options, community, pubkey, { who: 'operator' }));
  if (refused !== undefined) return refused;
  const role = await checkRole(options, community, pubkey, 'operator');
  if (isDenial(role)) return role;
  return { community, pubkey, from: options.addressOf(request.raw).address };
}

function overRate(options: ManagementOptions, community: Community, request: FastifyRequest, by: string) {
  const client = options.addressOf(request.raw);
  const taking = { community, client, who: 'operator', by, isSubscriptionRequest: false } as const;
  return refuseRate(options.rates, taking, options.now());
}

function bytesOf({ body }: FastifyRequest): Buffer {
  return Buffer.isBuffer(body) ? body : Buffer.alloc(0);
}

// ── The methods ────────────────────────────────────────────────────────────────────────────────────────────

interface Answer {
  readonly result?: unknown;
  readonly error?: string;
}

interface Context extends Caller {
  readonly pool: Pool;
  readonly adminPubkeys: readonly string[];
  readonly now: number;
}

type Method = (params: readonly unknown[], context: Context) => Promise<unknown>;

const call = z.object({ method: z.string(), params: z.array(z.unknown()).max(20).default([]) });
const reason = plainText(1_000).nullish();
const person = z.tuple([pubkey], z.unknown());
const keyAndReason = z.tuple([pubkey, reason.optional()], z.unknown());
const networkAndReason = z.tuple([network(), reason.optional()], z.unknown());
const oneNetwork = z.tuple([network()], z.unknown());
const nothing = z.array(z.unknown());

/** In its canonical form. */
function network() {
  return z
    .string()
    .max(100)
    .transform((text, context) => {
      const checked = checkNetwork(text);
      if ('network' in checked) return checked.network;
      context.addIssue(checked.problem);
      return z.NEVER;
    });
}

/** A method whose parameters were checked by its schema. */
function method<T>(schema: z.ZodType<T>, work: (params: T, context: Context) => Promise<unknown>): Method {
  return async (given, context) => {
    const params = schema.safeParse(given);
    if (params.success) return work(params.data, context);
    const problems = params.error.issues.map(({ path, message }) => ({
      path: ['params', ...path].join('/'),
      message,
    }));
    return denial('INVALID_REQUEST', { problems });
  };
}

const blocking =
  (kind: BlockKind) => async (value: string, why: string | null | undefined, context: Context) => {
    const { pool, community, pubkey: actor, from, adminPubkeys, now } = context;
    const wanted = { kind, community: community.id, value, actor, from, reason: why ?? undefined };
    return done(await block(pool, wanted, { fixed: adminPubkeys }, now));
  };

/** Unblocking what is not blocked succeeds: the requested state is reached. */
const unblocking = (kind: BlockKind) => async (value: string, context: Context) => {
  const { pool, community, pubkey: actor, now } = context;
  const unblocked = await unblock(pool, { kind, community: community.id, value, actor }, now);
  return isDenial(unblocked) && unblocked.denied === 'NOT_FOUND' ? true : done(unblocked);
};

async function listed(kind: BlockKind, field: string, { pool, community }: Context): Promise<unknown> {
  const page = await listBlocks(pool, kind, community.id, { limit: LISTED_MAX });
  if (isDenial(page)) return page;
  return page.items.map(({ value, reason: why }) => ({
    [field]: field === 'ip' ? shortest(value) : value,
    ...(why === null ? {} : { reason: why }),
  }));
}

/** A single address is shown without its prefix length, as it was blocked. */
function shortest(network: string): string {
  return network.replace(network.includes(':') ? /\/128$/ : /\/32$/, '');
}

const setting = (key: SettingKey): Method =>
  method(z.tuple([z.string()], z.unknown()), async ([given], { pool, community, pubkey: actor, now }) => {
    const checked = checkSetting(key, given);
    if ('problem' in checked)
      return denial('INVALID_REQUEST', { problems: [{ path: 'params/0', message: checked.problem }] });
    return done(
      await changeSetting(pool, { community: community.id, key, value: checked.value, actor }, now),
    );
  });

const done = (result: unknown) => (isDenial(result) ? result : true);

const METHODS: Readonly<Record<string, Method>> = {
  supportedmethods: method(nothing, async () =>
    Object.keys(METHODS).filter((name) => name !== 'supportedmethods'),
  ),
  banpubkey: method(keyAndReason, ([key, why], context) => blocking('author')(key, why, context)),
  unbanpubkey: method(person, ([key], context) => unblocking('author')(key, context)),
  listbannedpubkeys: method(nothing, (_, context) => listed('author', 'pubkey', context)),
  changerelayname: setting('relay.name'),
  changerelaydescription: setting('relay.description'),
  changerelayicon: setting('relay.icon'),
  blockip: method(networkAndReason, ([value, why], context) => blocking('address')(value, why, context)),
  unblockip: method(oneNetwork, ([value], context) => unblocking('address')(value, context)),
  listblockedips: method(nothing, (_, context) => listed('address', 'ip', context)),
};

async function answer(
  request: FastifyRequest,
  caller: Caller,
  { pool, adminPubkeys, now }: ManagementOptions,
): Promise<Answer> {
  const read = readJson(bytesOf(request), (costMs) => request.charge(costMs));
  if ('problem' in read) return { error: `the body is ${read.problem}` };
  const parsed = call.safeParse(read.value);
  if (!parsed.success) return { error: 'the body must be {"method": "…", "params": […]} as JSON' };
  const { method: name, params } = parsed.data;
  const known = Object.hasOwn(METHODS, name) ? METHODS[name] : undefined;
  if (known === undefined) return { error: `unknown method ${name.slice(0, 100)}; see supportedmethods` };
  const result = await known(params, { ...caller, pool, adminPubkeys, now: now() });
  return isDenial(result) ? { error: sentence(result) } : { result };
}

// ── The responses ──────────────────────────────────────────────────────────────────────────────────────────

function sentence({ denied, details = {} }: Denial): string {
  const { problems = [] } = details as { problems?: { path: string; message: string }[] };
  const sentences = problems.map(({ path, message }) => `${path}: ${message}`);
  return [ERRORS[denied].message, ...sentences].join(' ');
}

function refuse(reply: FastifyReply, refused: Denial): FastifyReply {
  const { status } = ERRORS[refused.denied];
  if (status === 401) reply.header('www-authenticate', 'Nostr');
  const { retry_after_seconds: seconds } = refused.details ?? {};
  if (typeof seconds === 'number') reply.header('retry-after', String(seconds));
  const error =
    refused.denied === 'UNSUPPORTED_MEDIA_TYPE' ? `The body must be ${CONTENT_TYPE}.` : sentence(refused);
  return send(reply.code(status), { error });
}

function send(reply: FastifyReply, body: Answer): FastifyReply {
  return reply
    .headers(CORS)
    .header('cache-control', 'no-store')
    .type('application/json')
    .send(JSON.stringify(body));
}
