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

  const HOST = 'Host: localhost\r\n';
  const UPGRADE = `${HOST}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n`;
  const KEY = 'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n';
  it.each([
    ['a websocket that is refused', 404, `GET /c/nobody HTTP/1.1\r\n${UPGRADE}${KEY}\r\n`],
    ['a websocket without a key', 400, `GET / HTTP/1.1\r\n${UPGRADE}\r\n`],
    ['input that is not HTTP', 400, 'hello\r\n\r\n'],
    ['a head that is too long', 431, `GET / HTTP/1.1\r\n${HOST}X: ${'x'.repeat(20_000)}\r\n\r\n`],
    ['a request without a Host', 400, 'GET / HTTP/1.1\r\n\r\n'],
    ['an unknown expectation', 200, `GET /stats HTTP/1.1\r\n${HOST}Connection: close\r\nExpect: x\r\n\r\n`],
  ])('are on the answer to %s', async (_what, status, request) => {
    const answer = await new Promise<string>((resolve) => {
      const socket = connect(Number(new URL(relay.http).port), '127.0.0.1');
      let text = '';
      socket.on('data', (chunk) => (text += String(chunk)));
      socket.on('error', () => undefined);
      socket.on('close', () => resolve(text));
      socket.write(request);
    });
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    const lines = answer.split('\r\n\r\n')[0]!.split('\r\n').slice(1);
    const headers = new Headers(lines.map((line) => line.split(': ', 2) as [string, string]));
    expect(problemsOf(headers)).toEqual([]);
  });
});
