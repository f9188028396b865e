/** `minato topics`, run as a process beside a node that follows its changes. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import v1 from '../vectors/topic-ids-v1.json' with { type: 'json' };

let relay: TestNode;
let client: RawClient;
const alice = newAuthor();

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_TOPIC_MODE: 'required' } });
  client = await RawClient.connect(relay.url);
});
afterAll(async () => {
  await client.close();
  await relay.close();
});

const topics = (...args: string[]) => runCli(['topics', ...args], { DATABASE_URL: relay.test.url });
const lineOf = async (topic: string) =>
  (await topics('list')).stdout.split('\n').find((line) => line.startsWith(`${topic} `));
const vectorOf = (name: string) => v1.vectors.find((vector) => vector.name === name)!;

describe('topics resolve', () => {
  it('prints the id of a name, its gossip topic, and whether it is carried', async () => {
    const { id, gossip } = vectorOf('harbour');
    expect(await topics('resolve', ' Harbour ')).toMatchObject({
      code: 0,
      stdout: `id       ${id}\ngossip   ${gossip}\ncarried  no\n`,
    });
    await topics('set', id, '--name', 'Harbour');
    expect((await topics('resolve', 'harbour')).stdout).toContain('carried  yes');
    expect(await lineOf(id)).toMatch(/enabled +pinned +private.*"Harbour"$/);
  });

  it('uses an id as it is', async () => {
    const { gossip } = vectorOf('kukuri:global');
    expect((await topics('resolve', 'kukuri:global')).stdout).toBe(
      `id       kukuri:global\ngossip   ${gossip}\ncarried  yes\n`,
    );
  });

  it('uses the namespace of the community', async () => {
    const env = { DATABASE_URL: relay.test.url };
    await runCli(['communities', 'add', 'boats'], env);
    await runCli(['settings', 'set', 'topic.namespace', 'minato', '-c', 'boats'], env);
    const { id } = v1.vectors.find(({ namespace, name }) => namespace === 'minato' && name === 'harbour')!;
    expect((await topics('resolve', 'harbour', '-c', 'boats')).stdout).toContain(`id       ${id}\n`);
    expect((await topics('resolve', 'minato:global', '-c', 'boats')).stdout).toContain('carried  yes');
  });

  it('refuses an invalid name with the reason', async () => {
    expect(await topics('resolve', ' ')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('a topic name must not be empty'),
    });
  });
});

describe('topics set', () => {
  const post = () => client.publish(sign(alice, { tags: [['t', 'nets']], content: `${Math.random()}` }));
  const becomes = (answer: [boolean, string]) => expect.poll(post, { timeout: 100_000 }).toEqual(answer);

  it('pins and unpins, and the running node follows', async () => {
    expect(await post()).toEqual([false, 'restricted: topic not enabled: add ["t","kukuri:global"]']);
    expect(await topics('set', 'nets')).toMatchObject({ code: 0 });
    await becomes([true, '']);
    for (const off of ['--unpin', '--disable']) {
      await topics('set', 'nets', off);
      expect(await lineOf('nets')).toMatch(/ disabled +private/);
      await becomes([false, 'restricted: topic not enabled: add ["t","kukuri:global"]']);
      await topics('set', 'nets', '--pin');
      await becomes([true, '']);
    }
  });

  it('respects the cap of the community', async () => {
    const env = { DATABASE_URL: relay.test.url };
    await runCli(['settings', 'set', 'topic.enabledMax', '1'], env);
    expect(await topics('set', 'masts')).toMatchObject({
      code: 1,
      stderr: 'minato: The maximum number of topics of this node is reached. (limit: 1)\n',
    });
    expect(await lineOf('masts')).toBeUndefined();
    await runCli(['settings', 'reset', 'topic.enabledMax'], env);
  });

  it('keeps options that are not given', async () => {
    await topics('set', 'ropes', '--public', '--name', 'Ropes', '--priority', '3', '--retention-days', '9');
    await topics('set', 'ropes', '--unpin', '--max-events', '100');
    expect(await lineOf('ropes')).toMatch(
      / disabled +public +subscribers 0 +priority 3 +\{"retentionDays": ?9,"maxEvents": ?100\} +"Ropes"$/,
    );
    await topics('set', 'ropes', '--private', '--priority', '0');
    expect(await lineOf('ropes')).toMatch(/ disabled +private +subscribers 0 +priority 0/);
  });

  it('removes each rule by "none", and keeps the others', async () => {
    const rules = [
      '--retention-days',
      '9',
      '--max-events',
      '100',
      '--max-bytes',
      '5000',
      '--max-delay',
      '60',
    ];
    await topics('set', 'sails', ...rules, '--allow-backfill', 'yes');
    expect(await lineOf('sails')).toContain(
      '{"retentionDays":9,"maxEvents":100,"maxBytes":5000,"maxDelaySeconds":60,"allowBackfill":true}',
    );
    await topics('set', 'sails', '--max-events', 'none', '--max-delay', 'none', '--allow-backfill', 'none');
    expect(await lineOf('sails')).toContain('{"retentionDays":9,"maxBytes":5000}');
    await topics('set', 'sails', '--max-bytes', 'none', '--retention-days', 'none');
    expect(await lineOf('sails')).toMatch(/priority 0 +\{\}$/);
    expect(await topics('set', 'sails', '--allow-backfill', 'maybe')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('use "yes", "no" or "none"'),
    });
    expect(await topics('set', 'sails', '--max-events', 'many')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(', or "none"'),
    });
  });

  it.each([
    ['--pin', '--unpin'],
    ['--pin', '--disable'],
    ['--public', '--private'],
  ])('%s and %s at once are refused', async (one, other) => {
    expect(await topics('set', 'oars', one, other)).toMatchObject({
      stderr: expect.stringContaining('cannot be used with'),
    });
    expect(await lineOf('oars')).toBeUndefined();
  });
});

describe('topics remove', () => {
  it('removes the rules, but not from topics with subscribers', async () => {
    await topics('set', 'buoys');
    expect(await topics('remove', 'buoys')).toMatchObject({ code: 0 });
    expect(await lineOf('buoys')).toBeUndefined();
    expect(await topics('remove', 'buoys')).toMatchObject({ code: 1 });
    const { rows } = await relay.database.pool.query(
      "SELECT action FROM audit_log WHERE target = 'buoys' AND actor IS NULL ORDER BY position",
    );
    expect(rows).toEqual([{ action: 'topic.create' }, { action: 'topic.delete' }]);

    await topics('set', 'buoys', '--unpin');
    const { pool } = relay.database;
    await pool.query('INSERT INTO members (community, pubkey, created_at, updated_at) VALUES (1, $1, 0, 0)', [
      Buffer.from(alice.pubkey, 'hex'),
    ]);
    await pool.query(
      `INSERT INTO topic_subscriptions
         (subscription_id, community, pubkey, topic, status, started_at, updated_at)
       VALUES (gen_random_uuid(), 1, $1, 'buoys', 'active', 0, 0)`,
      [Buffer.from(alice.pubkey, 'hex')],
    );
    expect(await lineOf('buoys')).toMatch(/ enabled .*subscribers 1/);
    expect(await topics('remove', 'buoys')).toMatchObject({
      code: 1,
      stderr:
        'minato: Members are subscribed to this topic; to stop it anyway, block it. (subscriptions: 1)\n',
    });
    expect(await lineOf('buoys')).toMatch(/ enabled .*subscribers 1/);
  });
});

it('a number out of its range is refused in a sentence with the range, and changes nothing', async () => {
  await topics('set', 'kukuri:global', '--retention-days', '36500', '--priority', '-32767');
  const before = await lineOf('kukuri:global');
  expect(before).toContain('priority -32767');
  for (const [option, value, range] of [
    ['--retention-days', '40000', 'from 0 to 36500'],
    ['--retention-days', '-1', 'from 0 to 36500'],
    ['--priority', '40000', 'from -32767 to 32767'],
    ['--priority', '-32768', 'from -32767 to 32767'],
    ['--max-events', '0', 'from 1 to'],
    ['--max-bytes', '99999999999999999999', 'from 1 to'],
  ] as const) {
    const { code, stderr } = await topics('set', 'kukuri:global', option, value);
    expect(code).toBe(1);
    expect(stderr).toContain(`a whole number ${range}`);
    expect(stderr).not.toMatch(/[{[]|smallint/);
  }
  expect(await lineOf('kukuri:global')).toBe(before);
});
