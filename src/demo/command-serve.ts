/**
 * The node of `minato demo --serve`: in a folder and at a port of its own, on the embedded PostgreSQL. The
 * variables of another node, such as DATABASE_URL, are ignored, so that its data is never touched.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { Command } from 'commander';

export const FOLDER = './demo-data';
const PORT = 7_448;
const HOST = '127.0.0.1';

/** Of other stores and addresses. */
const OF_OTHERS = ['DATABASE_URL', 'REDIS_URL', 'DYNAMODB_ENDPOINT', 'MINATO_PUBLIC_URL', 'MINATO_HOST'];

export async function prepareOwnNode(folder: string): Promise<void> {
  for (const name of OF_OTHERS) delete process.env[name];
  const port = (await openPort(PORT)) ?? (await openPort(0));
  process.env.MINATO_DATA_DIR = folder;
  process.env.MINATO_PORT = String(port);
  // Any client can use it.
  process.env.MINATO_TOPIC_MODE = 'default';
}

/** The port if it is free; with 0 any free port. */
async function openPort(wanted: number): Promise<number | undefined> {
  const server = createServer().listen(wanted, HOST);
  try {
    await once(server, 'listening');
  } catch {
    return undefined;
  }
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Runs until a signal. */
export async function serveOwnNode(): Promise<void> {
  const { serveCommand } = await import('../cli/serve.js');
  const program = new Command().addCommand(serveCommand());
  await program.parseAsync(['serve'], { from: 'user' });
}
