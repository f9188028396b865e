/** The node that is fuzzed: the real program in a process of its own, its heap and its errors in sight. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { eventually } from '../../support/cli.js';
import { freePort } from '../../support/servers/free-port.js';

const PROGRAM = fileURLToPath(new URL('../../../bin/minato.js', import.meta.url));
const WATCH = new URL('watch.mjs', import.meta.url).href;

export class FuzzedNode {
  /** The log, its newest lines. */
  private readonly lines: string[] = [];
  private readonly lost: string[] = [];
  private heap: ((bytes: number) => void) | undefined;

  private constructor(
    private readonly child: ChildProcess,
    private readonly folder: string,
    readonly port: number,
    /** For commands beside it. */
    readonly env: Readonly<Record<string, string>>,
  ) {
    const onLine = (chunk: Buffer) => {
      this.lines.push(...chunk.toString().split('\n').filter(Boolean));
      this.lines.splice(0, this.lines.length - 200);
    };
    child.stdout!.on('data', onLine);
    child.stderr!.on('data', onLine);
    child.on('message', (message: { heapBytes?: number; lost?: string }) => {
      if (message.heapBytes !== undefined) this.heap?.(message.heapBytes);
      if (message.lost !== undefined) this.lost.push(message.lost);
    });
  }

  get http(): string {
    return `http://127.0.0.1:${this.port}`;
  }
  get url(): string {
    return `ws://127.0.0.1:${this.port}`;
  }

  /** With this database, or that of the environment, or a PostgreSQL of its own. */
  static async start(operator: string, url = process.env.DATABASE_URL): Promise<FuzzedNode> {
    const folder = await mkdtemp(join(tmpdir(), 'minato-fuzz-'));
    const port = await freePort();
    const { PATH = '' } = process.env;
    const env = {
      PATH,
      MINATO_DATA_DIR: folder,
      MINATO_PORT: String(port),
      MINATO_TOPIC_MODE: 'open',
      MINATO_LOG_LEVEL: 'warn',
      MINATO_ADMIN_PUBKEYS: operator,
      ...(url === undefined ? {} : { DATABASE_URL: url }),
    };
    const child = fork(PROGRAM, ['serve'], {
      execArgv: ['--import', WATCH],
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      env,
    });
    const node = new FuzzedNode(child, folder, port, env);
    await eventually('the node is ready', async () => {
      node.check();
      const response = await fetch(`${node.http}/readyz`).catch(() => undefined);
      return response?.ok ? true : undefined;
    }).catch(async (error: unknown) => {
      await node.stop();
      throw error;
    });
    return node;
  }

  /** Throws if the node has ended, or has lost a rejection, or has logged an error of its own. */
  check(): void {
    const { exitCode, signalCode } = this.child;
    if (exitCode !== null || signalCode !== null)
      throw new Error(`the node has ended (${exitCode ?? signalCode}):\n${this.lines.slice(-20).join('\n')}`);
    if (this.lost.length > 0) throw new Error(`an unhandled rejection: ${this.lost[0]}`);
    const error = this.lines.find((line) => line.startsWith('{"level":"error"'));
    if (error !== undefined)
      throw new Error(`an error in the log: ${error}\n${this.lines.slice(-10).join('\n')}`);
  }

  /** After a forced collection. */
  async heapBytes(): Promise<number> {
    this.check();
    const answer = new Promise<number>((resolve) => {
      this.heap = resolve;
    });
    this.child.send('heap');
    return Promise.race([answer, once(this.child, 'exit').then(() => this.check() as unknown as number)]);
  }

  /** The value of a metric, or of the sum of its labels. */
  async metric(name: string): Promise<number> {
    const text = await (await fetch(`${this.http}/metrics`)).text();
    const lines = text.split('\n').filter((line) => new RegExp(`^${name}(\\{.*\\})? `).test(line));
    return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
  }

  async stop(): Promise<void> {
    const ended =
      this.child.exitCode === null && this.child.signalCode === null ? once(this.child, 'exit') : [];
    this.child.kill('SIGTERM');
    await ended;
    await rm(this.folder, { recursive: true, force: true });
  }
}
