/**
 * I15 for the log: its reader (journald, the runtime of a container, a pipe) may hang, go, or have no space,
 * and the node serves. What a command prints arrives whole; a node that cannot start does not wait for it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
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

interface LogLine {
  readonly msg: string;
  readonly instance?: string;
  readonly dropped?: number;
}

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

  /** The lines, also of one instance only, and how many were dropped between them by any. */
  const countsIn = (text: string, of?: string): { read: number; dropped: number } => {
    const lines = text
      .slice(0, text.lastIndexOf('\n') + 1)
      .split('\n')
      .flatMap((line) => (line === '' ? [] : [JSON.parse(line) as LogLine]));
    return {
      read: lines.filter(({ msg, instance }) => msg === FILLER && instance === of).length,
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
    const instances = childrenOf(node.pid!);
    expect(instances).toHaveLength(1);
    process.kill(instances[0]!, 'SIGUSR2');
    await expectService();
    pipe.read();
    await eventually('the lines that waited are read, and one about those that were dropped', () => {
      const { read, dropped } = countsIn(pipe.text, '1');
      return (read > 1_000 && dropped > 0) || undefined;
    });
    expect(countsIn(pipe.text, 'primary').read).toBe(0);
    node.kill('SIGUSR2');
    await eventually('those of the primary are read', () => {
      const { read } = countsIn(pipe.text, 'primary');
      return read > 1_000 || undefined;
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

describe('what a command prints', () => {
  it.each([
    ['the help of a command', ['serve', '--help'], 'stdout'],
    ['an error of usage', ['topics', 'list', '--nonsense'], 'stderr'],
    ['an error of a command', ['certificate', 'verify', '/nowhere/at-all'], 'stderr'],
  ] as const)('arrives whole when its reader is slow: %s', async (_what, args, stream) => {
    const env = { PATH: process.env.PATH ?? '' };
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

  it('waits in memory while a command goes on, if it is the log of a command', async () => {
    const LOG = new URL('../../dist/node/log.js', import.meta.url).href;
    // As in cli/main.ts: an open stderr makes the pipe non-blocking.
    const program = `
      import { createLog } from '${LOG}';
      process.stderr.on('error', () => undefined);
      const log = createLog('warn', 'stderr');
      for (let line = 0; line < 1_000; line += 1) log.warn({ line }, '${FILLER}');
      process.stdout.write('goes on');
    `;
    const pipe = new UnreadPipe();
    pipe.fill();
    const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
      stdio: ['ignore', 'pipe', pipe.writing],
    });
    const ended = once(child, 'exit');
    expect(String(await once(child.stdout!, 'data'))).toBe('goes on');
    pipe.read();
    expect(await ended).toEqual([0, null]);
    const lines = (await pipe.whole()).trimEnd().split('\n');
    expect(lines.map((line) => (JSON.parse(line) as { line: number }).line)).toEqual([
      ...Array(1_000).keys(),
    ]);
    pipe.close();
  });

  it.each([
    ['minato serve', ['serve']],
    ['minato demo --serve', ['demo', '--serve', '/nowhere/at-all']],
  ])('does not keep a node that cannot start: %s', async (_what, args) => {
    const pipe = new UnreadPipe();
    pipe.fill();
    const child = startOn(args, { MINATO_PORT: '0', MINATO_LOG_LEVEL: 'none' }, [pipe.writing, pipe.writing]);
    expect(await once(child, 'exit')).toEqual([1, null]);
    pipe.close();
  });
});
