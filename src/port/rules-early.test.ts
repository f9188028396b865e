import { expect, it } from 'vitest';
import { readConfig } from '../node/config.js';
import { earlyAddress } from './rules-early.js';

it.each([
  [{}],
  [{ MINATO_HOST: '', MINATO_PORT: '' }],
  [{ MINATO_HOST: '0.0.0.0', MINATO_PORT: '1' }],
  [{ MINATO_HOST: '::1', MINATO_PORT: '65535' }],
  [{ MINATO_PORT: '0' }],
])('the port that opens early is the one of the whole configuration: %j', (env) => {
  const { host, port } = readConfig(env);
  expect(earlyAddress(env)).toEqual({ host, port });
});

it.each([
  [{ MINATO_PORT: '65536' }],
  [{ MINATO_PORT: 'x' }],
  [{ MINATO_PORT: '-1' }],
  [{ MINATO_PORT: ' 80' }],
])('a port that the configuration refuses is not opened: %j', (env) => {
  expect(() => readConfig(env)).toThrow('MINATO_PORT');
  expect(earlyAddress(env)).toBeUndefined();
});
