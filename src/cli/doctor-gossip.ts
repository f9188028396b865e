/** The part of `minato doctor` about gossip: its package, its endpoint, its port, and what iroh contacts. */
import { createRequire } from 'node:module';
import type { Pool } from 'pg';
import { readNodeSettings } from '../communities/node-settings.sql.js';
import { type Finding, info, ok, warn } from '../health/finding.js';
import { IROH } from '../p2p/protocol.js';
import { RELAY_NOTE, readP2pStatus } from '../p2p/status.js';

export async function* checkP2p(pool: Pool): AsyncGenerator<Finding> {
  const node = await readNodeSettings(pool);
  if (!node['p2p.enabled']) return;
  if (!isInstalled())
    yield warn(
      `gossip is on, but the package ${IROH} is not installed`,
      `Run "npm install ${IROH}@0.35" on a system that it supports, or set p2p.enabled to false.`,
    );
  const { isHeld, state, peers } = await readP2pStatus(pool, node, Date.now());
  if (state?.problem != null)
    yield warn(`gossip does not run: ${state.problem}`, 'Read the log of the node.');
  else if (!isHeld)
    yield info('gossip is on, and no running node holds its endpoint', 'Start the node with a worker.');
  else if (state !== null) yield ok(`gossip: ${state.topics} topics, ${state.neighbours.length} neighbours`);
  if (state?.isPortTaken)
    yield warn(
      `the UDP port ${node['p2p.port']} of gossip is taken, so iroh has bound another one`,
      'Stop the other program or change p2p.port: the ticket names the port.',
    );
  if (isHeld && peers.length > 0 && state?.neighbours.length === 0)
    yield warn(
      'gossip has no neighbour',
      'Check that the tickets are current ("minato p2p peers") and that UDP passes the firewalls.',
    );
  if (state !== null && state.topics < state.topicsWanted)
    yield warn(
      `gossip has joined ${state.topics} of ${state.topicsWanted} topics`,
      'Raise p2p.topicsMax, or make fewer topics public.',
    );
  yield info(RELAY_NOTE, 'If that must not be, block it in the firewall; peers then need a direct way.');
}

function isInstalled(): boolean {
  try {
    createRequire(import.meta.url).resolve(`${IROH}/package.json`);
    return true;
  } catch {
    return false;
  }
}
