/** A short fuzz run with a fresh seed, as `npm run test:fuzz` runs it; the seed is in the output. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { nowSeconds, sign } from '../support/events.js';
import { seedOf } from '../support/run-seed.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { READY } from '../support/servers/templates.js';
import { AUTHORS } from './make/events.js';
import { minimise } from './minimise.js';
import { readOptions, toReplay } from './options.js';
import { runOne } from './pure/run.js';
import { Broken, must } from './target.js';
import { proofIn, renewed } from './wire/batch.js';
import { Expected } from './wire/expected.js';
import { replayHttp } from './wire/http.js';
import { FuzzedNode } from './wire/node.js';
import { problemOfReply } from './wire/reply-grammar.js';
import { replaySockets } from './wire/sockets.js';

const MAIN = fileURLToPath(new URL('main.ts', import.meta.url));

/** As `npm run test:fuzz` does, with an empty database: what it printed, and its exit code. */
async function fuzz(...options: readonly string[]): Promise<{ code: number | null; output: string }> {
  const database = await createTestDatabase(READY);
  const args = ['--expose-gc', '--import', 'tsx', MAIN, ...options];
  const child = spawn(process.execPath, args, { env: { ...process.env, DATABASE_URL: database.url } });
  const said: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => said.push(chunk));
  const [code] = (await once(child, 'close')) as [number | null];
  await database.drop();
  return { code, output: Buffer.concat(said).toString() };
}

it('a short run with a fresh seed breaks no rule', async ({ task }) => {
  const done = await fuzz('--inputs', '2000', '--wire', '300', '--seed', `${seedOf(task)}`);
  console.log(done.output);
  expect(done).toEqual({ code: 0, output: expect.stringContaining('no rule broken') });
});

describe('a replay', () => {
  const [operator, member] = AUTHORS;
  let database: TestDatabase;
  let node: FuzzedNode;
  beforeAll(async () => {
    database = await createTestDatabase(READY);
    node = await FuzzedNode.start(operator!.pubkey, database.url);
  });
  afterAll(async () => {
    await node.stop();
    await database.drop();
  });

  it('signs a request again, as the operator or whoever signed it', async () => {
    const asked = { method: 'GET', path: '/v1/admin/settings', headers: {}, operation: null };
    const signed = { author: 0, content: 'x' };
    const statusOf = (by: object) => replayHttp(node, JSON.stringify({ ...asked, signed: by }));
    expect(await statusOf(signed)).toBe(200);
    expect(await statusOf({ ...signed, author: 1 })).toBe(403);
    expect(await statusOf({ ...signed, wrong: ['sig', '00'] })).toBe(401);
  });

  it('sends the frames of a batch on one connection, where a proof of a key holds', async () => {
    const [relay, challenge, at] = ['ws://127.0.0.1:1', 'of-another-connection', 1_700_000_000];
    const tags = [
      ['relay', relay],
      ['challenge', challenge],
    ];
    const proof = sign(member!, { kind: 22_242, created_at: at, tags });
    const guarded = sign(member!, { tags: [['-']] });
    const frames = [JSON.stringify(['AUTH', proof]), JSON.stringify(['EVENT', guarded])];
    const replies: unknown[] = [];
    await replaySockets(node, JSON.stringify({ relay, challenge, at, frames }), (reply) =>
      replies.push(JSON.parse(reply)),
    );
    expect(replies).toContainEqual(['OK', guarded.id, true, expect.any(String)]);
  });

  it('leaves a proof that is wrong as it is, and moves the others to its own connection', () => {
    const batch = { relay: 'ws://old:1', challenge: 'old-challenge', at: nowSeconds() };
    const proof = (more: object, ofRelay = batch.relay) => {
      const tags = [
        ['relay', ofRelay],
        ['challenge', batch.challenge],
      ];
      return JSON.stringify(['AUTH', { ...sign(operator!, { kind: 22_242, tags, content: '' }), ...more }]);
    };
    const frames = [proof({}), proof({}, 'ws://elsewhere'), proof({ sig: '00'.repeat(64) }), 'a\nb'];
    const moved = renewed({ ...batch, frames }, 'ws://new:2', 'new-challenge');
    expect(moved.map((frame) => proofIn(frame)?.tags)).toEqual([
      [
        ['relay', 'ws://new:2'],
        ['challenge', 'new-challenge'],
      ],
      [
        ['relay', 'ws://elsewhere'],
        ['challenge', 'new-challenge'],
      ],
      undefined,
      undefined,
    ]);
    expect(moved[3]).toBe('a\nb');
  });
});

describe('the run itself', () => {
  const target = {
    name: 'example',
    corpus: [],
    make: () => '',
    run: (input: string) => must(!input.includes('bad'), 'nothing bad'),
  };

  it('finds a broken rule, and shortens its input', async () => {
    await runOne(target, 'good');
    await expect(runOne(target, 'some bad input')).rejects.toEqual(
      new Broken('example', 'bad', 'nothing bad'),
    );
    expect(await minimise('aXbXc', async (text) => text.split('X').length > 2)).toBe('XX');
  });

  it('prints an input that can be replayed, whatever it is', () => {
    const input = 'a:\ud800\u0000é';
    expect(readOptions(['--replay', toReplay('frames', input)]).replay).toEqual({ target: 'frames', input });
    expect(() => readOptions(['--inputs', 'x'])).toThrow('whole number');
  });

  it.each([
    ['["OK","id",false,"no prefix"]'],
    ['["OK","id",true]'],
    ['["EOSE"]'],
    ['["EVENT","s",{"id":1}]'],
    ['["COUNT","s",{"count":-1}]'],
    ['["CLOSED","s",""]'],
    ['["SING"]'],
    ['{}'],
    ['x'],
  ])('knows that a relay must not send %s', (text) => {
    expect(problemOfReply(text)).toBeDefined();
  });

  it('knows a missing OK, and one too many', () => {
    const frame = JSON.stringify(['EVENT', { id: 'x' }]);
    const missing = new Expected();
    missing.sent(frame);
    expect(() => missing.check()).toThrow('without its OK');
    missing.received(['OK', 'x', true, '']);
    missing.check();
    missing.received(['OK', 'x', true, '']);
    expect(() => missing.check()).toThrow('too many');
  });
});
