import { Command } from 'commander';
import { granted, timeText } from '../cli/answers.js';
import { COMMUNITY_OPTION, type CommandContext, withCommunity } from '../cli/context.js';
import { count } from '../cli/progress.js';
import type { Community } from '../communities/communities.js';
import { readNodeSettings } from '../communities/node-settings.sql.js';
import { joinPeer, type KnownPeer, leavePeer } from './peers.js';
import type { P2pState } from './rules-state.js';
import { type P2pStatus, RELAY_NOTE, readP2pStatus } from './status.js';
import { ticketOf } from './ticket.js';

const EXAMPLES = `
Nodes exchange the events of their public topics over iroh-gossip. docs/p2p.md explains it.

Examples:
  $ minato settings set p2p.enabled true     opens the UDP port 7448 (p2p.port)
  $ minato p2p ticket                        give it to the operator of another node
  $ minato p2p join minato1eyJtYWNo…         the ticket of another node
  $ minato p2p status                        topics, neighbours, what was sent and received
  $ minato p2p leave 3c31b3fd                the node with this machine; without an id all nodes`;

export function p2pCommand(): Command {
  const command = new Command('p2p')
    .description('gossip with other nodes: status, ticket, peers; join or leave a node')
    .addHelpText('after', EXAMPLES);
  command
    .command('status', { isDefault: true })
    .description('show what gossip does')
    .option(...COMMUNITY_OPTION)
    .option('--json', 'print JSON')
    .action(({ community, json = false }: { community: string; json?: boolean }) =>
      withStatus(community, async (status) => {
        process.stdout.write(json ? `${JSON.stringify(status, null, 2)}\n` : statusText(status));
      }),
    );
  command
    .command('ticket')
    .description('print the ticket with which other nodes join')
    .option(...COMMUNITY_OPTION)
    .action(({ community }: { community: string }) =>
      withStatus(community, async ({ machines }, { community: of }) => {
        const ticket = ticketOf(of, machines);
        if (ticket === undefined)
          throw new Error('there is no ticket yet: switch p2p.enabled on, and start the node');
        process.stdout.write(`${ticket}\n`);
      }),
    );
  command
    .command('peers')
    .description('show the nodes that were joined by ticket, and the machines that are connected')
    .option('--json', 'print JSON')
    .action(({ json = false }: { json?: boolean }) =>
      withStatus('default', async (status) => {
        process.stdout.write(json ? `${JSON.stringify(status.peers, null, 2)}\n` : peersText(status));
      }),
    );
  command
    .command('join <ticket>')
    .description('join the gossip of another node')
    .action((ticket: string) =>
      withStatus('default', async (_, { database: { pool } }) => {
        const peers = granted(await joinPeer(pool, ticket, { now: Date.now() }));
        process.stdout.write(`joined ${nameOf(peers.at(-1)!)}; ${count(peers.length)} known\n`);
      }),
    );
  command
    .command('leave')
    .argument('[machine]', 'the id of one of its machines, or the beginning of it')
    .description('leave a node, or all of them')
    .action((machine: string | undefined) =>
      withStatus('default', async (_, { database: { pool } }) => {
        const peers = granted(await leavePeer(pool, machine, { now: Date.now() }));
        process.stdout.write(`left; ${count(peers.length)} known\n`);
      }),
    );
  return command;
}

function withStatus(
  slug: string,
  work: (status: P2pStatus, context: CommandContext & { readonly community: Community }) => Promise<void>,
): Promise<void> {
  return withCommunity(slug, async (context, community) => {
    const { pool } = context.database;
    const status = await readP2pStatus(pool, await readNodeSettings(pool), Date.now());
    await work(status, { ...context, community });
  });
}

// ── Words ──────────────────────────────────────────────────────────────────────────────────────────────────

const SHORT = 8;

function statusText(status: P2pStatus): string {
  const { enabled, isHeld, machines, state, peers } = status;
  if (!enabled) return 'gossip is off (p2p.enabled)\n';
  const lines = [
    line('gossip', isHeld ? 'on' : 'on, but no running node holds the endpoint'),
    ...machines.map(({ machine, addresses, seenAt, state: own }) =>
      line(
        'machine',
        `${machine.slice(0, SHORT)}  ${addresses.join(' ') || 'no address'}  seen ${timeText(seenAt)}` +
          (own === null ? '' : '  has the endpoint'),
      ),
    ),
    line('peers', `${count(peers.length)} joined by ticket`),
    ...(state === null ? [] : stateLines(state)),
  ];
  return `${lines.join('')}note: ${RELAY_NOTE}\n`;
}

function stateLines(state: P2pState): string[] {
  if (state.problem !== null) return [line('problem', state.problem)];
  const { counts, catchUp, topics, topicsWanted, neighbours, dropped } = state;
  const isCut = topics < topicsWanted ? ` of ${count(topicsWanted)} (p2p.topicsMax)` : '';
  return [
    ...(state.isPortTaken ? [line('problem', 'the UDP port p2p.port is taken; another one is used')] : []),
    line('topics', `${count(topics)}${isCut}`),
    line('neighbours', neighbours.map(({ machine }) => machine.slice(0, SHORT)).join(' ') || 'none'),
    ...(dropped.length === 0 ? [] : [line('ignored', dropped.map((id) => id.slice(0, SHORT)).join(' '))]),
    line('sent', `${count(counts.sentEvents)} events in ${count(counts.sentMessages)} messages`),
    line(
      'received',
      `${count(counts.receivedMessages)} messages: ${count(counts.accepted)} events accepted, ` +
        `${count(counts.duplicates)} known, ${count(counts.refused)} refused, ` +
        `${count(counts.invalid)} invalid; ${count(counts.discarded)} discarded`,
    ),
    line('offset', count(state.offset)),
    line('catch-up', catchUpText(catchUp)),
    line('relay', state.relay ?? 'none'),
  ];
}

function catchUpText({ available, waiting, done, failed, lastError }: P2pState['catchUp']): string {
  if (!available) return 'not available';
  const problem = lastError === null ? '' : `; last: ${lastError}`;
  return `${count(done)} done, ${count(waiting)} waiting, ${count(failed)} failed${problem}`;
}

function peersText({ peers, state }: P2pStatus): string {
  const up = new Set(state?.neighbours.map(({ machine }) => machine));
  const known = peers.map((peer) => {
    const machines = peer.machines.map(
      ({ id, addresses }) =>
        `  machine ${id.slice(0, SHORT)}  ${addresses.join(' ')}${up.has(id) ? '  connected' : ''}\n`,
    );
    return `${nameOf(peer)}\n${machines.join('')}`;
  });
  const ids = new Set(peers.flatMap(({ machines }) => machines.map(({ id }) => id)));
  const others = [...up].filter((id) => !ids.has(id));
  const met = others.map((id) => `machine ${id.slice(0, SHORT)}  connected, met through others\n`);
  return [...known, ...met].join('') || 'no peers\n';
}

const nameOf = ({ machines, urls }: KnownPeer) => urls[0] ?? machines[0]!.id.slice(0, SHORT);
const line = (name: string, text: string) => `${name.padEnd(12)}${text}\n`;
