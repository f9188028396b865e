/** `minato policies` as an operator runs it: from a file to the current version. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { listAudit } from '../../src/audit/audit.sql.js';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { readCurrentPolicies, readText } from '../../src/policies/policies.sql.js';
import { runCli } from '../support/cli.js';
import { sha256 } from '../support/clients/api.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

let store: TestStore;
let art: number;
let folder: string;
beforeAll(async () => {
  store = await openTestStore();
  art = await addCommunity(store.database.pool, 'art', undefined, Date.now());
  folder = await mkdtemp(join(tmpdir(), 'minato-policies-'));
});
afterAll(async () => {
  await rm(folder, { recursive: true });
  await store.close();
});

const minato = (...args: string[]) =>
  runCli(['policies', ...args, '-c', 'art'], { DATABASE_URL: store.test.url });
async function output(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await minato(...args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return stdout;
}
async function problem(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await minato(...args);
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  expect(stderr).not.toMatch(/\n\s+at /);
  return stderr;
}
async function fileOf(name: string, content: string | Uint8Array): Promise<string> {
  const path = join(folder, name);
  await writeFile(path, content);
  return path;
}

it('writes texts from files, publishes them and makes them current, all in the audit log', async () => {
  const { pool } = store.database;
  expect(await output()).toBe('no policies\n');
  const english = await fileOf('en.md', 'Be kind.\n');
  expect(await output('write', 'terms', '2026-04', 'EN', english, '--title', 'Terms of use')).toBe(
    `terms 2026-04  en  ${sha256('Be kind.\n')}\n`,
  );
  // Some editors write a byte order mark, which is not part of the text.
  const japanese = await fileOf('ja.md', '\ufeff仲良く。\n');
  await output('write', 'terms', '2026-04', 'ja', japanese, '--title', '利用規約');
  expect(await readText(pool, art, { type: 'terms', version: '2026-04' }, 'ja')).toMatchObject({
    title: '利用規約',
    content: '仲良く。\n',
  });
  expect(await output('list')).toMatch(/^terms {4}2026-04 {2}draft {6}since \S+Z {2}en, ja\n$/);
  expect(await output('publish', 'terms', '2026-04')).toMatch(/ published {2}since /);
  expect(await output('make-current', 'terms', '2026-04')).toMatch(/ current {4}since /);
  expect(await readCurrentPolicies(pool, art)).toMatchObject([{ type: 'terms', version: '2026-04' }]);
  const german = await fileOf('de.md', 'Sei nett.');
  await output('write', 'terms', '2026-04', 'de', german, '--title', 'Regeln');
  expect(await output('show', 'terms', '2026-04', 'de')).toMatch(
    new RegExp(`current .* en, ja, de\n\nde  ${sha256('Sei nett.')}\nRegeln\n\nSei nett.\n$`),
  );
  expect(await output('show', 'terms', '2026-04')).toMatch(/Be kind\.[\s\S]*仲良く。[\s\S]*Sei nett\./);
  const log = await listAudit(pool, art, { limit: 20 });
  if (isDenial(log)) throw new Error(log.denied);
  expect(log.items.map(({ actor, action, target }) => [actor, action, target])).toEqual([
    [null, 'policy-text.write', 'terms/2026-04/de'],
    [null, 'policy.make-current', 'terms/2026-04'],
    [null, 'policy.publish', 'terms/2026-04'],
    [null, 'policy-text.write', 'terms/2026-04/ja'],
    [null, 'policy-text.write', 'terms/2026-04/en'],
    [null, 'policy.create', 'terms/2026-04'],
  ]);
});

it('says in a sentence what cannot be done', async () => {
  const file = await fileOf('other.md', 'Other words');
  const empty = await fileOf('empty.md', '');
  const latin = await fileOf('latin.md', Uint8Array.of(0xe9, 0x20));
  const title = ['--title', 'T'];
  expect(await problem('write', 'terms', '2026-04', 'en', file, ...title)).toBe(
    'minato: A published version cannot be changed; create a new version. (status: current)\n',
  );
  expect(await problem('make-current', 'privacy', 'none')).toBe('minato: Not found.\n');
  expect(await problem('show', 'terms', 'none')).toBe('minato: terms none not found\n');
  expect(await problem('show', 'terms', '2026-04', 'fr')).toBe('minato: terms 2026-04 in fr not found\n');
  expect(await problem('write', 'terms', '2', 'en', empty, ...title)).toMatch(
    /^minato: a text must have 1 to/,
  );
  expect(await problem('write', 'terms', '2', 'en', latin, ...title)).toMatch(/is not UTF-8\n$/);
  expect(await problem('write', 'terms', '2', 'en', join(folder, 'none'), ...title)).toMatch(/ENOENT/);
  expect(await problem('write', 'terms', '2', 'en_US', file, ...title)).toMatch(/BCP 47/);
  expect(await problem('write', 'terms', 'a/b', 'en', file, ...title)).toMatch(/such as 2026-04/);
  expect(await problem('write', 'cookies', '2', 'en', file, ...title)).toMatch(/terms, privacy/);
  expect(await problem('write', 'terms', '2', 'en', file)).toMatch(/--title/);
  await output('write', 'privacy', '1', 'en', file, ...title);
  expect(await problem('make-current', 'privacy', '1')).toMatch(/\(status: draft\)\n$/);
  expect(await output('list')).not.toMatch(/terms +2 /);
});
