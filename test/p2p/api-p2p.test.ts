/** Gossip over HTTP: its state, and joining and leaving a node by ticket, for operators of the node only. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { changeNodeSetting } from '../../src/communities/node-settings.sql.js';
import { writeMachine } from '../../src/p2p/p2p.sql.js';
import { readTicket, writeTicket } from '../../src/p2p/rules-ticket.js';
import { runCli } from '../support/cli.js';
import { type Api, createApi } from '../support/clients/api.js';
import { newAuthor } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase } from '../support/servers/database.js';

const P2P = '/v1/admin/p2p';
const root = newAuthor();
const local = newAuthor();
const machine = (digit: string) => ({ id: digit.repeat(64), addresses: ['127.0.0.1:7448'] });
const ticketOf = (...digits: string[]) =>
  writeTicket({ machines: digits.map(machine), urls: [`ws://${digits[0]}.test`] });

let node: TestNode;
let api: Api;

beforeAll(async () => {
  node = await startTestNode({ env: { MINATO_ADMIN_PUBKEYS: root.pubkey }, jobs: [], consumers: [] });
  api = createApi(node.http);
  await api.ask('PUT', `/v1/admin/operators/${local.pubkey}`, { as: root, body: { role: 'operator' } });
});
afterAll(() => node.close());

interface Shown {
  readonly enabled: boolean;
  readonly ticket: string | null;
  readonly peers: readonly { readonly machines: readonly { readonly id: string }[] }[];
  readonly note: string;
}
const show = async () => (await api.ask<Shown>('GET', P2P, { as: root })).body;
const ids = ({ peers }: Pick<Shown, 'peers'>) => peers.map(({ machines }) => machines.map(({ id }) => id[0]));

it('is off at first, and says what iroh contacts', async () => {
  const shown = await show();
  expect(shown).toMatchObject({ enabled: false, ticket: null, peers: [] });
  expect(shown.note).toContain('cannot switch off');
  const response = await fetch(node.http, { headers: { accept: 'application/nostr+json' } });
  expect(await response.json()).not.toHaveProperty('p2p');
});

it('a ticket joins a node, a newer ticket of that node replaces it, and leaving removes it', async () => {
  const join = (ticket: string) => api.ask('POST', `${P2P}/peers`, { as: root, body: { ticket } });
  expect(await join(ticketOf('a'))).toMatchObject({ status: 200 });
  expect(await join(ticketOf('b', 'c'))).toMatchObject({ status: 200 });
  expect(await join(ticketOf('a', 'd'))).toMatchObject({ status: 200 });
  expect(ids(await show())).toEqual([
    ['b', 'c'],
    ['a', 'd'],
  ]);
  const peer = (id: string) => `${P2P}/peers/${id}`;
  await api.refused(404, 'NOT_FOUND', 'DELETE', peer('e'.repeat(64)), { as: root });
  await api.refused(400, 'INVALID_REQUEST', 'DELETE', peer('not-hex'), { as: root });
  expect(await api.ask('DELETE', peer('c'.repeat(8)), { as: root })).toMatchObject({ status: 200 });
  expect(ids(await show())).toEqual([['a', 'd']]);
});

it('what is not a ticket is refused, here and as a setting', async () => {
  const body = { ticket: 'minato1nonsense' };
  await api.refused(400, 'INVALID_REQUEST', 'POST', `${P2P}/peers`, { as: root, body });
  const env = { DATABASE_URL: node.test.url };
  const set = await runCli(['settings', 'set', 'p2p.peers', '["nonsense"]'], env);
  expect(set).toMatchObject({ code: 1 });
  expect(set.stderr).toContain('not a ticket');
});

it('operators of a community neither see nor change it', async () => {
  await api.refused(403, 'OPERATORS_ONLY', 'GET', P2P, { as: local });
  const body = { ticket: ticketOf('f') };
  await api.refused(403, 'OPERATORS_ONLY', 'POST', `${P2P}/peers`, { as: local, body });
  await api.refused(403, 'OPERATORS_ONLY', 'DELETE', `${P2P}/peers/${'a'.repeat(64)}`, { as: local });
});

it('the ticket names every machine that was seen lately', async () => {
  const seen = { addresses: ['192.0.2.1:7448'], bases: ['ws://127.0.0.1:7447'] };
  const { pool } = node.database;
  await writeMachine(pool, { machine: '1'.repeat(64), seenAt: Date.now(), ...seen });
  await writeMachine(pool, { machine: '2'.repeat(64), seenAt: Date.now() - 6 * 86_400_000, ...seen });
  await writeMachine(pool, { machine: '3'.repeat(64), seenAt: Date.now() - 8 * 86_400_000, ...seen });
  const ticket = readTicket((await show()).ticket!)!;
  expect(ticket.machines.map(({ id }) => id[0])).toEqual(['1', '2']);
  expect(ticket.urls).toContain('ws://127.0.0.1:7447');
  await changeNodeSetting(pool, { key: 'p2p.topicsMax', value: 5 }, Date.now());
  expect((await runCli(['p2p', 'status'], { DATABASE_URL: node.test.url })).stdout).toBe(
    'gossip is off (p2p.enabled)\n',
  );
});

it('without a running node each command gives a clear answer', async () => {
  const test = await createTestDatabase();
  const env = { DATABASE_URL: test.url };
  const run = async (...args: string[]) => {
    const { code, stdout, stderr } = await runCli(args, env);
    return `${code} ${stdout}${stderr}`;
  };
  try {
    expect(await run('p2p', 'status')).toBe('0 gossip is off (p2p.enabled)\n');
    expect(await run('p2p', 'peers')).toBe('0 no peers\n');
    expect(await run('p2p', 'ticket')).toMatch(/^1 .*switch p2p.enabled on, and start the node\n$/);
    expect(await run('settings', 'set', 'p2p.enabled', 'true')).toMatch(/^0 /);
    expect(await run('p2p', 'status')).toContain('on, but no running node holds the endpoint\n');
    expect(await run('p2p', 'ticket')).toMatch(/^1 .*start the node\n$/);
    expect(await run('p2p', 'join', ticketOf('a'))).toBe('0 joined ws://a.test; 1 known\n');
    expect(await run('p2p', 'join', 'minato1nonsense')).toMatch(/^1 .*ticket/);
    expect(await run('p2p', 'peers')).toContain('machine aaaaaaaa  127.0.0.1:7448\n');
    expect(await run('p2p', 'leave', 'bbbb')).toMatch(/^1 ./);
    expect(await run('p2p', 'leave')).toBe('0 left; 0 known\n');
  } finally {
    await test.drop();
  }
});
