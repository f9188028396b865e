/**
 * A client of the HTTP API that signs each request (NIP-98). It checks that the OpenAPI document names every
 * refusal it gets.
 */
import { expect } from 'vitest';
import type { Author } from '../events.js';
import { authorization, credential, textOf } from './credential.js';

export { authorization, credential, sha256, textOf } from './credential.js';

export interface Answer<T = Record<string, unknown>> {
  readonly status: number;
  readonly headers: Headers;
  readonly body: T;
}

export interface Refused {
  readonly code: string;
  readonly message: string;
  readonly details: Record<string, unknown>;
}

export interface Asking {
  readonly as?: Author;
  /** An object is sent as JSON, a string unchanged. */
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
}

/** Sends requests to the node at this address. */
export function createApi(base: string) {
  let document: Promise<OpenApi> | undefined;

  const ask = async <T>(method: string, path: string, asking: Asking = {}): Promise<Answer<T>> => {
    const { as, body, headers = {} } = asking;
    const url = base + path;
    const text = textOf(body);
    const response = await fetch(url, {
      method,
      headers: {
        ...(text === undefined ? {} : { 'content-type': 'application/json' }),
        ...(as === undefined ? {} : { authorization: authorization(credential(as, { method, url, body })) }),
        ...headers,
      },
      ...(text === undefined ? {} : { body: text }),
    });
    const answer = await response.text();
    const json = response.headers.get('content-type')?.startsWith('application/json') ?? false;
    const parsed = (json && answer !== '' ? JSON.parse(answer) : answer) as T;
    if (response.status >= 400 && method !== 'HEAD') {
      document ??= readOpenApi(base);
      expectDocumented(await document, method, path, response.status, parsed as Refused);
    }
    return { status: response.status, headers: response.headers, body: parsed };
  };

  return {
    ask,
    /** Expects this refusal. */
    refused: async (status: number, code: string, method: string, path: string, asking?: Asking) => {
      const { headers, body, ...answer } = await ask<Refused>(method, path, asking);
      expect({ status: answer.status, code: body.code }).toEqual({ status, code });
      return { headers, body };
    },
  };
}

export type Api = ReturnType<typeof createApi>;

interface Schema {
  readonly properties?: { readonly code?: { readonly enum?: string[]; readonly const?: string } };
}

export interface Operation {
  readonly summary?: string;
  readonly tags?: string[];
  readonly security?: unknown[];
  readonly parameters?: { readonly name: string; readonly in: string }[];
  readonly responses: Record<
    string,
    { readonly description: string; readonly content?: Record<string, { readonly schema: Schema }> }
  >;
}

export interface OpenApi {
  readonly openapi: string;
  readonly info: { readonly title: string; readonly description: string; readonly version: string };
  readonly paths: Record<string, Record<string, Operation>>;
  readonly components: { readonly securitySchemes: Record<string, unknown> };
}

/** The OpenAPI document of this node, with its shared parts resolved. */
export async function readOpenApi(base: string): Promise<OpenApi> {
  const document = (await (await fetch(`${base}/docs/json`)).json()) as OpenApi;
  const inPlace = (value: unknown): unknown => {
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) return value.map(inPlace);
    if ('$ref' in value) return inPlace(partOf(document, String(value.$ref)));
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, inPlace(part)]));
  };
  return { ...document, paths: inPlace(document.paths) as OpenApi['paths'] };
}

/** Resolves a reference within the document; a dangling one is a defect. */
export function partOf(document: object, ref: string): unknown {
  const path = ref.replace(/^#\//, '').split('/');
  const part = path.reduce<unknown>(
    (at, key) => (at as Record<string, unknown> | undefined)?.[key],
    document,
  );
  expect(part, ref).toBeDefined();
  return part;
}

/** The codes that an operation may answer with this status. */
export function codesOf(operation: Operation, status: number): string[] {
  const { code } = operation.responses[status]?.content?.['application/json']?.schema.properties ?? {};
  return code?.enum ?? (code?.const === undefined ? [] : [code.const]);
}

function expectDocumented(
  { paths }: OpenApi,
  method: string,
  path: string,
  status: number,
  body: Refused,
): void {
  expect(body, `${method} ${path}`).toEqual({
    code: expect.any(String),
    message: expect.any(String),
    details: expect.any(Object),
  });
  const bare = path.replace(/^\/c\/[^/]+/, '').replace(/\?.*$/, '');
  const exact = Object.entries(paths).filter(([template]) => matches(template, bare));
  const operation = exact.map(([, methods]) => methods[method.toLowerCase()]).find(Boolean);
  const codes = operation === undefined ? ['NOT_FOUND', 'INVALID_REQUEST'] : codesOf(operation, status);
  expect([...codes, 'COMMUNITY_NOT_FOUND'], `${method} ${path} ${status}`).toContain(body.code);
}

function matches(template: string, path: string): boolean {
  return new RegExp(`^${template.replace(/\{[^}]+\}/g, '[^/]+')}/?$`).test(path);
}
