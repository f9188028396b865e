import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * Below the ports that systems give to outgoing connections: such a connection could take a port while its
 * server is restarted, and keep it.
 */
const [PORT_MIN, PORT_MAX] = [10_000, 32_000];
const TRIES_MAX = 100;

/** A port for a server that is started later, or again and again. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const port = randomInt(PORT_MIN, PORT_MAX);
    if (await isFree(port)) return port;
  }
  throw new Error(`no free port after ${TRIES_MAX} tries`);
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer().listen(port, '127.0.0.1');
  try {
    await once(server, 'listening');
  } catch {
    return false;
  }
  server.close();
  await once(server, 'close');
  return true;
}
