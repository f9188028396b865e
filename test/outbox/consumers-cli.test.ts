/** `minato consumers` and the lines of `minato doctor` about consumers, beside a running node. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { listAudit } from '../../src/audit/audit.sql.js';
import { openDatabase } from '../../src/postgres/database.js';
import { type Ended, eventually, runCli, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { type Ledger, makeLedger, readLedger, readWholeView } from '../support/stores/ledger.js';

const author = newAuthor();
let test: TestDatabase;
let relay: TestNode;
let client: RawClient;
let ledger: Ledger;

beforeAll(async () => {
  test = await createTestDatabase();
  const database = openDatabase(test.connection);
  ledger = await makeLedger(database.pool);
  await database.close();
});
afterAll(async () => {
  await test.drop();
});

async function start(): Promise<void> {
  relay = await startTestNode({ on: test, consumers: [ledger] });
  client = await RawClient.connect(relay.url);
}
async function stop(): Promise<void> {
  await client.close();
  await relay.close();
}
const minato = (...args: string[]): Promise<Ended> =>
  runCli(args, { DATABASE_URL: test.url, MINATO_PORT: '0' });
async function output(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await minato(...args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return stdout;
}
async function problem(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await minato(...args);
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  expect(stderr).not.toMatch(/\n\s+at /);
  return stderr;
}
async function post(content: string) {
  const event = sign(author, { content });
  expect(await client.publish(event)).toEqual([true, expect.any(String)]);
  return event;
}
async function head(): Promise<number> {
  const { rows } = await relay.database.pool.query('SELECT last_seq FROM lane_state');
  return rows[0].last_seq;
}
async function generation(): Promise<number> {
  const { rows } = await relay.database.pool.query('SELECT generation FROM consumer_offsets');
  return rows[0].generation;
}
async function audit(limit: number): Promise<unknown[]> {
  const page = await listAudit(relay.database.pool, 1, { limit });
  if (isDenial(page)) throw new Error(page.denied);
  return page.items.map(({ actor, action, target, details }) => [actor, action, target, details]);
}

it('before a worker has run there are no consumers, and an unknown name is an error', async () => {
  expect(await output('consumers')).toMatch(
    /^there are no consumers yet; the first node with the role worker/,
  );
  expect(await problem('consumers', 'pause', 'search')).toMatch(/^minato: there is no consumer "search"; /);
});

it('a healthy consumer is up to date; for a paused one the list and doctor say how to resume', async () => {
  await start();
  await post('one');
  await relay.node.consumers!.drained();
  const at = await head();
  expect(await output('consumers')).toMatch(
    new RegExp(
      '^consumer  state       lag   rate  dead letters  at\n' +
        `ledger    up to date  none  \\d+/s\\s+0             ${at} of ${at}\n$`,
    ),
  );
  expect(await problem('consumers', 'pause', 'search')).toContain('there are: ledger');
  expect(await output('consumers', 'pause', 'ledger')).toBe(
    'ledger is paused; to continue: minato consumers resume ledger\n',
  );
  await post('two');
  const table = await output('consumers');
  expect(table).toMatch(
    /\nledger +paused since \S+Z {2}1 row, \d+ s .*\n {2}ledger has been paused since \S+Z/,
  );
  expect(table).toMatch(/ and falls behind\n {2}→ minato consumers resume ledger\n$/);
  const { code, stdout } = await minato('doctor');
  expect(code).toBe(0);
  expect(stdout).toMatch(
    /^warn consumer ledger has been paused since \S+Z.*\n {5}→ minato consumers resume ledger$/m,
  );
  expect(await output('consumers', 'resume', 'ledger')).toBe('ledger continues; 1 row to apply\n');
  await relay.node.consumers!.drained();
  expect(await readLedger(relay.database.pool)).toEqual(await readWholeView(relay.database.pool));
  expect(await audit(2)).toEqual([
    [null, 'consumer.resume', 'ledger', {}],
    [null, 'consumer.pause', 'ledger', {}],
  ]);
});

it('a replay moves back, never forwards', async () => {
  await relay.node.consumers!.drained();
  const at = await head();
  ledger.given.length = 0;
  expect(await output('consumers', 'replay', 'ledger', '--from', `${at}`)).toBe(
    `ledger is moved back to ${at}; 1 row to apply\n`,
  );
  await eventually('it is given again', () => (ledger.given.includes(at) ? true : undefined));
  expect(ledger.given).toEqual([at]);
  expect(await problem('consumers', 'replay', 'ledger', '--from', `${at + 9}`)).toMatch(
    /^minato: A replay can only move back, .* \(from min: 1, from max: \d+\)\n$/,
  );
  expect(await problem('consumers', 'replay', 'ledger', '--from', '0')).toContain('an offset of the outbox');
});

it('dead letters are listed with their error, and retried by offset or all', async () => {
  ledger.before = (batch) => {
    if (batch.some(({ payload }) => payload?.includes('poison'))) throw new Error('it is "poison"');
  };
  const [one, two] = [await post('poison 1'), await post('poison 2')];
  const parked = async (count: number) =>
    eventually(`${count} letters`, async () => {
      const { rows } = await relay.database.pool.query('SELECT seq FROM consumer_dead_letters ORDER BY seq');
      return rows.length === count ? rows.map(({ seq }) => seq as number) : undefined;
    });
  const [seq] = await parked(2);
  const listed = (await output('consumers', 'dead-letters', 'ledger')).split('\n');
  expect(listed[0]).toMatch(
    new RegExp(`^${seq}  upsert  kind 1  ${one.id}  default  \\d+ tries, \\S+Z  "it is \\\\"poison\\\\""$`),
  );
  expect(listed[1]).toContain(two.id);
  expect(await output('consumers')).toMatch(
    /\n {2}ledger could not apply 2 rows\n {2}→ To see why: minato consumers dead-letters ledger; .*\n$/,
  );
  expect(await problem('consumers', 'retry', 'ledger')).toContain('or --all, and not both');
  expect(await problem('consumers', 'retry', 'ledger', '1')).toContain('no dead letter 1');
  ledger.before = () => undefined;
  expect(await output('consumers', 'retry', 'ledger', `${seq}`)).toMatch(/^1 is retried within seconds/);
  await parked(1);
  expect(await output('consumers', 'retry', 'ledger', '--all')).toMatch(/^1 is retried within seconds/);
  await parked(0);
  expect(await output('consumers', 'dead-letters', 'ledger')).toBe('ledger has no dead letters\n');
  expect(await readLedger(relay.database.pool)).toEqual(await readWholeView(relay.database.pool));
});

it('a command can wait for a rebuild; an interrupt leaves the rebuild running and says so', async () => {
  const before = await generation();
  expect(await output('consumers', 'rebuild', 'ledger', '--wait', '--reason', 'a test')).toBe(
    `ledger is rebuilt: generation ${before + 1}\n`,
  );
  expect(await audit(1)).toEqual([[null, 'consumer.rebuild', 'ledger', { reason: 'a test' }]]);

  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  let scanning = false;
  ledger.before = async (_, of) => {
    if (of <= before + 1) return;
    scanning = true;
    await held;
  };
  const { child, ended } = startCli(['consumers', 'rebuild', 'ledger', '--wait'], {
    DATABASE_URL: test.url,
  });
  await eventually('it is being rebuilt', () => (scanning ? true : undefined));
  child.kill('SIGINT');
  const { code, stderr } = await ended;
  expect({ code, stderr }).toEqual({
    code: 130,
    stderr: 'the rebuild of ledger continues; "minato consumers" shows the progress\n',
  });
  release();
  await eventually('it is whole', async () => ((await generation()) === before + 2 ? true : undefined));
  expect(await readLedger(relay.database.pool)).toEqual(await readWholeView(relay.database.pool));
});

it('the output says that no node runs them, also after the holder of the lease was killed', async () => {
  await relay.node.consumers!.drained();
  await stop();
  const database = openDatabase(test.connection);
  try {
    await database.pool.query("UPDATE consumer_offsets SET holder = '00000000-0000-4000-8000-000000000000'");
    const [state] = JSON.parse(await output('consumers', '--json'));
    expect(state).toMatchObject({ consumer: 'ledger', held: true, worked: false, problems: [] });
    await database.pool.query('UPDATE consumer_offsets SET holder = NULL');
    expect(await output('consumers', 'rebuild', 'ledger')).toMatch(
      /no node with the role worker is running\n→ Start one: "minato serve"/,
    );
    const { stdout } = await minato('doctor');
    expect(stdout).toMatch(
      /^warn consumer ledger has work to do, but no node with the role worker is running$/m,
    );
  } finally {
    await database.close();
  }
});
