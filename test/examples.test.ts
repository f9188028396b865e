/** The examples of the docs do what they say, against a running node. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { isDenial } from '../src/core/errors.js';
import { approveRequest, listRequests } from '../src/store/topic-requests.js';
import { eventually } from './support/cli.js';
import { RawClient } from './support/client.js';
import { type Draft, newAuthor, sign } from './support/events.js';
import { startTestNode, type TestNode } from './support/node.js';
import { LineReader } from './support/stream.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const operator = newAuthor();
let relay: TestNode;

beforeAll(async () => {
  const env = { MINATO_TOPIC_MODE: 'required', MINATO_ADMIN_PUBKEYS: operator.pubkey };
  relay = await startTestNode({ env });
});
afterAll(() => relay.close());

async function run(example: string, ...args: string[]): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, [`docs/examples/${example}`, ...args], { cwd: root });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data) => {
      output += data;
    });
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  return { code, output };
}

it('first-post.mjs posts and reads it back', async () => {
  const { code, output } = await run('first-post.mjs', relay.url);
  expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining('Hello, harbour!') });
});

it('join-topic.mjs asks for a topic, and once the operator has approved it posts, reads and leaves', async () => {
  const running = run('join-topic.mjs', 'Old Boats', relay.http);
  const { pool } = relay.database;
  const community = relay.node.communities.all()[0]!.id;
  const waiting = async () => {
    const page = await listRequests(pool, { community, status: 'pending' }, { limit: 10 });
    return isDenial(page) ? undefined : page.items[0];
  };
  const request = await vi.waitUntil(waiting, { timeout: 30_000, interval: 200 });
  await approveRequest(pool, { community, requestId: request.requestId }, { enabledMax: 10 }, Date.now());
  const { code, output } = await running;
  expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining('Hello, Old Boats!') });
  expect(output).toContain('"status": "ended"');
});

it('sign-in.mjs gets a token, asks with it, and is refused once it is revoked', async () => {
  const { code, output } = await run('sign-in.mjs', relay.http);
  expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining('"plan_id": "free"') });
  expect(output).toContain('"reason": "revoked"');
});

it('operator-session.mjs signs in, changes nothing without its token, and is out once it signed out', async () => {
  const { code, output } = await run(
    'operator-session.mjs',
    Buffer.from(operator.secret).toString('hex'),
    relay.http,
  );
  expect({ code, output }).toEqual({
    code: 0,
    output: expect.stringContaining('Set-Cookie: minato_session=;'),
  });
  const told = [...output.matchAll(/^→ (\d+)|"code":"(\w+)"/gm)].map(
    ([, status, denied]) => status ?? denied,
  );
  expect(told).toEqual(['201', '200', '403', 'CSRF_REQUIRED', '200', '200', '401', 'INVALID_SESSION']);
});

it('follow-outbox.ts keeps a file that equals the view, through deletions, kills and a rebuild', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'minato-follow-'));
  const file = join(folder, 'index.json');
  const client = await RawClient.connect(relay.url);
  const author = newAuthor();
  const post = async (draft: Draft) => {
    const event = sign(author, draft);
    expect(await client.publish(event)).toEqual([true, expect.any(String)]);
    return event;
  };
  const note = (content: string) => post({ content, tags: [['t', 'kukuri:global']] });
  const view = async () => {
    const reader = await LineReader.open(relay.http, '/v1/admin/outbox/view?limit=10000', { as: operator });
    const lines = await reader.all();
    const shown = lines.flatMap(({ op, event_id, author, kind, event }) =>
      op === 'upsert' ? [[event_id, { author, kind, text: event!.content }]] : [],
    );
    return { seq: lines.at(-1)!.pinned, events: Object.fromEntries(shown) };
  };
  const equalsView = async () => {
    const wanted = await view();
    await eventually('the file equals the view', async () => {
      const text = await readFile(file, 'utf8').catch(() => '{"seq":-1}');
      return (JSON.parse(text) as { seq: number }).seq >= Number(wanted.seq) ? true : undefined;
    });
    expect(JSON.parse(await readFile(file, 'utf8'))).toEqual(wanted);
  };
  let said = '';
  const start = (): ChildProcess => {
    const args = ['--import', 'tsx', 'docs/examples/follow-outbox.ts', file, relay.http];
    const env = { PATH: process.env.PATH, MINATO_SECRET_KEY: Buffer.from(operator.secret).toString('hex') };
    const child = spawn(process.execPath, args, { cwd: root, env });
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (data) => {
        said += data;
      });
    return child;
  };
  const kill = async (child: ChildProcess): Promise<void> => {
    child.kill('SIGKILL');
    await once(child, 'close');
  };

  await note('before it began');
  let service = start();
  try {
    await equalsView();
    const lost = await note('to be deleted');
    await post({ kind: 0, content: '{"name":"old"}', created_at: 1_700_000_000 });
    await equalsView();
    await kill(service);
    // While nobody follows: a deletion, a replacement and a post.
    await post({ kind: 5, tags: [['e', lost.id]] });
    await post({ kind: 0, content: '{"name":"new"}', created_at: 1_700_000_001 });
    await note('meanwhile');
    service = start();
    await equalsView();
    expect(await readFile(file, 'utf8')).not.toContain(lost.id);
    expect(said.match(/^built: /gm)).toHaveLength(1);

    await kill(service);
    const kept = await note('past the end of the outbox');
    const { pool } = relay.database;
    // The number after the last one is the first that is still there.
    await pool.query('UPDATE lane_state SET outbox_floor = last_seq + 1');
    service = start();
    await equalsView();
    expect(await readFile(file, 'utf8')).toContain(kept.id);
    await eventually('it has said so', () => (said.match(/^built: /gm)?.length === 2 ? true : undefined));
    await pool.query('UPDATE lane_state SET outbox_floor = 1');
  } finally {
    await kill(service);
    await client.close();
    await rm(folder, { recursive: true });
  }
});
