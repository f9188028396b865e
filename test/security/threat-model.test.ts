/** The threat model names tests that exist, for every threat. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');
const TEST = /`((?:src|test)\/[\w/-]+\.test\.ts)`/g;

it('every threat has a control and a test', () => {
  const threats = read('docs/security.md').split('## Threats')[1]!.split('## Secrets')[0]!;
  const rows = threats.split('\n').filter((line) => /^\| (?!threat|---)/.test(line) && !/^\|---/.test(line));
  expect(rows.length).toBeGreaterThan(30);
  expect(rows.filter((row) => row.split('|').length !== 5 || !row.match(TEST))).toEqual([]);
});

it.each(['docs/security.md', 'docs/security-asvs.md'])('%s names only tests that exist', (page) => {
  const named = [...read(page).matchAll(TEST)].map(([, path]) => path!);
  expect(named.length).toBeGreaterThan(5);
  expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
});

it('every item of the checklist is true, not applicable or open', () => {
  const rows = read('docs/security-asvs.md')
    .split('\n')
    .filter((line) => /^\| \d+\.\d+/.test(line));
  expect(rows.length).toBeGreaterThan(40);
  expect(rows.filter((row) => !/^\| [\d., –]+ \|[^|]+\| (true|not applicable|open) \|/.test(row))).toEqual(
    [],
  );
});
