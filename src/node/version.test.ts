import { createRequire } from 'node:module';
import { expect, it } from 'vitest';
import { NODE_VERSIONS, runsOnNode, SOFTWARE_URL } from './version.js';

it('the address of this software, which NIP-11 names, is the page of its npm package', () => {
  const { name } = createRequire(import.meta.url)('../../package.json') as { name: string };
  expect(SOFTWARE_URL).toBe(`https://www.npmjs.com/package/${name}`);
});

it('the version ranges of package.json have the form that the check can read', () => {
  for (const range of NODE_VERSIONS.split(' || ')) expect(range).toMatch(/^(\^|>=)\d+\.\d+\.0$/);
});

it.each([
  ['18.20.8', false],
  ['20.0.0', false],
  ['20.18.3', false],
  ['20.19.0', true],
  ['20.20.2', true],
  ['21.7.3', false],
  ['22.11.0', false],
  ['22.12.0', true],
  ['23.11.1', false],
  ['24.0.0', true],
  ['26.1.0', true],
])('Node.js %s: %s', (version, works) => {
  expect(runsOnNode(version)).toBe(works);
});
