/**
 * Asks a node everything at once, for tests of peers that hang (I15): every frame of the relay, every
 * operation of the OpenAPI document and the other routes of the port. Each answer has a bound of its own,
 * from docs/bounds.md.
 */
import type { Author } from '../events.js';
import { newAuthor, sign } from '../events.js';
import type { TestNode } from '../node.js';
import { authorization, credential, type OpenApi, textOf } from './api.js';
import { type Frame, RawClient } from './client.js';

/** Seconds. Frames have their own below. */
const ROUTE_BOUND = 15;
/** A preview has one time-out for its statement and one for its signature; an export reads several pages. */
const LONG_ROUTE = { pattern: /\/(preview|purge-preview|erasure-preview|export)$/, bound: 24 };
/** These use no peer, or wait for one for 3 seconds. */
const QUICK_ROUTE = { pattern: /^(\/(healthz|readyz|metrics|admin\/|docs\/json)|\/ \(NIP-11\))$/, bound: 3 };
/** From a deadline to the answer: peers that do not hang work too. */
const MARGIN_MS = 5_000;
/** An answer that never comes. */
const ANSWER_MS_MAX = 120_000;
const TICK_MS = 100;

export interface Answered<T> {
  readonly name: string;
  /** In which this process, which is also the node, had nothing to do but wait. */
  readonly ms: number;
  readonly msMax: number;
  readonly answer: T;
}

/** Those that were answered too late; a test expects none. */
export const tooLate = (answered: readonly Answered<unknown>[]) =>
  answered.flatMap(({ name, ms, msMax }) =>
    ms > msMax ? [`${name}: ${Math.round(ms)} ms of ${msMax}`] : [],
  );

/**
 * A busy machine works longer, but does not wait longer for a peer. So the time in which this process works
 * does not count, and one in which it did not run counts as a tick.
 */
async function timed<T>(name: string, seconds: number, work: () => Promise<T>): Promise<Answered<T>> {
  let ms = 0;
  let { idle } = performance.eventLoopUtilization();
  const timer = setInterval(() => {
    const now = performance.eventLoopUtilization().idle;
    ms += Math.min(now - idle, TICK_MS);
    idle = now;
  }, TICK_MS);
  try {
    const answer = await work();
    return { name, ms, msMax: seconds * 1_000 + MARGIN_MS, answer };
  } finally {
    clearInterval(timer);
  }
}

// ── Frames ─────────────────────────────────────────────────────────────────────────────────────────────────

/** A client that has its challenge, connected before the peer is frozen. */
export async function connectForEverything({ url }: TestNode): Promise<RawClient> {
  const client = await RawClient.connect(url);
  client.askForChallenge();
  await client.until(() => client.challenge !== undefined);
  return client;
}

/** The answer to each frame of a client, by the name of the frame. */
export async function sendEveryFrame(client: RawClient, { url }: TestNode, as: Author) {
  const event = sign(newAuthor(), { content: 'hello' });
  const tags = [
    ['relay', url],
    ['challenge', client.challenge ?? 'none'],
  ];
  const auth = sign(as, { kind: 22_242, tags });
  const query = (id: string, filter: object) => ['REQ', id, filter];
  const ends =
    (id: string) =>
    ([verb, of]: Frame) =>
      ['EOSE', 'COUNT', 'CLOSED'].includes(verb) && of === id;
  const accepts =
    (id: string) =>
    ([verb, of]: Frame) =>
      verb === 'OK' && of === id;
  // A query: 10 seconds to connect and 15 to read the outbox; in DynamoDB 8, behind two others of its class.
  // An EVENT: 30 seconds of attempts, the last of which connects for 10.
  const frames: [string, number, unknown[], (frame: Frame) => boolean][] = [
    ['EVENT', 40, ['EVENT', event], accepts(event.id)],
    ['REQ', 25, query('r', { kinds: [1], since: 1 }), ends('r')],
    ['search', 25, query('s', { search: 'hello' }), ends('s')],
    ['cursor', 25, query('c', { kinds: [1], cursor: '' }), ends('c')],
    ['COUNT', 25, ['COUNT', 'n', { kinds: [1], since: 1 }], ends('n')],
    [
      'NEG-OPEN',
      25,
      ['NEG-OPEN', 'g', { kinds: [1] }, '6100000200'],
      ([verb]) => /^(NEG-|NOTICE)/.test(verb),
    ],
    ['AUTH', 30, ['AUTH', auth], accepts(auth.id)],
  ];
  const from = client.frames.length;
  return Promise.all(
    frames.map(([name, seconds, frame, isAnswer]) => {
      client.send(frame);
      return timed(name, seconds, () => client.waitFor(isAnswer, from, ANSWER_MS_MAX));
    }),
  );
}

// ── Routes ─────────────────────────────────────────────────────────────────────────────────────────────────

const HEX_64 = '0'.repeat(64);
const UUID = '00000000-0000-4000-8000-000000000000';

interface Asking {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
}

/** The status of each answer, by method and path. Without an answer in time it rejects. */
export async function askEveryRoute({ http }: TestNode, document: OpenApi, as: Author) {
  const ask = (asked: readonly Asking[]) => Promise.all(asked.map((asking) => askRoute(http, asking, as)));
  // The quick ones come first: so many requests at once keep this process busy for seconds.
  const isQuick = ({ name }: Asking) => QUICK_ROUTE.pattern.test(name);
  const all = [...operationsOf(document), ...OTHERS];
  const quick = await ask(all.filter(isQuick));
  return [...quick, ...(await ask(all.filter((asking) => !isQuick(asking))))];
}

function askRoute(http: string, { name, method, path, body, headers }: Asking, as: Author) {
  const bounds = [QUICK_ROUTE, LONG_ROUTE].find(({ pattern }) => pattern.test(name));
  return timed(name, bounds?.bound ?? ROUTE_BOUND, async () => {
    const url = http + path;
    const text = textOf(body);
    const response = await fetch(url, {
      method,
      headers: {
        ...(text === undefined ? {} : { 'content-type': 'application/json' }),
        authorization: authorization(credential(as, { method, url, body })),
        ...headers,
      },
      ...(text === undefined ? {} : { body: text }),
      signal: AbortSignal.timeout(ANSWER_MS_MAX),
    }).catch((error: unknown) => {
      throw new Error(`${name} had no answer in ${ANSWER_MS_MAX} ms`, { cause: error });
    });
    await response.text();
    return response.status;
  });
}

/** With values for its parameters and a minimal body, but no stream that follows without end. */
function operationsOf({ paths }: OpenApi): Asking[] {
  const placeholderOf = (name: string) => (/_id$/.test(name) && !/topic|event/.test(name) ? UUID : HEX_64);
  return Object.entries(paths)
    .filter(([path]) => !/\/progress$|\/live$/.test(path))
    .flatMap(([path, methods]) =>
      Object.entries(methods).map(([name, operation]) => {
        const method = name.toUpperCase();
        const { requestBody } = operation as {
          requestBody?: { content?: Record<string, { schema?: Schema }> };
        };
        const schema = requestBody?.content?.['application/json']?.schema;
        const filled = path.replace(/\{([^}]+)\}/g, (_, parameter: string) => placeholderOf(parameter));
        const body = schema === undefined ? {} : { body: minimal(schema) };
        return { name: method === 'GET' ? path : `${method} ${path}`, method, path: filled, ...body };
      }),
    );
}

const MANAGEMENT = { method: 'listbannedpubkeys', params: [] };
const OTHERS: readonly Asking[] = [
  ...['/healthz', '/readyz', '/metrics', '/', '/stats', '/admin/', '/c/other', '/docs/json'].map((path) => ({
    name: path,
    method: 'GET',
    path,
  })),
  { name: 'NIP-05', method: 'GET', path: '/.well-known/nostr.json?name=_' },
  { name: '/ (NIP-11)', method: 'GET', path: '/', headers: { accept: 'application/nostr+json' } },
  {
    name: 'NIP-86',
    method: 'POST',
    path: '/',
    body: MANAGEMENT,
    headers: { 'content-type': 'application/nostr+json+rpc' },
  },
];

interface Schema {
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly properties?: Record<string, Schema>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly minItems?: number;
  readonly minimum?: number;
  readonly minLength?: number;
  readonly pattern?: string;
  readonly format?: string;
}

/** The smallest value of a schema: only what is required. */
function minimal(schema: Schema): unknown {
  if (schema.const !== undefined) return schema.const;
  if (schema.enum !== undefined) return schema.enum[0];
  const [option] = schema.anyOf ?? schema.oneOf ?? [];
  if (option !== undefined) return minimal(option);
  const { properties = {}, required = [] } = schema;
  switch ([schema.type].flat()[0]) {
    case 'array':
      return Array.from({ length: schema.minItems ?? 0 }, () => minimal(schema.items ?? {}));
    case 'integer':
    case 'number':
      return schema.minimum ?? 1;
    case 'boolean':
      return false;
    case 'string':
      if (schema.format === 'uuid') return UUID;
      return /64/.test(schema.pattern ?? '') ? HEX_64 : 'z'.repeat(Math.max(3, schema.minLength ?? 0));
    default:
      return Object.fromEntries(required.map((name) => [name, minimal(properties[name] ?? {})]));
  }
}
