/** The OpenAPI document and its page: complete, true, and without anything from elsewhere. */
import { readdir, readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse as parseYaml } from 'yaml';
import { apiDocument } from '../../src/api/document-of-routes.js';
import { ERRORS } from '../../src/api/rules-errors.js';
import { codesOf, type OpenApi, type Operation, partOf, readOpenApi } from '../support/clients/api.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createApiPort } from '../support/servers/api-port.js';

let relay: TestNode;
let document: OpenApi;

beforeAll(async () => {
  relay = await startTestNode();
  document = await readOpenApi(relay.http);
});
afterAll(() => relay.close());

const operations = (): [string, string, Operation][] =>
  Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]): [string, string, Operation] => [
      method.toUpperCase(),
      path,
      operation,
    ]),
  );

/** The routes that really are on the port, as fastify tells of each when it is added. */
async function existingRoutes(): Promise<string[]> {
  const { http, add } = createApiPort(relay);
  const seen: string[] = [];
  http.app.addHook('onRoute', ({ method, path }) => {
    for (const each of [method].flat()) seen.push(`${each} ${path}`);
  });
  add();
  await http.app.ready();
  await http.close();
  return seen
    .filter((route) => /^(?!OPTIONS|HEAD)\w+ \/v1\//.test(route))
    .map((route) => route.replace(/:(\w+)/g, '{$1}'));
}

describe('the OpenAPI document', () => {
  it('has every route that exists under /v1, and no other', async () => {
    const documented = operations().map(([method, path]) => `${method} ${path}`);
    expect(documented.sort()).toEqual((await existingRoutes()).sort());
    expect(documented).not.toEqual([]);
  });

  it('gives each route a summary, a tag, its parameters, a success and its refusals', () => {
    for (const [method, path, operation] of operations()) {
      const name = `${method} ${path}`;
      expect(operation.summary, name).toMatch(/\w/);
      expect(operation.tags, name).not.toHaveLength(0);
      const named = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]!);
      const inPath = (operation.parameters ?? []).filter((parameter) => parameter.in === 'path');
      expect(inPath.map((parameter) => parameter.name).sort(), name).toEqual(named.sort());
      const statuses = Object.keys(operation.responses);
      expect(
        statuses.filter((status) => status.startsWith('2')),
        name,
      ).toHaveLength(1);
      for (const status of statuses) {
        const response = operation.responses[status]!;
        const types = Object.entries(response.content ?? {});
        expect(types, `${name} ${status}`).not.toHaveLength(0);
        for (const [type, { schema }] of types) expect(schema, `${name} ${status} ${type}`).toBeDefined();
        const codes = status.startsWith('2') ? [] : codesOf(operation, Number(status));
        for (const code of codes) {
          expect(ERRORS[code as keyof typeof ERRORS].status, `${name} ${code}`).toBe(Number(status));
          expect(response.description).toContain(code);
        }
      }
      expect(statuses, name).toEqual(expect.arrayContaining(['400', '429', '500']));
      // What people may ask about their own data is not refused to an account that is disabled.
      const forbidden = path.startsWith('/v1/personal-data-') ? [] : ['403'];
      if (operation.security !== undefined)
        expect(statuses, name).toEqual(expect.arrayContaining(['401', ...forbidden]));
    }
  });

  it('has each media type of a stream, and the schema of its lines', () => {
    const { content = {} } = document.paths['/v1/admin/outbox']!.get!.responses['200']!;
    expect(Object.keys(content)).toEqual(['application/x-ndjson', 'text/event-stream']);
    expect(JSON.stringify(content['application/x-ndjson'])).toContain('effective_key');
  });

  it('has each way to authenticate, and the CSRF token that a cookie needs for a change', () => {
    const [nostr, token] = [{ nostr: [] }, { token: [] }];
    const securityOf = (path: string, method: string) => document.paths[`/v1${path}`]![method]!.security;
    expect(securityOf('/topic-subscriptions', 'get')).toEqual([nostr, token]);
    expect(securityOf('/admin/settings', 'get')).toEqual([nostr, token, { session: [] }]);
    expect(securityOf('/admin/settings/{key}', 'put')).toEqual([nostr, token, { session: [], csrf: [] }]);
    expect(securityOf('/admin/session', 'post')).toEqual([nostr]);
    const { securitySchemes } = document.components;
    expect(Object.keys(securitySchemes)).toEqual(['nostr', 'token', 'session', 'csrf']);
    expect(securitySchemes.session).toMatchObject({ type: 'apiKey', in: 'cookie', name: 'minato_session' });
    expect(securitySchemes.csrf).toMatchObject({ type: 'apiKey', in: 'header', name: 'X-CSRF-Token' });
    const changing = operations().filter(([, , { security = [] }]) =>
      JSON.stringify(security).includes('csrf'),
    );
    for (const [method, path, operation] of changing)
      expect(codesOf(operation, 403), `${method} ${path}`).toContain('CSRF_REQUIRED');
    expect(changing.length).toBeGreaterThan(20);
  });

  it('says that the same routes are under /c/<slug> and how a request is signed', () => {
    expect(document.info.description).toContain('/c/<slug>/v1');
    expect(document.info.description).toContain('27235');
    expect(Object.keys(document.paths).filter((path) => !path.startsWith('/v1/'))).toEqual([]);
  });
});

describe('the document as it is sent', () => {
  const get = (path: string, headers: Record<string, string> = {}) =>
    fetch(`${relay.http}${path}`, { headers: { 'accept-encoding': 'identity', ...headers } });

  it('is left by the build for the node, so that a start does not generate it', async () => {
    const folder = new URL('../../dist/api/', import.meta.url);
    const left = (await readdir(folder)).filter((name) => name.startsWith('openapi-'));
    const { file } = await apiDocument();
    expect(left).toEqual([file]);
    const built = await readFile(new URL(file, folder), 'utf8');
    expect(built === (await (await get('/docs/json')).text()), 'the same document').toBe(true);
  });

  it('shares common parts: no long schema occurs twice', async () => {
    const text = await (await get('/docs/json')).text();
    expect(text.length).toBeLessThan(450_000);
    const sent = JSON.parse(text) as OpenApi;
    const seen = new Map<string, number>();
    const look = (value: unknown, isSchema: boolean): void => {
      if (typeof value !== 'object' || value === null) return;
      const ref = (value as { $ref?: unknown }).$ref;
      if (typeof ref === 'string') partOf(sent, ref);
      const key = JSON.stringify(value);
      if (isSchema && key.length > 400) seen.set(key, (seen.get(key) ?? 0) + 1);
      for (const [name, part] of Object.entries(value)) look(part, name === 'schema' || name === 'items');
    };
    look(sent, false);
    expect(seen.size).toBeGreaterThan(20);
    expect([...seen].filter(([, times]) => times > 1).map(([schema]) => schema.slice(0, 100))).toEqual([]);
  });

  it('is the same in YAML', async () => {
    const [asJson, asYaml] = await Promise.all([get('/docs/json'), get('/docs/yaml')]);
    expect(asYaml.headers.get('content-type')).toMatch(/^application\/yaml/);
    expect(parseYaml(await asYaml.text())).toEqual(await asJson.json());
  });

  it.each(['/docs', '/docs/json', '/docs/yaml', '/docs/static/swagger-ui-bundle.js'])(
    '%s is compressed, and not sent again to one who has it',
    async (path) => {
      const plain = Buffer.from(await (await get(path)).arrayBuffer());
      for (const encoding of ['br', 'gzip']) {
        const response = await get(path, { 'accept-encoding': `${encoding}, identity;q=0.5` });
        expect(response.headers.get('content-encoding')).toBe(encoding);
        expect(response.headers.get('vary')).toContain('accept-encoding');
        expect(Buffer.from(await response.arrayBuffer()).equals(plain)).toBe(true);
        const length = Number(response.headers.get('content-length'));
        if (plain.length > 1_000) expect(length).toBeLessThan(plain.length / 2);
        const etag = response.headers.get('etag')!;
        for (const known of [etag, `"other", ${etag}`, etag.replace('W/', ''), '*']) {
          const again = await get(path, { 'if-none-match': known, 'accept-encoding': encoding });
          expect(again.status, known).toBe(304);
          expect(await again.text()).toBe('');
        }
        expect((await get(path, { 'if-none-match': '"other"' })).status).toBe(200);
      }
      expect((await get(path, { 'accept-encoding': 'br;q=0' })).headers.get('content-encoding')).toBe(null);
    },
  );
});

describe('the page at /docs', () => {
  it('loads with its script and its style, all from this node', async () => {
    const response = await fetch(`${relay.http}/docs`);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toMatch(/^text\/html/);
    expect(response.headers.get('content-security-policy')).toContain("default-src 'none'");
    const page = await response.text();
    const parts = [...page.matchAll(/(?:src|href)="([^"]+)"/g)].map((match) => match[1]!);
    expect(parts.length).toBeGreaterThan(3);
    for (const part of parts) {
      expect(part).toMatch(/^[./]/);
      expect((await fetch(new URL(part, `${relay.http}/docs`))).status, part).toBe(200);
    }
  });
});
