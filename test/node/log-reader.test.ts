/**
 * I15 for the log: its reader (journald, the runtime of a container, a pipe) may hang, go, or have no space,
 * and the node serves. What a process prints before it ends arrives whole.
 */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { eventually, runProgram } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { childrenOf } from '../support/instances.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { freePort } from '../support/servers/free-port.js';
import { startOn, UnreadPipe, untilIdle } from '../support/unread-pipe.js';

/** 6 MB: more than the largest pipe or socket holds, and the buffer. */
const LINES = 20_000;
const FILLER = 'a line of the log '.repeat(16);

/** Makes a process log as libraries do that warn, and fail as a bug does. */
const TALKATIVE = `
  process.on('SIGUSR2', () => {
    for (let line = 0; line < ${LINES}; line += 1) process.emitWarning('${FILLER}');
  });
  process.on('SIGURG', () => { throw new Error('a bug'); });
`;

describe('a node whose log is not read', () => {
  let test: TestDatabase;
  let port: number;
  let node: ChildProcess;
  let pipe: UnreadPipe;

  beforeAll(async () => {
    test = await createTestDatabase();
  });
  beforeEach(async () => {
    port = await freePort();
    pipe = new UnreadPipe();
  });
  afterEach(async () => {
    if (node.exitCode === null && node.signalCode === null) {
      const ended = once(node, 'exit');
      node.kill('SIGKILL');
      await ended;
    }
    pipe.close();
  });
  afterAll(() => test.drop());

  const start = async (
    output: Parameters<typeof startOn>[2],
    options: readonly string[] = [],
  ): Promise<void> => {
    const environment = {
      DATABASE_URL: test.url,
      MINATO_DATA_DIR: test.folder,
      MINATO_TOPIC_MODE: 'open',
      MINATO_LOG_LEVEL: 'warn',
      MINATO_PORT: `${port}`,
      NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(TALKATIVE)}`,
    };
    node = startOn(['serve', ...options], environment, output);
    await eventually('the node serves', async () => (await isServing()) || undefined);
  };
  const isServing = () =>
    fetch(`http://127.0.0.1:${port}/readyz`, { signal: AbortSignal.timeout(10_000) }).then(
      ({ status }) => status === 200,
      () => false,
    );

  const expectService = async (): Promise<void> => {
    const signal = AbortSignal.timeout(30_000);
    expect((await fetch(`http://127.0.0.1:${port}/healthz`, { signal })).status).toBe(200);
    const client = await RawClient.connect(`ws://127.0.0.1:${port}`);
    expect(await client.publish(sign(newAuthor(), { content: 'hello' }))).toEqual([true, '']);
    await client.close();
  };

  /** The lines, and how many were dropped between them. */
  const countsIn = (text: string): { read: number; dropped: number } => {
    const lines = text
      .slice(0, text.lastIndexOf('\n') + 1)
      .split('\n')
      .flatMap((line) => (line === '' ? [] : [JSON.parse(line) as { msg: string; dropped?: number }]));
    return {
      read: lines.filter(({ msg }) => msg === FILLER).length,
      dropped: lines.reduce((sum, { dropped = 0 }) => sum + dropped, 0),
    };
  };

  const expectEachLine = async (textOf: () => string, written: number): Promise<void> => {
    await eventually('each line is read, or counted as dropped', () => {
      const { read, dropped } = countsIn(textOf());
      return read + dropped >= written || undefined;
    });
    const { read, dropped } = countsIn(textOf());
    expect(read + dropped).toBe(written);
    expect(dropped).toBeGreaterThan(0);
    expect(read).toBeGreaterThan(1_000);
  };

  it('serves while a pipe is full; what was dropped is counted when it is read again', async () => {
    await start([pipe.writing, 'ignore']);
    node.kill('SIGUSR2');
    await expectService();
    pipe.read();
    await expectEachLine(() => pipe.text, LINES);
  });

  it('serves while a socket, as that of journald, is full, and ends in order', async () => {
    await start(['pipe', pipe.writing]);
    node.kill('SIGUSR2');
    await expectService();
    node.kill('SIGTERM');
    expect(await once(node, 'exit')).toEqual([0, null]);
  });

  it('with several instances, whose log is that of their primary, serves as well', async () => {
    await start([pipe.writing, pipe.writing], ['--instances', '1', '--roles', 'relay,api']);
    const pids = [node.pid!, ...childrenOf(node.pid!)];
    expect(pids).toHaveLength(2);
    for (const pid of pids) process.kill(pid, 'SIGUSR2');
    await expectService();
    pipe.read();
    await eventually('the lines that waited are read, and one about those that were dropped', () => {
      const { read, dropped } = countsIn(pipe.text);
      return (read > 1_000 && dropped > 0) || undefined;
    });
  });

  it('serves while its disk is full, and an error that nobody catches ends it', async () => {
    const full = openSync('/dev/full', 'w');
    pipe.fill();
    await start([full, pipe.writing]);
    closeSync(full);
    node.kill('SIGUSR2');
    await expectService();
    node.kill('SIGURG');
    expect(await once(node, 'exit')).toEqual([1, null]);
  });
});

describe('what a process prints before it ends', () => {
  it.each([
    ['the help of a command', ['serve', '--help'], 'stdout'],
    ['an error of usage', ['topics', 'list', '--nonsense'], 'stderr'],
    ['an error of a command', ['certificate', 'verify', '/nowhere/at-all'], 'stderr'],
    ['the error of a node that cannot start', ['serve'], 'stderr'],
  ] as const)('arrives whole when its reader is slow: %s', async (_what, args, stream) => {
    const env = { PATH: process.env.PATH ?? '', MINATO_PORT: 'none' };
    const expected = await runProgram(args, env);
    expect(expected[stream]).not.toBe('');
    const pipe = new UnreadPipe();
    pipe.fill();
    const output =
      stream === 'stdout' ? ([pipe.writing, 'ignore'] as const) : (['ignore', pipe.writing] as const);
    const child = startOn(args, env, output);
    const ended = once(child, 'exit');
    await untilIdle(child);
    pipe.read();
    expect(await ended).toEqual([expected.code, null]);
    expect(await pipe.whole()).toBe(expected[stream]);
    pipe.close();
  });

  it('does not keep a node that cannot start', async () => {
    const pipe = new UnreadPipe();
    pipe.fill();
    const child = startOn(['serve'], { MINATO_PORT: 'none' }, [pipe.writing, pipe.writing]);
    expect(await once(child, 'exit')).toEqual([1, null]);
    pipe.close();
  });
});
