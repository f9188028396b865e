/**
 * The nodes with which this node begins gossip: the tickets of the setting `p2p.peers`. Commands and the API
 * add and remove one at a time, so that two operators do not overwrite each other.
 */
import type { Pool } from 'pg';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { changeNodeSetting, readNodeSetting } from '../communities/node-settings.sql.js';
import { checkNodeSetting } from '../communities/rules-node-settings.js';
import { isSameNode, readTicket, type Ticket } from './rules-ticket.js';

const KEY = 'p2p.peers';
const TRIES_MAX = 5;

export interface By {
  /** The key of the operator; missing for the command line. */
  readonly actor?: string | undefined;
  readonly now: number;
}

export interface KnownPeer extends Ticket {
  readonly ticket: string;
}

export function peersOf(tickets: readonly string[]): KnownPeer[] {
  return tickets.flatMap((ticket) => {
    const read = readTicket(ticket);
    return read === undefined ? [] : [{ ticket, ...read }];
  });
}

/** A newer ticket of the same node replaces the older one. */
export function joinPeer(pool: Pool, ticket: string, by: By): Promise<KnownPeer[] | Denial> {
  const given = readTicket(ticket);
  if (given === undefined)
    return Promise.resolve(denial('INVALID_REQUEST', { explanation: 'This is not a ticket.' }));
  return change(pool, by, (peers) => [
    ...peers.filter((peer) => !isSameNode(peer, given)).map((peer) => peer.ticket),
    ticket.trim(),
  ]);
}

/** Without a machine, all of them. NOT_FOUND if no ticket names the machine. */
export function leavePeer(pool: Pool, machine: string | undefined, by: By): Promise<KnownPeer[] | Denial> {
  return change(pool, by, (peers) => {
    if (machine === undefined) return [];
    const left = peers.filter(({ machines }) => !machines.some(({ id }) => id.startsWith(machine)));
    return left.length === peers.length ? denial('NOT_FOUND') : left.map(({ ticket }) => ticket);
  });
}

async function change(
  pool: Pool,
  { actor, now }: By,
  decide: (peers: KnownPeer[]) => string[] | Denial,
): Promise<KnownPeer[] | Denial> {
  let result: Denial = denial('VERSION_MISMATCH');
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const { value: before, version: seenVersion } = await readNodeSetting(pool, KEY);
    const decided = decide(peersOf(before as string[]));
    if (isDenial(decided)) return decided;
    const checked = checkNodeSetting(KEY, decided);
    if ('problem' in checked) return denial('INVALID_REQUEST', { explanation: checked.problem });
    const changed = await changeNodeSetting(
      pool,
      { key: KEY, value: checked.value, seenVersion, actor },
      now,
    );
    if (!isDenial(changed)) return peersOf(decided);
    result = changed;
    if (changed.denied !== 'VERSION_MISMATCH') return changed;
  }
  return result;
}
