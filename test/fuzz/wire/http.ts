/**
 * HTTP requests made from the OpenAPI document: parameters, bodies, headers and credentials (NIP-98, tokens,
 * cookies), good and bad. No answer is an error of the node, and each is as documented.
 */
import { Dice } from '../../../src/demo/rules-dice.js';
import { authorization, credential } from '../../support/clients/credential.js';
import { AUTHORS } from '../make/events.js';
import { fromSchema } from '../make/from-schema.js';
import { bytes, hex, oddJson, oddText } from '../make/values.js';
import { mutate } from '../mutate.js';
import { Broken, type Done } from '../target.js';
import { ApiDocument, type Operation } from './http-answers.js';
import type { FuzzedNode } from './node.js';

const LINES = 4;
const ANSWER_MS_MAX = 30_000;
/**
 * Not with the operator's key: they would change how this run itself goes (settings of the node and of the
 * community, who may post), or add communities without end.
 */
const UNSAFE =
  /(communities|node-settings|settings|policies|blocks\/addresses|operators|capacity|plans|sessions)/;
const PATHS = [
  '/',
  '/admin/',
  '/docs',
  '/docs/json',
  '/stats',
  '/healthz',
  '/readyz',
  '/v1/',
  '/c/default/v1/topics',
  '/c/none/',
  '/assets/x.js',
  '/certificates/x',
];

export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signed?: Signed;
}

/**
 * Who signs the request, and how. A signature names the address of the node and the time, so it is made when
 * the request is sent: a replay has one of its own.
 */
interface Signed {
  /** The place of the author in AUTHORS. */
  readonly author: number;
  /** Two equal requests in one second would have the same signature. */
  readonly content: string;
  /** A field that is something else than what was signed. */
  readonly wrong?: readonly [name: string, value: unknown];
}

export async function runHttp(node: FuzzedNode, seed: string, inputs: number): Promise<Done> {
  const began = performance.now();
  const document = await ApiDocument.read(node.http);
  const share = Math.ceil(inputs / LINES);
  const statuses = new Map<number, number>();
  const line = async (at: number) => {
    const dice = new Dice(`${seed}/http ${at}`);
    for (let done = 0; done < share; done += 1) {
      const { asked, operation } = makeRequest(dice, document);
      const status = await send(node, document, asked, operation);
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: LINES }, (_, at) => line(at)));
  const seconds = (performance.now() - began) / 1_000;
  const notes = Object.fromEntries(
    [...statuses].sort().map(([status, count]) => [`answers ${status}`, count]),
  );
  return { target: 'http', inputs: share * LINES, seconds, notes };
}

/** The status of the answer. */
export async function replayHttp(node: FuzzedNode, input: string): Promise<number> {
  const document = await ApiDocument.read(node.http);
  const { operation, ...asked } = JSON.parse(input) as Asked & { operation: string | null };
  const found = document.operations.find(({ method, path }) => `${method} ${path}` === operation);
  return send(node, document, asked, found);
}

/** The headers, with the signature if there is one. */
function headersOf({ method, path, headers, body, signed }: Asked, base: string): Record<string, string> {
  if (signed === undefined) return { ...headers };
  const request = { method, url: base + path, ...(body === undefined ? {} : { body }) };
  const event = credential(AUTHORS[signed.author]!, request, { content: signed.content });
  const [name, value] = signed.wrong ?? [];
  return {
    ...headers,
    authorization: authorization(name === undefined ? event : { ...event, [name]: value }),
  };
}

async function send(
  node: FuzzedNode,
  document: ApiDocument,
  asked: Asked,
  operation: Operation | undefined,
): Promise<number> {
  const { method, path, body } = asked;
  const name = operation === undefined ? null : `${operation.method} ${operation.path}`;
  const input = JSON.stringify({ ...asked, operation: name });
  const stop = AbortSignal.timeout(ANSWER_MS_MAX);
  let response: Response;
  try {
    response = await fetch(node.http + path, {
      method,
      headers: headersOf(asked, node.http),
      signal: stop,
      redirect: 'manual',
      ...(body === undefined ? {} : { body }),
    });
  } catch (error) {
    checkNode(node, input);
    throw new Broken('http', input, `no answer: ${String((error as Error).cause ?? error)}`);
  }
  const type = response.headers.get('content-type') ?? '';
  const isJson = type.startsWith('application/json');
  // A stream has no end: its head is what is checked.
  const text = isJson ? await response.text() : '';
  if (!isJson) await response.body?.cancel();
  checkNode(node, input);
  const problem = document.problemOf(
    method === 'HEAD' ? undefined : operation,
    response.status,
    response.headers,
    text,
  );
  if (problem !== undefined) throw new Broken('http', input, problem);
  return response.status;
}

/** The requests of other lines run at the same time, so it may have been one of them. */
function checkNode(node: FuzzedNode, input: string): void {
  try {
    node.check();
  } catch (error) {
    throw new Broken('http', input, String(error));
  }
}

function makeRequest(dice: Dice, document: ApiDocument): { asked: Asked; operation: Operation | undefined } {
  if (dice.chance(0.1)) return { asked: oddRequest(dice), operation: undefined };
  const operation = dice.pick(document.operations);
  const value = (name: string, schema: Operation['body']) => {
    const made = fromSchema(dice, schema, document.resolve);
    return asText(made ?? name);
  };
  const path = operation.path.replace(/\{([^}]+)\}/g, (_, name: string) => {
    const parameter = operation.parameters.find((one) => one.name === name);
    const text = value(name, parameter?.schema);
    return encodeURIComponent(text === '' || /^\.+$/.test(text) ? 'x' : text);
  });
  const query = new URLSearchParams();
  for (const { name, in: place, schema } of operation.parameters)
    if (place === 'query' && dice.chance(0.4)) query.append(name, value(name, schema));
  if (dice.chance(0.03)) query.append(oddText(dice, 6).toWellFormed(), oddText(dice).toWellFormed());
  const search = query.size === 0 ? '' : `?${query}`;
  const body = makeBody(dice, operation, document);
  const method = operation.method.toUpperCase();
  const below = `${path}${search}`;
  const { signed, ...more } = makeCredential(dice, operation);
  const headers = {
    ...(body === undefined ? {} : { 'content-type': dice.chance(0.97) ? 'application/json' : 'text/plain' }),
    ...makeHeaders(dice),
    ...more,
  };
  const asked = {
    method,
    path: below,
    headers,
    ...(body === undefined ? {} : { body }),
    ...(signed === undefined ? {} : { signed }),
  };
  return { asked, operation };
}

function makeBody(dice: Dice, { method, body }: Operation, document: ApiDocument): string | undefined {
  if (method === 'get') return undefined;
  if (body === undefined) return dice.chance(0.1) ? JSON.stringify(oddJson(dice)) : undefined;
  const made = JSON.stringify(fromSchema(dice, body, document.resolve)) ?? 'null';
  return dice.chance(0.15) ? mutate(dice, made, [made]).toWellFormed() : made;
}

function makeCredential(
  dice: Dice,
  { needsAuth, path, method }: Operation,
): { signed?: Signed; authorization?: string; cookie?: string } {
  if (!needsAuth && dice.chance(0.9)) return {};
  const kind = dice.next();
  const isSafe = method === 'get' || !UNSAFE.test(path);
  if (kind < 0.75) {
    // The first author is the operator.
    const author = isSafe && dice.chance(0.7) ? 0 : dice.between(1, AUTHORS.length - 1);
    const content = hex(dice, 16);
    if (dice.chance(0.95)) return { signed: { author, content } };
    return { signed: { author, content, wrong: [dice.pick(EVENT_FIELDS), oddJson(dice)] } };
  }
  if (kind < 0.8) return { authorization: printable(`Bearer ${oddText(dice, 60)}`) };
  if (kind < 0.85)
    return { authorization: printable(`Nostr ${Buffer.from(bytes(dice, 60)).toString('base64')}`) };
  if (kind < 0.9) return { cookie: printable(`minato_session=${oddText(dice, 40)}`) };
  return {};
}

const EVENT_FIELDS = ['id', 'pubkey', 'created_at', 'kind', 'tags', 'content', 'sig'];
const HEADERS = [
  'accept',
  'x-request-id',
  'last-event-id',
  'if-none-match',
  'origin',
  'accept-language',
  'range',
  'x-csrf-token',
  'forwarded',
  'accept-encoding',
];
function makeHeaders(dice: Dice): Record<string, string> {
  if (dice.chance(0.7)) return {};
  return Object.fromEntries(
    Array.from({ length: dice.between(1, 3) }, () => [dice.pick(HEADERS), printable(oddText(dice, 30))]),
  );
}

/** A path that no route may know, or a page. */
function oddRequest(dice: Dice): Asked {
  const odd = `/${oddText(dice, 30).toWellFormed()}`;
  const path = dice.chance(0.5)
    ? dice.pick(PATHS)
    : dice.chance(0.5)
      ? encodeURI(odd)
      : `/${dice.pick(['%zz', '%00', '..%2f..', '%', 'v1/%ff', 'v1/topics/%00'])}`;
  const method = dice.pick(['GET', 'GET', 'HEAD', 'OPTIONS', 'POST', 'PUT', 'DELETE', 'PATCH']);
  return { method, path, headers: makeHeaders(dice) };
}

/** What fetch can send in a header. */
function printable(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, '?').trim();
}

function asText(value: unknown): string {
  return (typeof value === 'string' ? value : (JSON.stringify(value) ?? '')).toWellFormed();
}
