/** A real Redis of its own for a test file: on a free port of this machine, in memory only. It can go down and come back. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inject } from 'vitest';
import { environmentOf } from './debian-package.js';

const STARTS_MAX = 5;

export class TestRedis {
  private constructor(
    private child: ChildProcess,
    private readonly folder: string,
    readonly port: number,
  ) {}

  static async start(): Promise<TestRedis> {
    const folder = await mkdtemp(join(tmpdir(), 'minato-redis-'));
    // Between the look and the start another program may have taken the port.
    for (let starts = 1; ; starts++) {
      const port = await freePort();
      try {
        return new TestRedis(await spawnServer(folder, port), folder, port);
      } catch (error) {
        if (starts >= STARTS_MAX) throw error;
      }
    }
  }

  /** For REDIS_URL. */
  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** Gone at once, with everything it held. */
  async goDown(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await gone;
  }

  /** On the same port, empty. */
  async comeBack(): Promise<void> {
    this.child = await spawnServer(this.folder, this.port);
  }

  /** It takes connections, but answers nothing until it thaws. */
  freeze(): void {
    this.child.kill('SIGSTOP');
  }
  thaw(): void {
    this.child.kill('SIGCONT');
  }

  async stop(): Promise<void> {
    await this.goDown();
    await rm(this.folder, { recursive: true, force: true });
  }
}

async function spawnServer(folder: string, port: number): Promise<ChildProcess> {
  const redis = inject('redis');
  const args = [
    '--port',
    `${port}`,
    '--bind',
    '127.0.0.1',
    '--save',
    '',
    '--appendonly',
    'no',
    '--dir',
    folder,
  ];
  const child = spawn(redis.path, args, {
    env: environmentOf(redis),
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await new Promise<void>((resolve, reject) => {
    let said = '';
    child.stdout!.on('data', (data: Buffer) => {
      said += data.toString();
      if (said.includes('Ready to accept connections')) resolve();
    });
    child.once('error', reject);
    child.once('exit', () => reject(new Error(`redis-server ended: ${said}`)));
  });
  return child;
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
