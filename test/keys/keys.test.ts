/**
 * The keys that a node signs with. Their secrets are only in files. Each key is made once, and an instance
 * that lacks a secret does not make a new key.
 */
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { npubEncode } from 'nostr-tools/nip19';
import { verifyEvent } from 'nostr-tools/pure';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { NodeKeys } from '../../src/keys/keys.js';
import { KEY_PURPOSES, listKeys } from '../../src/keys/keys.sql.js';
import { eventually, runCli, startCli } from '../support/cli.js';
import { createTestDatabase } from '../support/servers/database.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

let store: TestStore;
let folder: string;
let community: number;
const TEMPLATE = { kind: 1, created_at: 1_900_000_000, tags: [], content: 'signed' };

beforeAll(async () => {
  store = await openTestStore();
  folder = await mkdtemp(join(tmpdir(), 'minato-keys-'));
  const { rows } = await store.database.pool.query<{ id: number }>('SELECT id FROM communities');
  community = rows[0]!.id;
});
afterAll(async () => {
  await store.close();
  await rm(folder, { recursive: true });
});

const keysIn = (place: string) =>
  new NodeKeys({ folder: join(folder, place), pool: store.database.apiPool, now: Date.now });
const filesIn = (place: string) => readdir(join(folder, place, 'keys')).catch(() => []);
const minato = (args: string[], place = 'one') =>
  runCli(args, { DATABASE_URL: store.test.url, MINATO_DATA_DIR: join(folder, place) });

describe('a key of the node', () => {
  it('is made at first use, once under concurrent use, and signs what others can verify', async () => {
    const many = Array.from({ length: 5 }, () => keysIn('one'));
    const signed = await Promise.all(many.map((keys) => keys.sign(community, 'moderation', TEMPLATE)));
    expect(new Set(signed.map(({ id }) => id)).size).toBe(1);
    for (const event of signed) expect(verifyEvent(JSON.parse(JSON.stringify(event)))).toBe(true);
    expect(await filesIn('one')).toEqual([`${signed[0]!.pubkey}.key`]);
    const other = await keysIn('one').pubkey(community, 'report-based');
    expect(other, 'one for each purpose').not.toBe(signed[0]!.pubkey);
  });

  it('has its secret in a file of mode 0600, not in the database or in command output', async () => {
    const keys = keysIn('one');
    const path = keys.pathOf(await keys.pubkey(community, 'moderation'));
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect((await stat(join(folder, 'one', 'keys'))).mode & 0o777).toBe(0o700);
    const secret = (await readFile(path, 'utf8')).trim();
    expect(secret).toMatch(/^[0-9a-f]{64}$/);
    const { rows } = await store.database.pool.query<{ text: string }>(
      `SELECT (SELECT string_agg(k::text, '') FROM node_keys k)
         || (SELECT coalesce(string_agg(a::text, ''), '') FROM audit_log a) AS text`,
    );
    expect(rows[0]!.text).toContain(path.slice(-68, -4));
    expect(rows[0]!.text).not.toContain(secret);
    const shown = await minato(['keys']);
    expect(shown).toMatchObject({ code: 0 });
    expect(shown.stdout).toContain(npubEncode(await keys.pubkey(community, 'moderation')));
    expect(shown.stdout).toMatch(/moderation .* current {2}secret here/);
    expect(shown.stdout + shown.stderr).not.toContain(secret);
  });

  it('is not replaced by an instance that lacks its file: the error names the file', async () => {
    const keys = keysIn('two');
    const path = keys.pathOf(await keys.pubkey(community, 'moderation'));
    await expect(keys.sign(community, 'moderation', TEMPLATE)).rejects.toThrow(`is not at ${path}`);
    expect(await filesIn('two')).toEqual([]);
    expect(await listKeys(store.database.apiPool, community)).toHaveLength(2);
    expect((await minato(['keys'], 'two')).stdout).toContain(`secret missing: ${path}`);
    expect((await minato(['doctor'], 'two')).stdout).toContain(
      `warn community default: the secret of the moderation key is not at ${path}`,
    );
  });

  it('is not used when its file contains another secret', async () => {
    const keys = keysIn('one');
    const [pubkey, other] = [
      await keys.pubkey(community, 'moderation'),
      await keys.pubkey(community, 'report-based'),
    ];
    const kept = await readFile(keys.pathOf(pubkey));
    await writeFile(keys.pathOf(pubkey), await readFile(keys.pathOf(other)));
    await expect(keys.sign(community, 'moderation', TEMPLATE)).rejects.toThrow('is not at');
    await writeFile(keys.pathOf(pubkey), kept);
    await chmod(keys.pathOf(pubkey), 0o600);
  });

  it('is rotated by a command: the new key signs, and the file of the old one stays', async () => {
    const keys = keysIn('one');
    const before = await keys.sign(community, 'moderation', TEMPLATE);
    const rotated = await minato(['keys', 'rotate', 'moderation']);
    expect(rotated).toMatchObject({ code: 0, stderr: '' });
    const after = await keys.sign(community, 'moderation', TEMPLATE);
    expect(after.pubkey).not.toBe(before.pubkey);
    expect(rotated.stdout).toContain(npubEncode(after.pubkey));
    expect(await filesIn('one')).toContain(`${before.pubkey}.key`);
    const [current, retired] = (await listKeys(store.database.apiPool, community)).filter(
      ({ purpose }) => purpose === 'moderation',
    );
    expect(current).toMatchObject({ pubkey: after.pubkey, retiredAt: null });
    expect(retired).toMatchObject({ pubkey: before.pubkey, retiredAt: expect.any(Number) });
  });

  it('is rotated once by two concurrent calls', async () => {
    const results = await Promise.all(
      [keysIn('one'), keysIn('one')].map((keys) => keys.rotate(community, 'report-based')),
    );
    const made = results.filter((one) => !isDenial(one));
    const { length } = (await listKeys(store.database.apiPool, community)).filter(
      ({ purpose }) => purpose === 'report-based',
    );
    expect(length).toBe(1 + made.length);
    expect(made).toContain(await keysIn('one').pubkey(community, 'report-based'));
  });
});

describe('the first boot of a node', () => {
  it('makes a key for each purpose, and the next boot makes no other', async () => {
    const fresh = await createTestDatabase();
    const env = { DATABASE_URL: fresh.url, MINATO_DATA_DIR: join(folder, 'fresh'), MINATO_PORT: '0' };
    const boot = async (): Promise<readonly string[]> => {
      const { child, ended } = startCli(['serve'], env);
      let said = '';
      child.stdout!.on('data', (text: Buffer) => {
        said += text.toString();
      });
      await eventually('the node is ready', () => (said.includes('"ready"') ? true : undefined));
      child.kill('SIGTERM');
      expect((await ended).code).toBe(0);
      return (await filesIn('fresh')).sort();
    };
    const made = await boot();
    expect(made).toHaveLength(KEY_PURPOSES.length);
    expect(await boot()).toEqual(made);
    await fresh.drop();
  });
});
