/** Every HTTP answer has the security headers: of every route, and of refusals before any route. */
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readOpenApi } from '../support/clients/api.js';
import { startTestNode, type TestNode } from '../support/node.js';

let relay: TestNode;
beforeAll(async () => {
  relay = await startTestNode();
});
afterAll(() => relay.close());

const PAGES = [
  '/',
  '/admin/',
  '/admin/setup',
  '/docs',
  '/docs/json',
  '/docs/yaml',
  '/stats',
  '/healthz',
  '/readyz',
];
const OTHERS = [
  '/metrics',
  '/c/default/v1/topics',
  '/c/nobody',
  '/nothing',
  '/%zz',
  '/v1/nothing',
  '/favicon.ico',
];

function problemsOf(headers: Headers): string[] {
  const policy = headers.get('content-security-policy') ?? '';
  return [
    ...(headers.get('x-content-type-options') === 'nosniff' ? [] : ['nosniff']),
    ...(headers.get('referrer-policy') === 'no-referrer' ? [] : ['referrer-policy']),
    ...(headers.get('x-frame-options') === 'DENY' ? [] : ['x-frame-options']),
    ...(policy.includes("frame-ancestors 'none'") && !policy.includes('unsafe-eval') ? [] : ['policy']),
    ...(headers.has('x-powered-by') || headers.has('server') ? ['names its software'] : []),
  ];
}

const ask = (path: string, method = 'GET') =>
  fetch(relay.http + path, { method, redirect: 'manual', headers: { connection: 'close' } });

describe('security headers', () => {
  it.each([...PAGES, ...OTHERS])('are on %s', async (path) => {
    for (const method of ['GET', 'OPTIONS', 'POST']) {
      const { headers, status } = await ask(path, method);
      expect({ method, status, problems: problemsOf(headers) }).toEqual({ method, status, problems: [] });
    }
  });

  it('are on every route of the API', async () => {
    const { paths } = await readOpenApi(relay.http);
    const asked = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => [path.replace(/\{[^}]+\}/g, 'x'), method.toUpperCase()] as const),
    );
    expect(asked.length).toBeGreaterThan(100);
    const wrong: string[] = [];
    for (const [path, method] of asked) {
      const response = await ask(path, method);
      await response.body?.cancel();
      const problems = problemsOf(response.headers);
      if (problems.length > 0) wrong.push(`${method} ${path} ${response.status}: ${problems.join(', ')}`);
    }
    expect(wrong).toEqual([]);
  });

  it('are on the refusal of a websocket', async () => {
    const answer = await new Promise<string>((resolve) => {
      const socket = connect(Number(new URL(relay.http).port), '127.0.0.1');
      let text = '';
      socket.on('data', (chunk) => (text += String(chunk)));
      socket.on('close', () => resolve(text));
      socket.write(
        'GET /c/nobody HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n' +
          'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n',
      );
    });
    expect(answer).toMatch(/^HTTP\/1\.1 404 /);
    expect(answer.toLowerCase()).toContain('x-content-type-options: nosniff');
  });
});
