/** A disk that is nearly full: posts are refused before PostgreSQL runs out of space. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, statfs, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addCommunity, writeSetting } from '../../src/communities/communities.sql.js';
import { changeNodeSetting, clearNodeSetting } from '../../src/communities/node-settings.sql.js';
import type { NodeSettingKey } from '../../src/communities/rules-node-settings.js';
import { eventually, runCli, startCli } from '../support/cli.js';
import { createApi } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { copyCluster } from '../support/servers/postgres.js';

const run = promisify(execFile);
const FULL = 'error: the disk of this relay is nearly full, try again later';
const root = newAuthor();

describe('while less than the reserve is free', () => {
  let relay: TestNode;
  let client: RawClient;
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'minato-disk-'));
    relay = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey } });
    client = await RawClient.connect(relay.url);
  });
  afterAll(async () => {
    await client.close();
    await relay.close();
    await rm(folder, { recursive: true, force: true });
  });

  const set = (key: NodeSettingKey, value: number) =>
    changeNodeSetting(relay.database.pool, { key, value }, Date.now());
  const metric = async (name: string) => {
    const text = await (await fetch(`${relay.http}/metrics`)).text();
    return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1]);
  };
  const level = (wanted: number) =>
    eventually(`level ${wanted}`, async () =>
      (await metric('minato_disk_level')) === wanted ? true : undefined,
    );

  it('posts are refused until space is free; deletions and requests to vanish pass', async () => {
    const author = newAuthor();
    const leaving = newAuthor();
    const stored = sign(author, { content: 'before' });
    expect(await client.publish(stored)).toEqual([true, '']);
    expect(await metric('minato_disk_level')).toBe(0);
    expect(await metric('minato_disk_free_bytes')).toBeGreaterThan(0);

    await set('node.diskFreeMinPercent', 100);
    await level(2);
    expect(await client.publish(sign(author, { content: 'refused' }))).toEqual([false, FULL]);
    expect(await client.publish(sign(author, { kind: 0, content: '{}' }))).toEqual([false, FULL]);
    const late = sign(author, { created_at: nowSeconds() - 1_000_000 });
    expect(await client.publish(late)).toEqual([false, FULL]);
    // A stored event is still answered as a duplicate.
    expect(await client.publish(stored)).toEqual([true, expect.stringContaining('duplicate')]);
    expect(await client.publish(sign(author, { kind: 20_001 }))).toEqual([true, expect.any(String)]);
    expect(await client.publish(sign(author, { kind: 5, tags: [['e', stored.id]] }))).toEqual([true, '']);
    const vanish = sign(leaving, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    expect(await client.publish(vanish)).toEqual([true, '']);

    const api = createApi(relay.http);
    const { body } = await api.ask<{ disk: unknown }>('GET', '/v1/admin/capacity', { as: root });
    expect(body.disk).toEqual({ level: 2, free_percent: expect.any(Number), min_percent: 100 });

    await clearNodeSetting(relay.database.pool, { key: 'node.diskFreeMinPercent' }, Date.now());
    await level(0);
    expect(await client.publish(sign(author, { content: 'again' }))).toEqual([true, '']);
    // The deletion was applied meanwhile.
    expect(await client.publish(stored)).toEqual([false, expect.stringContaining('deleted')]);
  });

  it('backfill is refused first', async () => {
    const { bavail, bsize } = await statfs(tmpdir());
    // Between the reserve and one and a half times the reserve.
    await set('node.diskFreeMinPercent', 0);
    await set('node.diskFreeMinBytes', Math.floor((bavail * bsize) / 1.25));
    await level(1);
    const author = newAuthor();
    const late = sign(author, { created_at: nowSeconds() - 1_000_000 });
    expect(await client.publish(late)).toEqual([false, FULL]);
    expect(await client.publish(sign(author, { content: 'new' }))).toEqual([true, '']);
    await set('node.diskFreeMinBytes', 0);
    await level(0);
    expect(await client.publish(late)).toEqual([true, '']);
  });

  it('of several communities the one with more than its share is refused first', async () => {
    const { bavail, bsize } = await statfs(tmpdir());
    const art = await addCommunity(relay.database.pool, 'art', undefined, Date.now());
    await writeSetting(relay.database.pool, art, 'topic.mode', 'open', Date.now());
    await eventually('it is known', () =>
      relay.node.communities.get(art)?.settings['topic.mode'] === 'open' ? true : undefined,
    );
    const inArt = await RawClient.connect(`${relay.url}/c/art`);
    const author = newAuthor();
    expect(await inArt.publish(sign(author, { content: 'small' }))).toEqual([true, '']);
    expect(await client.publish(sign(author, { content: 'most of all bytes'.repeat(50) }))).toEqual([
      true,
      '',
    ]);
    await set('node.diskFreeMinPercent', 0);
    // Between one and a half and twice the reserve.
    await set('node.diskFreeMinBytes', Math.floor((bavail * bsize) / 1.8));
    await eventually('the larger one is refused', async () => {
      const [accepted, why] = await client.publish(sign(author, { content: `${Math.random()}` }));
      return accepted ? undefined : why === FULL || undefined;
    });
    expect(await metric('minato_disk_level')).toBe(0);
    expect(await inArt.publish(sign(author, { content: 'taken' }))).toEqual([true, '']);
    const emptyDeletion = sign(author, { kind: 5, tags: [['e', '0'.repeat(64)]] });
    expect(await client.publish(emptyDeletion)).toEqual([true, '']);
    await set('node.diskSharePercent', 100);
    await eventually(
      'shares are off',
      async () => (await client.publish(sign(author, { content: `${Math.random()}` })))[0] || undefined,
    );
    await set('node.diskFreeMinBytes', 0);
    await inArt.close();
  });

  it('a consumer is not rebuilt, which would write everything a second time', async () => {
    await set('node.diskFreeMinPercent', 100);
    await level(2);
    const api = createApi(relay.http);
    const search = async () => {
      const { body } = await api.ask<{ items: { name: string; rebuild: { phase: string } | null }[] }>(
        'GET',
        '/v1/admin/consumers',
        { as: root },
      );
      return body.items.find(({ name }) => name === 'search')!.rebuild;
    };
    await eventually('nothing is being built', async () => ((await search()) === null ? true : undefined));
    await api.ask('POST', '/v1/admin/consumers/search/rebuild', { as: root, body: {} });
    relay.node.consumers!.hurry();
    await relay.node.consumers!.drained();
    expect(await search()).toMatchObject({ phase: 'waiting' });
    await set('node.diskFreeMinPercent', 0);
    await eventually('it is rebuilt', async () => {
      relay.node.consumers!.hurry();
      return (await search()) === null ? true : undefined;
    });
  });

  it('an import stops, and continues where it was once there is space', async () => {
    const env = { MINATO_DATA_DIR: join(folder, 'import'), MINATO_LOG_LEVEL: 'error' };
    const file = join(folder, 'events.jsonl');
    const events = Array.from({ length: 20 }, (_, at) => sign(newAuthor(), { content: `${at}` }));
    await writeFile(file, events.map((event) => `${JSON.stringify(event)}\n`).join(''));
    const settings = (...args: string[]) => runCli(['settings', ...args], env);
    expect(await settings('set', 'node.diskFreeMinPercent', '100')).toMatchObject({ code: 0 });
    const stopped = await runCli(['import', file], env);
    expect(stopped).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('the disk of the node is nearly full'),
    });
    expect(await settings('reset', 'node.diskFreeMinPercent')).toMatchObject({ code: 0 });
    const done = await runCli(['import', file], env);
    expect(done, done.stderr).toMatchObject({ code: 0 });
    const exported = await runCli(['export'], env);
    expect(exported.stdout.trim().split('\n')).toHaveLength(20);
  });

  it('with an external database nothing is known, and nothing is refused', async () => {
    const env = { DATABASE_URL: relay.test.url };
    await set('node.diskFreeMinPercent', 100);
    const elsewhere = await startTestNode({ on: relay.test, env });
    try {
      const other = await RawClient.connect(elsewhere.url);
      expect(await other.publish(sign(newAuthor(), {}))).toEqual([true, '']);
      await other.close();
    } finally {
      await elsewhere.close();
    }
  });
});

describe('on a small disk', () => {
  const MB = 1_048_576;
  let folder: string;
  let isMounted = false;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'minato-disk-'));
    if (process.getuid?.() !== 0 || process.platform !== 'linux') return;
    isMounted = await run('mount', ['-t', 'tmpfs', '-o', 'size=512m,mode=0755', 'tmpfs', folder]).then(
      () => true,
      () => false,
    );
  });
  afterAll(async () => {
    if (isMounted) await run('umount', ['-l', folder]);
    await rm(folder, { recursive: true, force: true });
  });

  it('the node refuses posts before PostgreSQL runs out of space', async (context) => {
    if (!isMounted) context.skip('a small disk needs root and the right to mount');
    const env = { MINATO_DATA_DIR: join(folder, 'data'), MINATO_PORT: '0', MINATO_LOG_LEVEL: 'info' };
    await copyCluster(env.MINATO_DATA_DIR);
    const node = startCli(['serve'], env);
    let output = '';
    node.child.stdout!.on('data', (chunk: Buffer) => {
      output += chunk;
    });
    const url = await eventually('it is ready', () => /"address":"(ws:[^"]+)".*"ready"/.exec(output)?.[1]);
    const settings = async (key: string, value: string) =>
      expect(await runCli(['settings', 'set', key, value], env)).toMatchObject({ code: 0 });
    await settings('node.diskFreeMinPercent', '10');
    await settings('node.diskFreeMinBytes', '0');
    const client = await RawClient.connect(url);
    const post = () => client.publish(sign(newAuthor(), { content: 'x'.repeat(1_000) }));
    const until = (what: string, expected: string | undefined) =>
      eventually(what, async () => {
        const [taken, why] = await post();
        return (taken ? undefined : why) === expected ? true : undefined;
      });
    await until('posts are taken', undefined);
    const { bavail, bsize } = await statfs(folder);
    const filler = join(folder, 'filler');
    await writeFile(filler, Buffer.alloc(bavail * bsize - 40 * MB));
    await until('posts are refused', FULL);
    // The database still works.
    const { origin } = new URL(url.replace('ws:', 'http:'));
    expect((await fetch(`${origin}/readyz`)).status).toBe(200);
    expect(await client.publish(sign(newAuthor(), { kind: 5, tags: [['e', '0'.repeat(64)]] }))).toEqual([
      true,
      '',
    ]);
    const doctor = await runCli(['doctor'], env);
    expect(doctor.stdout).toMatch(/posts are refused/);
    await rm(filler);
    await until('posts are taken again', undefined);
    expect(output).toMatch(/the disk is nearly full: posts are refused/);
    expect(output).toMatch(/the disk has more space again/);
    expect(output).not.toMatch(/No space left|PANIC/);
    await client.close();
    node.child.kill('SIGTERM');
    expect((await node.ended).code).toBe(0);
  });
});
