/**
 * The community that the node and its peer exchange by gossip: its clients at both ends, and the comparison
 * of both views with the model once everything is healed. The node has the ticket of the peer; the peer knows
 * nobody.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { changeNodeSetting } from '../../src/communities/node-settings.sql.js';
import type { NodeSettingKey } from '../../src/communities/rules-node-settings.js';
import { writeTopic } from '../support/domains/topics.js';
import { freePort } from '../support/servers/free-port.js';
import { query } from './checks/view.js';
import { Publisher } from './clients/publisher.js';
import { pathOf } from './clients/socket.js';
import { Watcher } from './clients/watcher.js';
import type { Faults } from './faults.js';
import { SHARED_TOPIC } from './keys.js';
import type { Expected } from './model.js';
import { clientLinkOf, PEER, SHARED, SLUGS } from './plan.js';
import type { Violations } from './violations.js';
import type { World } from './world/world.js';

/** The instances, and the peer. */
const PLACES = [0, 1, PEER];
const TICKET_MS_MAX = 60_000;
const LOOK_MS = 200;

export interface GossipOptions {
  readonly world: World;
  readonly violations: Violations;
  readonly isHealthy: () => boolean;
  readonly faults: Faults;
  readonly isForged: (id: string) => boolean;
}

const pathAt = (place: number) => (place === PEER ? '/' : pathOf(SHARED));
const nameOfPlace = (place: number) => (place === PEER ? 'the peer' : `instance ${place}`);

export class Gossip {
  /** By place. */
  readonly publishers: readonly Publisher[];
  readonly watchers: readonly Watcher[];

  constructor(private readonly options: GossipOptions) {
    const { world, violations, isHealthy, faults, isForged } = options;
    this.publishers = PLACES.map(
      (place) =>
        new Publisher({
          port: () => world.port(place),
          path: pathAt(place),
          violations,
          isHealthy,
          onAccepted: () => faults.noteOk(),
        }),
    );
    this.watchers = PLACES.map(
      (place) =>
        new Watcher({
          port: () => world.port(place),
          community: SHARED,
          path: pathAt(place),
          kinds: [1, 30_023],
          violations,
          mayRepeat: () => false,
          isForged,
          isInTime: () => faults.clocksAreRight && faults.isClear(clientLinkOf(place)),
        }),
    );
  }

  async setUp(): Promise<void> {
    const { postgres } = this.options.world;
    await this.switchOn('peer', 'default', { 'p2p.port': await freePort() });
    const ticket = await this.ticket();
    await this.switchOn('minato', SLUGS[SHARED]!, { 'p2p.port': 0, 'p2p.peers': [ticket] });
    // The first events may as well wait for the connection, but a world is short.
    await postgres.withPool('peer', async (pool) => {
      for (let waited = 0; waited < TICKET_MS_MAX; waited += LOOK_MS) {
        const { rows } = await pool.query<{ count: number }>(
          "SELECT jsonb_array_length(state->'neighbours') AS count FROM p2p_machines WHERE state IS NOT NULL",
        );
        if ((rows[0]?.count ?? 0) > 0) return;
        await delay(LOOK_MS);
      }
      throw new Error('the peer has no neighbour');
    });
  }

  /** How the views of both ends differ from the model. */
  async differences(expected: Expected, nameOf: (id: string) => string): Promise<string[]> {
    const { world } = this.options;
    const found: string[] = [];
    for (const place of PLACES) {
      const filter = { '#t': [SHARED_TOPIC], limit: 5_000 };
      const events = await query(world.port(place), pathAt(place), filter);
      if (events === undefined) return [`${nameOfPlace(place)} does not answer`];
      const seen = new Set(events.map(({ id }) => id).filter((id) => !expected.open.has(id)));
      const missing = [...expected.served.keys()].filter((id) => !seen.has(id));
      const allowed = [expected.served, expected.behindGone, ...(place === PEER ? [expected.ofErased] : [])];
      const surplus = [...seen].filter((id) => !allowed.some((ids) => ids.has(id)));
      const list = (ids: readonly string[]) => ids.slice(0, 3).map(nameOf).join('; ');
      if (missing.length > 0)
        found.push(`${nameOfPlace(place)}: ${missing.length} missing: ${list(missing)}`);
      if (surplus.length > 0)
        found.push(`${nameOfPlace(place)}: ${surplus.length} too many: ${list(surplus)}`);
    }
    return found;
  }

  /** I3 at the peer: one row for each id, however often and by whichever way it came. */
  async checkRows(violations: Violations): Promise<void> {
    await this.options.world.postgres.withPool('peer', async (pool) => {
      const { rows } = await pool.query<{ id: string; count: string }>(
        "SELECT encode(id, 'hex') AS id, count(*) FROM events GROUP BY 1 HAVING count(*) > 1",
      );
      for (const { id, count } of rows) violations.add('I3', `the peer has ${count} rows of ${id}`);
    });
  }

  private async switchOn(
    database: 'minato' | 'peer',
    slug: string,
    settings: Partial<Record<NodeSettingKey, unknown>>,
  ): Promise<void> {
    await this.options.world.postgres.withPool(database, async (pool) => {
      const { rows } = await pool.query<{ id: number }>('SELECT id FROM communities WHERE slug = $1', [slug]);
      const rules = { pinned: true, public: true, priority: 0, policy: {} };
      await writeTopic(pool, rows[0]!.id, SHARED_TOPIC, rules, Date.now());
      const all = {
        'p2p.bind': '127.0.0.1',
        'node.syncPrivatePeers': true,
        ...settings,
        'p2p.enabled': true,
      };
      for (const [key, value] of Object.entries(all))
        await changeNodeSetting(pool, { key: key as NodeSettingKey, value }, Date.now());
    });
  }

  /** From the NIP-11 document of the peer. */
  private async ticket(): Promise<string> {
    const url = `http://127.0.0.1:${this.options.world.port(PEER)}/`;
    for (let waited = 0; waited < TICKET_MS_MAX; waited += LOOK_MS) {
      const answer = await fetch(url, { headers: { accept: 'application/nostr+json' } });
      const { p2p } = (await answer.json()) as { readonly p2p?: { readonly ticket?: string } };
      if (p2p?.ticket !== undefined) return p2p.ticket;
      await delay(LOOK_MS);
    }
    throw new Error('the peer has no ticket');
  }
}
