/**
 * A real haproxy in front of several relays. It asks each for `/readyz` and passes clients to those that
 * answer.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from '../cli.js';
import { environmentOf } from './debian-package.js';
import { freePort } from './free-port.js';
import { findHaproxy } from './programs.js';

const STARTS_MAX = 5;

/** A relay that does not run yet is in the list too: it gets clients as soon as it is ready. */
const configuration = (port: number, relays: readonly number[]) => `
global
  maxconn 1000
defaults
  mode http
  timeout connect 2s
  timeout client 5m
  timeout server 5m
  timeout tunnel 5m
  retries 3
  option redispatch
frontend clients
  bind 127.0.0.1:${port}
  default_backend relays
backend relays
  balance leastconn
  option forwardfor
  option httpchk GET /readyz
  http-check expect status 200
  default-server check inter 200ms fall 1 rise 1 on-marked-down shutdown-sessions
${relays.map((relay, place) => `  server relay${place + 1} 127.0.0.1:${relay}`).join('\n')}
`;

export class LoadBalancer {
  private constructor(
    private readonly child: ChildProcess,
    private readonly folder: string,
    readonly port: number,
  ) {}

  static async start(relays: readonly number[]): Promise<LoadBalancer> {
    const haproxy = await findHaproxy();
    const folder = await mkdtemp(join(tmpdir(), 'minato-haproxy-'));
    const file = join(folder, 'haproxy.cfg');
    // Another program may have taken the port since it was found free.
    for (let starts = 1; ; starts++) {
      const port = await freePort();
      await writeFile(file, configuration(port, relays));
      const child = spawn(haproxy.path, ['-db', '-f', file], {
        env: environmentOf(haproxy),
        stdio: ['ignore', 'ignore', 'pipe'],
      });
      let said = '';
      child.stderr!.on('data', (chunk: Buffer) => (said += String(chunk)));
      const isOpen = await eventually('haproxy listens', async () =>
        child.exitCode !== null ? false : (await accepts(port)) || undefined,
      );
      if (isOpen) return new LoadBalancer(child, folder, port);
      if (starts >= STARTS_MAX) throw new Error(`haproxy ended: ${said}`);
    }
  }

  get url(): string {
    return `ws://127.0.0.1:${this.port}`;
  }

  async stop(): Promise<void> {
    if (this.child.exitCode === null) {
      const ended = once(this.child, 'exit');
      this.child.kill('SIGKILL');
      await ended;
    }
    await rm(this.folder, { recursive: true, force: true });
  }
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    const end = (isOpen: boolean) => {
      socket.destroy();
      resolve(isOpen);
    };
    socket.once('connect', () => end(true)).once('error', () => end(false));
  });
}
