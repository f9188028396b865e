/**
 * I15: a peer that hangs (SIGSTOP, so that it accepts connections and answers nothing) never hangs the node.
 * Every interface answers, parts that do not need the peer continue, and everything works once the peer runs
 * again.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Erasure } from '../../src/erasure/erasures.sql.js';
import { readJobRuns } from '../../src/jobs/job-runs.sql.js';
import { eventually, type RunningCli, startCli } from '../support/cli.js';
import { type Api, createApi, type Refused } from '../support/clients/api.js';
import { RawClient } from '../support/clients/client.js';
import { askFor, jobContext, runErasures, stateOf } from '../support/domains/erasure.js';
import { type Author, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { CREDENTIALS, TestDynamodb } from '../support/servers/dynamodb.js';
import { TestPostgres } from '../support/servers/postgres.js';
import { TestRedis } from '../support/servers/redis.js';

const SESSION = '/v1/admin/session';
const MEMBERS = '/v1/admin/members';
const AUDIT_LOG = '/v1/admin/audit-log';
/** Longer than any time-out of the node: a test that waits this long has found a hang. */
const HANGS_MS = 100_000;
const boss = newAuthor();

let redis: TestRedis;
let dynamodb: TestDynamodb;
let postgres: TestPostgres;
let relay: TestNode;
let api: Api;
let env: Record<string, string>;

beforeAll(async () => {
  [redis, dynamodb, postgres] = await Promise.all([
    TestRedis.start(),
    TestDynamodb.start(),
    TestPostgres.start(),
  ]);
  env = {
    REDIS_URL: redis.url,
    DYNAMODB_ENDPOINT: dynamodb.url,
    MINATO_ADMIN_PUBKEYS: boss.pubkey,
    MINATO_LOG_LEVEL: 'silent',
  };
  relay = await startTestNode({ env, on: postgres.database });
  api = createApi(relay.http);
});
afterAll(async () => {
  redis?.thaw();
  dynamodb?.thaw();
  postgres?.thaw();
  await relay?.close();
  await Promise.all([redis?.stop(), dynamodb?.stop(), postgres?.stop()]);
});

async function whileFrozen(peer: { freeze(): void; thaw(): void }, work: () => Promise<void>): Promise<void> {
  peer.freeze();
  try {
    await work();
  } finally {
    peer.thaw();
  }
}

const post = (author: Author = newAuthor()) => sign(author, { kind: 1, content: 'hello' });

/** Expects 503 in the format of every refusal, with Retry-After. */
async function expectUnavailable(method: string, path: string, asking: Parameters<Api['ask']>[2]) {
  const { status, body, headers } = await api.ask<Refused>(method, path, asking);
  expect({ status, code: body.code }, `${method} ${path}`).toEqual({ status: 503, code: 'UNAVAILABLE' });
  expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
}

const signIn = async () => {
  const answer = await api.ask('POST', SESSION, { as: boss });
  return { answer, cookie: answer.headers.get('set-cookie')?.split(';')[0] ?? '' };
};

/** Expects that a client can post, read and count. */
async function expectServed(): Promise<void> {
  const client = await RawClient.connect(relay.url);
  const event = post();
  expect(await client.publish(event)).toEqual([true, '']);
  expect((await client.query({ ids: [event.id] })).events).toEqual([event]);
  await client.close();
}

describe('a Redis that hangs', () => {
  it('makes signed requests and sessions unavailable, and nothing else', { timeout: HANGS_MS }, async () => {
    const { cookie } = await signIn();
    expect(cookie).not.toBe('');
    await whileFrozen(redis, async () => {
      await expectUnavailable('GET', MEMBERS, { as: boss });
      await expectUnavailable('GET', SESSION, { headers: { cookie } });
      await expectServed();
      expect((await fetch(`${relay.http}/readyz`)).status).toBe(200);
    });
    await eventually('signed requests work again', async () =>
      (await api.ask('GET', MEMBERS, { as: boss })).status === 200 ? true : undefined,
    );
    expect((await api.ask('GET', SESSION, { headers: { cookie } })).status).toBe(200);
    expect((await signIn()).answer.status).toBe(201);
  });

  it('does not keep a node from starting and stopping', { timeout: HANGS_MS }, () =>
    whileFrozen(redis, async () => {
      const other = await startTestNode({ env, on: postgres.database, roles: ['relay', 'api'] });
      expect((await fetch(`${other.http}/readyz`)).status).toBe(200);
      await other.close();
    }),
  );
});

describe('a store that hangs during an erasure', () => {
  const erased = async (frozen: { freeze(): void; thaw(): void }, hung: readonly string[]): Promise<void> => {
    const author = newAuthor();
    const client = await RawClient.connect(relay.url);
    expect(await client.publish(post(author))).toEqual([true, '']);
    const context = jobContext(relay);
    const erasure = await askFor(relay.database, { community: 1, pubkey: author.pubkey });
    await whileFrozen(frozen, async () => {
      await runErasures(context);
      const { stage, done, deleted, failures } = await stateOf(relay.database, erasure);
      expect(stage).toBe('deleting');
      expect(Object.keys(failures).sort()).toEqual(hung);
      for (const words of Object.values(failures)) expect(words).toMatch(/did not answer/);
      // The other stores are done, including external ones.
      const others = ['redis:sessions', 'dynamodb:audit_logs'].filter((name) => !hung.includes(name));
      const { counted } = await stateOf(relay.database, erasure);
      for (const name of others) expect([...done, ...Object.keys(counted)]).toContain(name);
      expect(deleted['postgres:events']).toBe(1);
      expect((await client.query({ authors: [author.pubkey] })).events).toEqual([]);
    });
    await eventually('it completes', async () => {
      await runErasures(context);
      return (await stateOf(relay.database, erasure)).stage === 'completed' ? true : undefined;
    });
    await client.close();
  };

  it('DynamoDB: the others are erased, and it is named', { timeout: HANGS_MS }, () =>
    erased(dynamodb, ['dynamodb:audit_logs']),
  );

  it('Redis: the others are erased, and it is named', { timeout: HANGS_MS }, () =>
    erased(redis, ['redis:rate_limits', 'redis:sessions']),
  );

  // Waiting once per erasure and step would exceed the test's time-out.
  it('is waited for once, and not once for each erasure', { timeout: HANGS_MS }, async () => {
    const people = Array.from({ length: 6 }, newAuthor);
    const requested: Erasure[] = [];
    for (const { pubkey } of people) requested.push(await askFor(relay.database, { community: 1, pubkey }));
    const context = jobContext(relay);
    await whileFrozen(dynamodb, async () => {
      await runErasures(context);
      for (const erasure of requested) {
        const { failures } = await stateOf(relay.database, erasure);
        expect(Object.keys(failures)).toEqual(['dynamodb:audit_logs']);
      }
    });
    await eventually('they complete', async () => {
      await runErasures(context);
      const stages = await Promise.all(
        requested.map(async (one) => (await stateOf(relay.database, one)).stage),
      );
      return stages.every((stage) => stage === 'completed') ? true : undefined;
    });
  });
});

describe('a DynamoDB that hangs', () => {
  it('makes the audit log unavailable, and nothing else', { timeout: HANGS_MS }, async () => {
    await whileFrozen(dynamodb, async () => {
      await expectUnavailable('GET', AUDIT_LOG, { as: boss });
      expect((await api.ask('GET', MEMBERS, { as: boss })).status).toBe(200);
      await expectServed();
    });
    await eventually('the audit log is read again', async () =>
      (await api.ask('GET', AUDIT_LOG, { as: boss })).status === 200 ? true : undefined,
    );
  });
});

describe('a PostgreSQL that hangs', () => {
  let other: RunningCli;
  let log = '';

  beforeAll(async () => {
    const { url, folder } = postgres.database;
    other = startCli(['serve'], {
      ...CREDENTIALS,
      ...env,
      DATABASE_URL: url,
      MINATO_DATA_DIR: folder,
      MINATO_PORT: '0',
      MINATO_LOG_LEVEL: 'debug',
    });
    for (const stream of [other.child.stdout, other.child.stderr])
      stream?.on('data', (chunk: Buffer) => {
        log += chunk;
      });
    const port = await eventually(
      'it is ready',
      () => {
        if (other.child.exitCode !== null) throw new Error(`it ended: ${log}`);
        return /"address":"ws:\/\/127\.0\.0\.1:(\d+)"/.exec(log)?.[1];
      },
      HANGS_MS,
    );
    // The first request loads the AWS SDK, which prints a warning about the Node.js version.
    const { status } = await createApi(`http://127.0.0.1:${port}`).ask('GET', AUDIT_LOG, { as: boss });
    expect(status).toBe(200);
  });
  afterAll(() => other?.child.kill('SIGKILL'));

  it('makes every interface report it, stops in order, and is used again once it runs', {
    timeout: 2 * HANGS_MS,
  }, async () => {
    const [client, reader, many] = await Promise.all(
      Array.from({ length: 3 }, () => RawClient.connect(relay.url)),
    );
    const before = post();
    expect(await client!.publish(before)).toEqual([true, '']);
    const event = post();
    await whileFrozen(postgres, async () => {
      const answer = (one: RawClient, verb: string) =>
        one.waitFor((frame) => frame[0] === verb, 0, HANGS_MS).then((frame) => frame.slice(1));
      const from = client!.frames.length;
      client!.send(['EVENT', event]);
      reader!.send(['REQ', 'r', { kinds: [1], limit: 10 }]);
      // More than run at once: the last does not wait for all the others.
      for (let at = 0; at < 60; at += 1) many!.send(['REQ', `m${at}`, { kinds: [1], since: at }]);
      other.child.kill('SIGTERM');
      await Promise.all([
        client!
          .waitFor((frame) => frame[0] === 'OK', from, HANGS_MS)
          .then((frame) => expect(frame).toEqual(['OK', event.id, false, expect.stringMatching(/^error: /)])),
        answer(reader!, 'CLOSED').then((frame) =>
          expect(frame).toEqual(['r', expect.stringMatching(/^error: /)]),
        ),
        many!.until(() => many!.frames.filter(([verb]) => verb === 'CLOSED').length === 60, HANGS_MS),
        expectUnavailable('GET', MEMBERS, { as: boss }),
        fetch(`${relay.http}/healthz`).then(({ status }) => expect(status).toBe(200)),
        fetch(`${relay.http}/readyz`).then(({ status }) => expect(status).toBe(503)),
        fetch(`${relay.http}/`).then(({ status }) => expect(status).toBe(503)),
        other.ended.then(({ code }) => expect(code).toBe(0)),
      ]);
    });
    const thawedAt = Date.now();
    await eventually('it is ready again', async () =>
      (await fetch(`${relay.http}/readyz`)).status === 200 ? true : undefined,
    );
    // Whatever happened meanwhile, the event is stored now, once.
    const again = await eventually('the event is stored', async () => {
      const [accepted, why] = await client!.publish(event);
      return accepted ? why : undefined;
    });
    expect(again).toMatch(/^(duplicate: .*)?$/);
    expect((await reader!.query({ ids: [before.id, event.id] })).events.length).toBe(2);
    expect((await api.ask('GET', MEMBERS, { as: boss })).status).toBe(200);
    await expectServed();
    await eventually('the jobs run again', async () => {
      await relay.node.schedule!.trigger('trim-bus').catch(() => undefined);
      const runs = await readJobRuns(relay.database.pool);
      return runs.some(({ job, finishedAt }) => job === 'trim-bus' && (finishedAt ?? 0) > thawedAt)
        ? true
        : undefined;
    });
    for (const one of [client!, reader!, many!]) await one.close();
  });

  it('leaves a log in which every line is JSON', () => {
    const lines = log.trim().split('\n');
    expect(lines.length).toBeGreaterThan(1);
    for (const line of lines) expect(JSON.parse(line), line).toMatchObject({ level: expect.any(String) });
    expect(log).toContain('"msg":"stopped"');
  });
});
