/** A short fuzz run with a fresh seed, as `npm run test:fuzz` runs it; the seed is in the output. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { READY } from '../support/servers/templates.js';
import { minimise } from './minimise.js';
import { readOptions, toReplay } from './options.js';
import { runOne } from './pure/run.js';
import { Broken, must } from './target.js';
import { Expected } from './wire/expected.js';
import { problemOfReply } from './wire/reply-grammar.js';

const MAIN = fileURLToPath(new URL('main.ts', import.meta.url));

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase(READY);
});
afterAll(() => database.drop());

it('a short run with a fresh seed breaks no rule', async () => {
  const args = ['--expose-gc', '--import', 'tsx', MAIN, '--inputs', '2000', '--wire', '300'];
  const child = spawn(process.execPath, args, { env: { ...process.env, DATABASE_URL: database.url } });
  const said: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => said.push(chunk));
  const [code] = (await once(child, 'close')) as [number | null];
  const output = Buffer.concat(said).toString();
  console.log(output);
  expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining('no rule broken') });
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
