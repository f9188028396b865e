/** A separate, real Redis for a test file: on a free port, in memory only. It can stop and start again. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inject } from 'vitest';
import { environmentOf } from './debian-package.js';
import { freePort } from './free-port.js';
import { ServerProcess } from './server-process.js';

const STARTS_MAX = 5;

/** Its data is lost when it goes down. */
export class TestRedis extends ServerProcess {
  static async start(): Promise<TestRedis> {
    const folder = await mkdtemp(join(tmpdir(), 'minato-redis-'));
    // Another program may have taken the port since it was found free.
    for (let starts = 1; ; starts++) {
      const port = await freePort();
      try {
        return new TestRedis(await spawnServer(folder, port), folder, port, spawnServer);
      } catch (error) {
        if (starts >= STARTS_MAX) throw error;
      }
    }
  }

  /** For REDIS_URL. */
  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
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
