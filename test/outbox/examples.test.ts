/** The examples of the docs do what they say, against a running node. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { readCertificate } from '../../src/erasure/certificates/certificates.sql.js';
import type { Erasure } from '../../src/erasure/erasures.sql.js';
import { approveRequest, listRequests } from '../../src/topics/requests.sql.js';
import { eventually, runCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { LineReader } from '../support/clients/stream.js';
import { askFor, jobContext, runErasures, stateOf } from '../support/domains/erasure.js';
import { type Author, type Draft, newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const operator = newAuthor();
let relay: TestNode;

beforeAll(async () => {
  const env = { MINATO_TOPIC_MODE: 'required', MINATO_ADMIN_PUBKEYS: operator.pubkey };
  relay = await startTestNode({ env });
});
afterAll(() => relay.close());

async function run(example: string, ...args: string[]): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, [`docs/examples/${example}`, ...args], { cwd: root });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (data) => {
      output += data;
    });
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  return { code, output };
}

it('first-post.mjs posts and reads it back', async () => {
  const { code, output } = await run('first-post.mjs', relay.url);
  expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining('Hello, harbour!') });
});

it('join-topic.mjs requests a topic, and after the approval posts, reads and leaves', async () => {
  const running = run('join-topic.mjs', 'Old Boats', relay.http);
  const { pool } = relay.database;
  const community = relay.node.communities.all()[0]!.id;
  const waiting = async () => {
    const page = await listRequests(pool, { community, status: 'pending' }, { limit: 10 });
    return isDenial(page) ? undefined : page.items[0];
  };
  const request = await vi.waitUntil(waiting, { timeout: 30_000, interval: 200 });
  await approveRequest(pool, { community, requestId: request.requestId }, { enabledMax: 10 }, Date.now());
  const { code, output } = await running;
  expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining('Hello, Old Boats!') });
  expect(output).toContain('"status": "ended"');
});

it('sign-in.mjs gets a token, uses it, and is refused after it is revoked', async () => {
  const { code, output } = await run('sign-in.mjs', relay.http);
  expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining('"plan_id": "free"') });
  expect(output).toContain('"reason": "revoked"');
});

it('operator-session.mjs signs in, cannot change anything without its token, and signs out', async () => {
  const { code, output } = await run(
    'operator-session.mjs',
    Buffer.from(operator.secret).toString('hex'),
    relay.http,
  );
  expect({ code, output }).toEqual({
    code: 0,
    output: expect.stringContaining('Set-Cookie: minato_session=;'),
  });
  const results = [...output.matchAll(/^→ (\d+)|"code":"(\w+)"/gm)].map(
    ([, status, denied]) => status ?? denied,
  );
  expect(results).toEqual(['201', '200', '403', 'CSRF_REQUIRED', '200', '200', '401', 'INVALID_SESSION']);
});

describe('follow-outbox.ts', () => {
  const NAME = 'example-index';
  const secret = Buffer.from(operator.secret).toString('hex');
  let folder: string;
  let file: string;
  let client: RawClient;
  let said = '';
  let service: ChildProcess;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'minato-follow-'));
    file = join(folder, 'index.json');
    client = await RawClient.connect(relay.url);
    said = '';
  });
  afterEach(async () => {
    await kill();
    await client.close();
    await rm(folder, { recursive: true });
  });

  const post = async (author: Author, draft: Draft) => {
    const event = sign(author, draft);
    expect(await client.publish(event)).toEqual([true, expect.any(String)]);
    return event;
  };
  const note = (author: Author, content: string) => post(author, { content, tags: [['t', 'kukuri:global']] });
  const view = async () => {
    const reader = await LineReader.open(relay.http, '/v1/admin/outbox/view?limit=10000', { as: operator });
    const lines = await reader.all();
    const shown = lines.flatMap(({ op, event_id, author, kind, event }) =>
      op === 'upsert' ? [[event_id, { author, kind, text: event!.content }]] : [],
    );
    return { seq: lines.at(-1)!.pinned, events: Object.fromEntries(shown) };
  };
  const index = () => readFile(file, 'utf8');
  const equalsView = async () => {
    const wanted = await view();
    await eventually('the file equals the view', async () => {
      const text = await index().catch(() => '{"seq":-1}');
      return (JSON.parse(text) as { seq: number }).seq >= Number(wanted.seq) ? true : undefined;
    });
    expect((JSON.parse(await index()) as { events: object }).events).toEqual(wanted.events);
  };
  const start = (): void => {
    const args = ['--import', 'tsx', 'docs/examples/follow-outbox.ts', file, relay.http, NAME];
    service = spawn(process.execPath, args, {
      cwd: root,
      env: { PATH: process.env.PATH, MINATO_SECRET_KEY: secret },
    });
    for (const stream of [service.stdout!, service.stderr!])
      stream.on('data', (data) => {
        said += data;
      });
  };
  async function kill(): Promise<void> {
    if (service.exitCode !== null || service.signalCode !== null) return;
    service.kill('SIGKILL');
    await once(service, 'close');
  }
  const builds = () => said.match(/^built: /gm)?.length ?? 0;

  it('keeps a file that equals the view, through deletions, kills and a rebuild', async () => {
    const author = newAuthor();
    await note(author, 'before it began');
    start();
    await equalsView();
    const lost = await note(author, 'to be deleted');
    await post(author, { kind: 0, content: '{"name":"old"}', created_at: 1_700_000_000 });
    await equalsView();
    await kill();
    // While nobody follows: a deletion, a replacement and a post.
    await post(author, { kind: 5, tags: [['e', lost.id]] });
    await post(author, { kind: 0, content: '{"name":"new"}', created_at: 1_700_000_001 });
    await note(author, 'meanwhile');
    start();
    await equalsView();
    expect(await index()).not.toContain(lost.id);
    expect(builds()).toBe(1);

    await kill();
    const kept = await note(author, 'past the end of the outbox');
    const { pool } = relay.database;
    // The offset after the last one is the first that still exists.
    await pool.query('UPDATE lane_state SET outbox_floor = last_seq + 1');
    start();
    await equalsView();
    expect(await index()).toContain(kept.id);
    await eventually('it has said so', () => (builds() === 2 ? true : undefined));
    await pool.query('UPDATE lane_state SET outbox_floor = 1');
  });

  it('keeps nothing of erased or vanished members: running, killed, or past its limit (I17)', async () => {
    const { pool } = relay.database;
    const cli = {
      DATABASE_URL: relay.test.url,
      MINATO_DATA_DIR: relay.test.folder,
      MINATO_PORT: '0',
      MINATO_ADMIN_PUBKEYS: operator.pubkey,
    };
    const minato = async (...args: string[]): Promise<string> => {
      const { code, stdout, stderr } = await runCli(args, cli);
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      return stdout;
    };
    let people = 0;
    const poster = async () => {
      const person = { ...newAuthor(), text: `said by person ${++people}.` };
      await note(person, person.text);
      await post(person, { kind: 0, content: person.text });
      return person;
    };
    const posters = async (times: number) => {
      const all: Awaited<ReturnType<typeof poster>>[] = [];
      for (let at = 0; at < times; at += 1) all.push(await poster());
      await equalsView();
      for (const { text } of all) expect(await index()).toContain(text);
      return all;
    };
    const erase = ({ pubkey }: Author) => askFor(relay.database, { community: 1, pubkey });
    const ended = (erasure: Erasure) =>
      eventually(
        'the erasure ends',
        async () => {
          await runErasures(jobContext(relay));
          const state = await stateOf(relay.database, erasure);
          return state.stage === 'completed' ? state : undefined;
        },
        60_000,
      );
    const isGone = async ({ text }: { text: string }) => expect(await index()).not.toContain(text);

    await minato('followers', 'register', NAME, '--limit-seconds', '10');
    start();
    // Running: with the end of each erasure it is gone here, too, because the end has waited for it.
    const [first, ...others] = await posters(6);
    expect(await minato('erase', 'member', first!.pubkey, '--yes')).toContain('every store counts 0 now\n');
    await isGone(first!);
    const [asked, vanishing] = [others.slice(0, 3), others.slice(3)];
    for (const person of vanishing) await post(person, { kind: 62, tags: [['relay', 'ALL_RELAYS']] });
    for (const erasure of await Promise.all(asked.map(erase)))
      expect((await ended(erasure)).unacknowledged).toEqual([]);
    for (const person of asked) await isGone(person);
    await eventually('they have vanished', async () => {
      await runErasures(jobContext(relay));
      const { rowCount } = await pool.query(
        `SELECT 1 FROM erasures WHERE cause = 'vanish' AND stage = 'completed' AND unacknowledged = '[]'`,
      );
      return rowCount === vanishing.length ? true : undefined;
    });
    for (const person of vanishing) await isGone(person);
    expect(builds()).toBe(1);

    // Killed before it could read the deletes: the erasure waits until it is back.
    const [late] = await posters(1);
    await minato('followers', 'register', NAME, '--limit-seconds', '600');
    await kill();
    const waiting = await erase(late!);
    await eventually('it waits', async () => {
      await runErasures(jobContext(relay));
      return (await stateOf(relay.database, waiting)).waits[0]?.name === NAME ? true : undefined;
    });
    start();
    expect((await ended(waiting)).unacknowledged).toEqual([]);
    await isGone(late!);
    expect(builds()).toBe(1);

    // Stopped past its limit: the certificate names it, the operator sees it, and it rebuilds when it goes
    // on.
    const [hung] = await posters(1);
    await minato('followers', 'register', NAME, '--limit-seconds', '10');
    service.kill('SIGSTOP');
    const overrun = await ended(await erase(hung!));
    expect(overrun.unacknowledged).toMatchObject([{ name: NAME, limitSeconds: 10 }]);
    const { event } = (await readCertificate(pool, overrun.erasureId))!;
    expect(JSON.parse((JSON.parse(event) as { content: string }).content).unacknowledged).toMatchObject([
      { name: NAME, acknowledged: overrun.unacknowledged[0]!.acknowledgedSeq },
    ]);
    const [listed, doctor] = await Promise.all([minato('followers'), minato('doctor')]);
    for (const text of [listed, doctor])
      expect(text).toMatch(
        /follower example-index of default has acknowledged up to [\d,]+ and must rebuild/,
      );
    expect(await index()).toContain(hung!.text);
    service.kill('SIGCONT');
    await eventually('it has rebuilt', () => (builds() === 2 ? true : undefined));
    await isGone(hung!);
    await equalsView();
    expect(await minato('followers')).not.toContain('must rebuild');
  });
});
