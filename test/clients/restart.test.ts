/**
 * The real program with its own PostgreSQL is stopped and started again, and client libraries come back. Its
 * clients have little time: snort tries once, four seconds after it was cut off, and NDK once, after one. So
 * sockets are cut while PostgreSQL still runs, and the port is open before PostgreSQL is.
 */
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import WebSocket from 'ws';
import { isAlive } from '../../src/postgres/data-lock.js';
import { runningEmbedded } from '../../src/postgres/embedded.js';
import { eventually, type RunningCli, runCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { freePort } from '../support/servers/free-port.js';
import { copyCluster } from '../support/servers/postgres.js';
import { LIBRARIES, type Library, type LibraryClient, NDK_WITHOUT_POLICY } from './libraries.js';

vi.mock('isomorphic-ws', async () => ({ default: (await import('./libraries.js')).BrowserSocket }));

/** snort tries again four seconds after it was cut off; a part of that is left for its own work. */
const SNORT_RETRY_MS = 3_500;
const WAIT = { timeout: 60_000, interval: 100 };
const readers = [
  ...LIBRARIES.filter(({ name }) => ['NDK', 'snort', 'applesauce'].includes(name)),
  NDK_WITHOUT_POLICY,
];
const author = newAuthor();

let parent: string;
let env: Record<string, string>;
let url: string;
let node: Serving;

interface Serving extends RunningCli {
  /** Everything it has logged so far. */
  said(): string;
}

function start(): Serving {
  const cli = startCli(['serve'], env);
  let said = '';
  cli.child.stdout!.on('data', (chunk) => {
    said += chunk;
  });
  return { ...cli, said: () => said };
}

const isReady = ({ said, child }: Serving) =>
  eventually('the node is ready', () => {
    if (child.exitCode !== null) throw new Error(`the node ended: ${said()}`);
    return said().includes('"msg":"ready"') ? true : undefined;
  });

const postmaster = async () =>
  Number((await readFile(join(parent, 'data', 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0]);

beforeAll(async () => {
  parent = await mkdtemp(join(tmpdir(), 'minato-restart-'));
  await chmod(parent, 0o755);
  const port = await freePort();
  url = `ws://127.0.0.1:${port}`;
  env = {
    MINATO_DATA_DIR: join(parent, 'data'),
    MINATO_PORT: `${port}`,
    MINATO_TOPIC_MODE: 'required',
    MINATO_LOG_LEVEL: 'info',
  };
  await copyCluster(env.MINATO_DATA_DIR!);
  node = start();
  await isReady(node);
});
afterAll(async () => {
  const server = await postmaster().catch(() => undefined);
  if (server !== undefined && (await isAlive(server))) process.kill(server, 'SIGCONT');
  if (node.child.exitCode === null) node.child.kill('SIGTERM');
  await node.ended;
  await rm(parent, { recursive: true, force: true });
});

it('the log of a start says how to let any client in, and that command does', async () => {
  const advice = /to accept any Nostr client: minato (.*) \(or open, for a plain relay\)/;
  const command = await eventually('the log says how', () => advice.exec(node.said())?.[1]);
  expect(command).toBe('settings set topic.mode default');
  const client = await RawClient.connect(url);
  expect(await client.publish(sign(author))).toEqual([
    false,
    expect.stringMatching(/^invalid: missing topic/),
  ]);
  expect((await runCli(command.split(' '), env)).code).toBe(0);
  await expect.poll(async () => (await client.publish(sign(author)))[0], WAIT).toBe(true);
  await client.close();
});

it('clients come back after SIGTERM and a start, and get new events', async () => {
  const clients = new Map<Library, LibraryClient>();
  const seen = new Map<Library, Set<string>>(readers.map((library) => [library, new Set()]));
  for (const library of readers) {
    const client = await library.open(url, author);
    client.subscribe!({ kinds: [1], authors: [author.pubkey] }, (id) => seen.get(library)!.add(id));
    clients.set(library, client);
  }
  const raw = await RawClient.connect(url);
  const early = sign(author, { content: 'before' });
  expect(await raw.publish(early)).toEqual([true, '']);
  const missing = (id: string) => readers.filter((each) => !seen.get(each)!.has(id)).map(({ name }) => name);
  await expect.poll(() => missing(early.id), WAIT).toEqual([]);
  // A young database has written little of itself to disk; stopping it writes the rest.
  await checkpoint();

  // PostgreSQL cannot stop while its first process is halted.
  const server = await postmaster();
  process.kill(server, 'SIGSTOP');
  node.child.kill('SIGTERM');
  await raw.until(() => raw.closed !== undefined, WAIT.timeout);
  const cutAt = performance.now();
  expect(node.child.exitCode).toBeNull();
  process.kill(server, 'SIGCONT');
  expect((await node.ended).code).toBe(0);

  node = start();
  await eventually('the port is open', isPortOpen);
  const wasInTime = performance.now() - cutAt < SNORT_RETRY_MS;
  await isReady(node);
  expect(node.said()).not.toContain('to accept any Nostr client');
  const late = sign(author, { content: 'after' });
  const writer = await RawClient.connect(url);
  expect(await writer.publish(late)).toEqual([true, '']);
  await writer.close();
  const asked = { kinds: [1], authors: [author.pubkey], limit: 9 };
  const isBack = async (library: Library): Promise<boolean> => {
    if (seen.get(library)!.has(late.id)) return true;
    const client = clients.get(library)!;
    // NDK's one try may have been refused on a busy machine. It has no back-off: nothing but its next post
    // brings it back then.
    if (library.name.startsWith('NDK')) await client.publish!(late).catch(() => undefined);
    return (await client.fetch(asked).catch((): string[] => [])).includes(late.id);
  };
  // On a very busy machine the one try of snort comes too early, and it never tries again.
  const returning = readers.filter(({ name }) => name !== 'snort' || wasInTime);
  for (const library of returning)
    await expect.poll(() => isBack(library), { ...WAIT, message: library.name }).toBe(true);
  for (const client of clients.values()) await client.close();
});

it('a client that connects before PostgreSQL runs is held, and served then', async () => {
  // The new node waits for the server of the node that was killed, which is halted.
  const server = await postmaster();
  process.kill(server, 'SIGSTOP');
  node.child.kill('SIGKILL');
  await node.ended;
  node = start();
  const waiting = await eventually('the port is open', async () => {
    const ws = new WebSocket(url);
    ws.on('error', () => undefined);
    const accepted = await Promise.race([
      once(ws, 'error').then(() => false),
      eventually('it waits for the server', () =>
        node.said().includes('PostgreSQL of an earlier run') ? true : undefined,
      ),
    ]).catch(() => false);
    return accepted ? ws : undefined;
  });
  expect(waiting.readyState).toBe(WebSocket.CONNECTING);
  expect(node.said()).not.toContain('"msg":"ready"');
  process.kill(server, 'SIGCONT');
  await once(waiting, 'open');
  waiting.send('["REQ","a",{"kinds":[1],"limit":0}]');
  expect(String((await once(waiting, 'message'))[0])).toBe('["EOSE","a"]');
  waiting.terminate();
  await isReady(node);
});

async function isPortOpen(): Promise<true | undefined> {
  const socket = connect(Number(env.MINATO_PORT), '127.0.0.1');
  const isOpen = await once(socket, 'connect').then(
    () => true as const,
    () => undefined,
  );
  socket.destroy();
  return isOpen;
}

async function checkpoint(): Promise<void> {
  const client = new pg.Client(await runningEmbedded(join(parent, 'data')));
  await client.connect();
  await client.query('CHECKPOINT');
  await client.end();
}
