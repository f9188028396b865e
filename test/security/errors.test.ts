/** An error of the node says nothing about its inside to a client, on any route. */
import { expect, it } from 'vitest';
import { Http } from '../../src/port/http.js';
import { startTestNode } from '../support/node.js';

it('a failure outside of the API is a 500 without its message', async () => {
  const relay = await startTestNode();
  const http = new Http({
    metrics: relay.node.metrics,
    metricsToken: undefined,
    ready: async () => undefined,
  });
  http.app.get('/fails', () => {
    throw new Error('connect to /var/lib/secret-place failed');
  });
  const port = await http.listen('127.0.0.1', 0);
  const response = await fetch(`http://127.0.0.1:${port}/fails`);
  const text = await response.text();
  await http.close();
  await relay.close();
  expect(response.status).toBe(500);
  expect(text).not.toContain('secret-place');
  expect(JSON.parse(text)).toEqual({ code: 'INTERNAL', message: expect.any(String), details: {} });
});
