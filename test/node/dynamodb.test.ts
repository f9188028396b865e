/**
 * A whole node whose events are in DynamoDB, as an operator runs it: its tables, what it says when something
 * is missing, what `doctor` and `/readyz` find, and its metrics.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Dynamodb } from '../../src/events/dynamodb/client.js';
import { eventually, type RunningCli, runCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { CREDENTIALS, createTables, DynamodbProxy, sharedDynamodb } from '../support/servers/dynamodb.js';
import { freePort } from '../support/servers/free-port.js';
import { copyCluster } from '../support/servers/postgres.js';

let proxy: DynamodbProxy;
beforeAll(async () => {
  const { url } = await sharedDynamodb();
  proxy = await DynamodbProxy.start(url);
});
afterAll(() => proxy?.stop());

const envOf = (prefix: string) => ({
  ...CREDENTIALS,
  MINATO_EVENT_STORE: 'dynamodb',
  DYNAMODB_ENDPOINT: proxy.place().endpoint,
  MINATO_DYNAMODB_PREFIX: prefix,
});

describe('minato serve with MINATO_EVENT_STORE=dynamodb', () => {
  let folder: string;
  let env: Record<string, string>;
  let http: string;
  let node: RunningCli | undefined;
  const prefix = 'served_';
  const names = ['Events', 'EventIndex', 'EventState'].map((name) => `${prefix}${name}`);

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'minato-dynamodb-node-'));
    await copyCluster(folder);
    const port = await freePort();
    http = `http://127.0.0.1:${port}`;
    env = { ...envOf(prefix), MINATO_DATA_DIR: folder, MINATO_PORT: `${port}`, MINATO_LOG_LEVEL: 'warn' };
  });
  afterAll(async () => {
    node?.child.kill('SIGKILL');
    await node?.ended;
    await rm(folder, { recursive: true, force: true });
  });

  const metric = async (line: RegExp): Promise<number> => {
    const found = line.exec(await (await fetch(`${http}/metrics`)).text());
    return Number(found?.[1] ?? Number.NaN);
  };
  const ready = async () => {
    const answer = await fetch(`${http}/readyz`).catch(() => undefined);
    return answer?.status;
  };

  it('without its tables says how to create them, and `minato migrate` does so once', async () => {
    const refused = await startCli(['serve'], env).ended;
    expect(refused.code).toBe(1);
    for (const name of names) expect(refused.stderr).toContain(`the table ${name} does not exist`);
    expect(refused.stderr).toContain('minato migrate');

    const planned = await runCli(['migrate', '--dry-run'], env);
    for (const name of names) expect(planned.stdout).toContain(`would create the table ${name} in`);
    const made = await runCli(['migrate'], env);
    expect(made.code).toBe(0);
    for (const name of names) expect(made.stdout).toContain(`created the table ${name} in`);
    expect((await runCli(['migrate'], env)).stdout).toMatch(/the tables in DynamoDB at [\d.:]+ exist\n$/);
  });

  it('serves what it was sent, and is ready', async () => {
    node = startCli(['serve'], env);
    await eventually('the node is ready', async () => ((await ready()) === 200 ? true : undefined));
    const client = await RawClient.connect(http.replace('http', 'ws'));
    const [author, other] = [newAuthor(), newAuthor()];
    client.send(['REQ', 'live', { authors: [author.pubkey] }]);
    const event = sign(author, { content: 'in DynamoDB', tags: [['t', 'sea']] });
    expect(await client.publish(event)).toEqual([true, '']);
    expect(await client.publish(sign(other))).toEqual([true, '']);
    const found = await client.query({ '#t': ['sea'] });
    expect(found.events.map(({ id }) => id)).toEqual([event.id]);
    await client.waitFor(
      ([verb, sub, got]) => verb === 'EVENT' && sub === 'live' && (got as { id: string }).id === event.id,
    );
    await client.close();
  });

  it('counts capacity units by operation, throttled requests, and how far the stream is behind', async () => {
    expect(await metric(/^minato_dynamodb_units_total\{operation="transact"\} (.+)$/m)).toBeGreaterThan(0);
    expect(await metric(/^minato_dynamodb_units_total\{operation="query"\} (.+)$/m)).toBeGreaterThan(0);
    await eventually('the stream was read', async () => {
      const lag = await metric(/^minato_dynamodb_stream_lag_seconds (.+)$/m);
      return (lag >= 0 && lag < 60) || undefined;
    });
    const throttled = /^minato_dynamodb_throttled_total\{operation="batch-get"\} (.+)$/m;
    expect(await metric(throttled)).toBeNaN();
    proxy.interfere = ({ operation }) =>
      operation === 'BatchGetItem' ? { refuse: 'ThrottlingException' } : undefined;
    const client = await RawClient.connect(http.replace('http', 'ws'));
    expect(await client.publish(sign(newAuthor()))).toEqual([false, 'error: failed to store event']);
    proxy.interfere = () => undefined;
    expect(await metric(throttled)).toBeGreaterThan(0);
    await client.close();
  });

  it('is not ready while its tables do not answer, and recovers', async () => {
    proxy.interfere = ({ operation }) =>
      operation === 'DescribeTable' ? { refuse: 'InternalServerError' } : undefined;
    await eventually('it is not ready', async () => ((await ready()) === 503 ? true : undefined));
    proxy.interfere = () => undefined;
    await eventually('it is ready', async () => ((await ready()) === 200 ? true : undefined));
  });

  it('a command that looks for its events in PostgreSQL is refused', async () => {
    const { code, stderr } = await runCli(['export'], { ...env, MINATO_EVENT_STORE: 'postgres' });
    expect(code).toBe(1);
    expect(stderr).toContain('MINATO_EVENT_STORE is postgres, but the events of this node are in dynamodb');
  });

  it('minato doctor finds its tables and its stream', async () => {
    const { code, stdout } = await runCli(['doctor'], env);
    expect(code, stdout).toBe(0);
    expect(stdout).toMatch(
      /^ok {3}DynamoDB at 127\.0\.0\.1:\d+ has the tables of events, and their stream$/m,
    );
    expect(stdout).toMatch(/^ok {3}the stream of served_Events can be read; it has \d+ shards$/m);
    expect(stdout).not.toContain('TTL');
  });
});

describe('minato doctor', () => {
  let test: TestDatabase;
  beforeAll(async () => {
    test = await createTestDatabase();
  });
  afterAll(() => test?.drop());
  const doctor = async (env: Record<string, string>) =>
    runCli(['doctor'], { DATABASE_URL: test.url, MINATO_PORT: `${await freePort()}`, ...env });

  it('names the tables that are missing', async () => {
    const { code, stdout } = await doctor(envOf('missing_'));
    expect(code).toBe(1);
    expect(stdout).toMatch(/^FAIL events: the table missing_EventState does not exist in DynamoDB at /m);
    expect(stdout).toContain('minato migrate');
  });

  it('names a table without its stream, and tables whose TTL is off', async () => {
    const place = { ...proxy.place(), prefix: 'odd_' };
    await createTables(place);
    const db = new Dynamodb(place);
    const Specification = { AttributeName: 'ttl_at', Enabled: false };
    await db.plain(({ client, plain }) =>
      plain.send(
        new client.UpdateTimeToLiveCommand({
          TableName: 'odd_EventIndex',
          TimeToLiveSpecification: Specification,
        }),
      ),
    );
    const { code, stdout } = await doctor(envOf('odd_'));
    expect(code, stdout).toBe(0);
    expect(stdout).toMatch(/^warn events: TTL by ttl_at is off in odd_EventIndex$/m);
    await db.plain(({ client, plain }) =>
      plain.send(
        new client.UpdateTableCommand({
          TableName: 'odd_Events',
          StreamSpecification: { StreamEnabled: false },
        }),
      ),
    );
    const without = await doctor(envOf('odd_'));
    expect(without.code).toBe(1);
    expect(without.stdout).toMatch(/^FAIL events: the table odd_Events has no stream of NEW_AND_OLD_IMAGES/m);
    await db.close();
  });

  it('names an endpoint that does not answer, and credentials that are missing', async () => {
    const gone = await doctor({ ...envOf('x_'), DYNAMODB_ENDPOINT: 'http://127.0.0.1:1' });
    expect(gone.code).toBe(1);
    expect(gone.stdout).toMatch(/^FAIL events: DynamoDB at 127\.0\.0\.1:1 .*ECONNREFUSED/m);
    const { AWS_ACCESS_KEY_ID: _, AWS_SECRET_ACCESS_KEY: __, ...without } = envOf('x_');
    const nobody = await doctor({ ...without, AWS_EC2_METADATA_DISABLED: 'true' });
    expect(nobody.code).toBe(1);
    expect(nobody.stdout).toMatch(/^FAIL events: .*credentials/im);
  });

  it('says which packages to install where the AWS SDK is missing', async () => {
    const hook = `export async function resolve(name, context, next) {
      if (name.startsWith('@aws-sdk/')) throw new Error('not found');
      return next(name, context);
    }`;
    const url = (text: string) => `data:text/javascript;base64,${Buffer.from(text).toString('base64')}`;
    const register = `import { register } from 'node:module'; register('${url(hook)}');`;
    const { code, stdout } = await doctor({
      ...envOf('x_'),
      NODE_OPTIONS: `--import=${url(register)}`,
    });
    expect(code).toBe(1);
    expect(stdout).toMatch(/^FAIL events: The AWS SDK .*is not installed\. Run: npm install @aws-sdk/m);
  });
});
