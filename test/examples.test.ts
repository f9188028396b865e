/** The examples of the docs do what they say, against a running node. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { isDenial } from '../src/core/errors.js';
import { approveRequest, listRequests } from '../src/store/topic-requests.js';
import { startTestNode, type TestNode } from './support/node.js';

const root = fileURLToPath(new URL('..', import.meta.url));
let relay: TestNode;

beforeAll(async () => {
  relay = await startTestNode({ env: { MINATO_TOPIC_MODE: 'required' } });
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
