/**
 * A network that has only loopback, for programs that would otherwise reach for the internet (iroh contacts
 * public servers). For root it is a network namespace of its own: no packet can leave it. Otherwise it is the
 * loopback of this machine. Tests outside reach TCP ports inside through sockets in a folder.
 */
import { type ChildProcess, execFileSync, type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from '../cli.js';
import { freePort } from './free-port.js';

/** Passes each connection to a socket of the folder on to the TCP port of the same name. */
const BRIDGE = `
const net = require('node:net'), path = require('node:path');
process.on('message', (port) => net.createServer((outer) => {
  const inner = net.connect(port, '127.0.0.1');
  outer.on('error', () => inner.destroy()).on('close', () => inner.destroy());
  inner.on('error', () => outer.destroy()).on('close', () => outer.destroy());
  outer.pipe(inner).pipe(outer);
}).listen(path.join(process.argv[1], String(port)), () => process.send(port)));
process.on('disconnect', () => process.exit(0));
process.send('ready');`;

export interface Loopback {
  /** It is a namespace of its own. */
  readonly isApart: boolean;
  /** Runs Node.js inside. */
  spawn(args: readonly string[], options: SpawnOptions): ChildProcess;
  /** A TCP port inside that is free, and its websocket address for this process. */
  port(): Promise<{ readonly port: number; readonly url: string }>;
  close(): Promise<void>;
}

const FIRST_PORT = 7_100;
const LOOPBACK_UP = 'ip link set lo up && exec "$0" "$@"';

export async function openLoopback(): Promise<Loopback> {
  return canIsolate() ? openNamespace() : openShared();
}

export function canIsolate(): boolean {
  if (process.getuid?.() !== 0) return false;
  try {
    execFileSync('unshare', ['-n', 'sh', '-c', 'ip link set lo up && nsenter --version'], {
      stdio: 'ignore',
    });
    return true;
  } catch {
    return false;
  }
}

async function openShared(): Promise<Loopback> {
  return {
    isApart: false,
    spawn: (args, options) => spawn(process.execPath, args, options),
    port: async () => {
      const port = await freePort();
      return { port, url: `ws://127.0.0.1:${port}` };
    },
    close: async () => undefined,
  };
}

/** Runs Node.js in a namespace of its own, with loopback only: what it starts is in there too. */
export function spawnApart(args: readonly string[], options: SpawnOptions): ChildProcess {
  return spawn('unshare', ['-n', 'sh', '-c', LOOPBACK_UP, process.execPath, ...args], options);
}

async function openNamespace(): Promise<Loopback> {
  const folder = await mkdtemp(join(tmpdir(), 'minato-net-'));
  const bridge = spawnApart(['-e', BRIDGE, folder], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  await once(bridge, 'message');
  const namespace = `--net=/proc/${bridge.pid}/ns/net`;
  let next = FIRST_PORT;
  return {
    isApart: true,
    spawn: (args, options) => spawn('nsenter', [namespace, process.execPath, ...args], options),
    port: async () => {
      const port = next++;
      const isOpen = once(bridge, 'message');
      bridge.send(port);
      await isOpen;
      return { port, url: `ws+unix://${join(folder, String(port))}:/` };
    },
    close: async () => {
      bridge.disconnect();
      await eventually('the network has ended', () => bridge.exitCode ?? undefined);
      await rm(folder, { recursive: true, force: true });
    },
  };
}
