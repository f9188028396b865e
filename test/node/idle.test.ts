/** An idle node sends hardly any statement to the database, and still learns of every change. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { writeSetting } from '../../src/communities/communities.sql.js';
import { eventually } from '../support/cli.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { type Fault, FaultProxy, type Message } from '../support/servers/fault-proxy.js';

const LISTEN = 'LISTEN minato_outbox';
const PASS: Fault = { kind: 'delay', ms: 0 };
const FOR_EVER = Number.POSITIVE_INFINITY;

let writing: TestNode;
let proxy: FaultProxy;
let idle: TestNode;
/** The statements of the idle node: the text, or the name of a prepared statement. */
const sent: string[] = [];

const isStatement = ({ type }: Message) => type === 'Q' || type === 'B';
const listens = () => sent.filter((text) => text.includes(LISTEN)).length;
const nameOf = ({ node }: TestNode) => node.communities.all()[0]!.settings['relay.name'];
const rename = ({ node, database }: TestNode, name: string) =>
  writeSetting(database.pool, node.communities.all()[0]!.id, 'relay.name', name, Date.now());
const learned = (name: string) =>
  eventually(`the name ${name}`, () => (nameOf(idle) === name ? true : undefined));

beforeAll(async () => {
  writing = await startTestNode({ jobs: [], consumers: [] });
  proxy = await FaultProxy.start(writing.test.connection);
  void proxy.when((message) => {
    if (isStatement(message)) sent.push(message.body.toString('latin1'));
    return false;
  }, PASS);
  const on = { ...writing.test, connection: proxy.connection };
  idle = await startTestNode({ on, jobs: [], consumers: [] });
  await eventually('it listens', () => (listens() > 0 ? true : undefined));
});
afterAll(async () => {
  await idle.close();
  await proxy.stop();
  await writing.close();
});

it('an idle node sends few statements during four checks of its listening session', async () => {
  // The work after a start is done by then.
  await eventually('the node has settled', () => (listens() >= 3 ? true : undefined));
  sent.length = 0;
  await eventually('four questions', () => (listens() >= 4 ? true : undefined));
  // The four checks; two rounds of the safety poll (settings, key requests, outbox, bus); keys and gauges
  // once.
  expect(sent.length, sent.join('\n')).toBeLessThanOrEqual(20);
});

it('an instance learns of changed settings and rights from notifications, not by polling', async () => {
  const rights = idle.node.communities.rightsVersion();
  sent.length = 0;
  for (let change = 0; change < 10; change += 1) {
    await rename(writing, `notified ${change}`);
    await learned(`notified ${change}`);
  }
  await writing.database.pool.query('UPDATE config_version SET rights_version = rights_version + 1');
  await eventually('the rights', () => (idle.node.communities.rightsVersion() > rights ? true : undefined));
  // With the safety poll alone there would have been two checks for each change.
  expect(listens()).toBeLessThanOrEqual(10);
});

it('a listening session that hangs is found and replaced, and changes arrive meanwhile', async () => {
  await proxy.when(LISTEN, { kind: 'freeze' });
  await rename(writing, 'unheard');
  await learned('unheard');
  sent.length = 0;
  await eventually('a new session listens', () => (listens() > 0 ? true : undefined));
  proxy.release();
  await rename(writing, 'heard again');
  await learned('heard again');
});

it('an instance that cannot listen learns of changes by polling', async () => {
  const cut = proxy.when(LISTEN, { kind: 'cut' }, FOR_EVER);
  await cut;
  sent.length = 0;
  await eventually('two tries to listen', () => (listens() >= 2 ? true : undefined));
  const polls = sent.filter((text) => text.includes('config-version')).length;
  expect(polls).toBeGreaterThanOrEqual(2);
  await rename(writing, 'polled');
  await learned('polled');
});
