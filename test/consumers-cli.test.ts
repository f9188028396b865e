/** `minato consumers`, and what `minato doctor` says of them, as an operator runs them beside a node. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { isDenial } from '../src/core/errors.js';
import { openDatabase } from '../src/postgres/database.js';
import { listAudit } from '../src/store/audit.js';
import { type Ended, eventually, runCli, startCli } from './support/cli.js';
import { RawClient } from './support/client.js';
import { createTestDatabase, type TestDatabase } from './support/database.js';
import { newAuthor, sign } from './support/events.js';
import { type Ledger, makeLedger, readLedger, readWholeView } from './support/ledger.js';
import { startTestNode, type TestNode } from './support/node.js';

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

it('before a worker has run there are none, and a name that is none is told so', async () => {
  expect(await output('consumers')).toMatch(
    /^there are no consumers yet; the first node with the role worker/,
  );
  expect(await problem('consumers', 'pause', 'search')).toMatch(/^minato: there is no consumer "search"; /);
});

it('one that is well is up to date; paused it says how to go on, in the list and by doctor', async () => {
  await start();
  await post('one');
  await relay.node.consumers!.drained();
  const at = await head();
  expect(await output('consumers')).toMatch(
    new RegExp(
      `^consumer  state       lag   rate  dead letters  at\nledger    up to date  none  \\d+/s\\s+0             ${at} of ${at}\n$`,
    ),
  );
  expect(await problem('consumers', 'pause', 'search')).toContain('there are: ledger');
  expect(await output('consumers', 'pause', 'ledger')).toBe(
    'ledger is paused; go on with: minato consumers resume ledger\n',
  );
  await post('two');
  expect(await output('consumers')).toMatch(
    /\nledger +paused since \S+Z {2}1 row, \d+ s .*\n {2}ledger is paused since \S+Z: it falls behind\n {2}→ minato consumers resume ledger\n$/,
  );
  const { code, stdout } = await minato('doctor');
  expect(code).toBe(0);
  expect(stdout).toMatch(
    /^warn consumer ledger is paused since \S+Z.*\n {5}→ minato consumers resume ledger$/m,
  );
  expect(await output('consumers', 'resume', 'ledger')).toBe('ledger goes on; 1 row to go\n');
  await relay.node.consumers!.drained();
  expect(await readLedger(relay.database.pool)).toEqual(await readWholeView(relay.database.pool));
  expect(await audit(2)).toEqual([
    [null, 'consumer.resume', 'ledger', {}],
    [null, 'consumer.pause', 'ledger', {}],
  ]);
});

it('a replay goes back, never forwards', async () => {
  await relay.node.consumers!.drained();
  const at = await head();
  ledger.given.length = 0;
  expect(await output('consumers', 'replay', 'ledger', '--from', `${at}`)).toBe(
    `ledger goes back to ${at}; 1 row to go\n`,
  );
  await eventually('it is given again', () => (ledger.given.includes(at) ? true : undefined));
  expect(ledger.given).toEqual([at]);
  expect(await problem('consumers', 'replay', 'ledger', '--from', `${at + 9}`)).toMatch(
    /^minato: A replay goes back, .* \(from min: 1, from max: \d+\)\n$/,
  );
  expect(await problem('consumers', 'replay', 'ledger', '--from', '0')).toContain('a number of the outbox');
});

it('dead letters are listed with their error, and tried again by number or all', async () => {
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
    /\n {2}ledger could not take 2 rows\n {2}→ See why: minato consumers dead-letters ledger; .* retry ledger --all\n$/,
  );
  expect(await problem('consumers', 'retry', 'ledger')).toContain('or all of them with --all');
  expect(await problem('consumers', 'retry', 'ledger', '1')).toContain('no dead letter 1');
  ledger.before = () => undefined;
  expect(await output('consumers', 'retry', 'ledger', `${seq}`)).toMatch(/^1 is tried again within a moment/);
  await parked(1);
  expect(await output('consumers', 'retry', 'ledger', '--all')).toMatch(/^1 is tried again within a moment/);
  await parked(0);
  expect(await output('consumers', 'dead-letters', 'ledger')).toBe('ledger has taken everything\n');
  expect(await readLedger(relay.database.pool)).toEqual(await readWholeView(relay.database.pool));
});

it('a rebuild is awaited; an interrupt leaves it running and says so', async () => {
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
    stderr: 'the rebuild of ledger goes on; "minato consumers" shows how far it is\n',
  });
  release();
  await eventually('it is whole', async () => ((await generation()) === before + 2 ? true : undefined));
  expect(await readLedger(relay.database.pool)).toEqual(await readWholeView(relay.database.pool));
});

it('when no node works on them, that is said, also when one was killed in its turn', async () => {
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
      /^warn consumer ledger has work to do, and no node with the role worker is running$/m,
    );
  } finally {
    await database.close();
  }
});
