/** The role relay: adds the websocket, NIP-11 and the landing page to the port. */
import { isDenial } from '../api/rules-errors.js';
import { addressesOf } from '../communities/addresses.js';
import { refusal } from '../events/rules/reply.js';
import { Membership } from '../members/joining.js';
import { Rights } from '../members/rights.js';
import { watchTickets } from '../p2p/ticket.js';
import type { BuiltPages } from '../pages/built.js';
import { countUse, giveBack } from '../plans/usage.sql.js';
import type { Database } from '../postgres/database.js';
import { Intake } from '../relay/input/intake.js';
import { OpenValues } from '../relay/open-values.js';
import type { SearchUse } from '../relay/search-use.js';
import { addRelay, type Relay } from '../relay/server.js';
import type { Config } from './config.js';
import { type Entry, shareOf } from './entry.js';
import type { PassedPort } from './instances/instance.js';
import type { Log } from './log.js';
import type { Stores } from './stores.js';

export interface RelayRoleOptions {
  readonly database: Database;
  readonly config: Config;
  readonly log: Log;
  readonly now: () => number;
  /** The API answers on the same port. */
  readonly hasApi: boolean;
  /** The built pages, where the API answers. */
  readonly pages: BuiltPages | undefined;
  readonly passed?: PassedPort | undefined;
}

export function startRelay(
  { database, config, log, now, hasApi, pages, passed }: RelayRoleOptions,
  { rates, fanout, memory, cursors, writer }: Stores,
  { http, addressOf, work, gate, turns, greedyShare, input, output }: Entry,
): Relay {
  const { admission, bases, communities, keys, metrics, store, tagHash, verifier } = writer;
  return addRelay(http, {
    hasApi,
    shareOf: (max) => shareOf(max, passed),
    membersPage: pages?.has('members')
      ? (reply, fill) => pages.sendPage(reply, 'members', {}, fill)
      : undefined,
    publicUrl: config.publicUrl,
    ticketOf: watchTickets(database.ownPool, communities, now).of,
    rights: new Rights(database.ownPool, communities, log),
    verifier,
    addressesOf: (community) => addressesOf(community, bases()),
    admission,
    communities,
    fanout,
    stored: {
      events: store,
      queryPools: database.queryPools,
      searchPool: database.searchPool,
      tagHash,
      elsewhere: writer.elsewhere,
      memory,
      metrics,
      now,
      caughtUp: () => fanout.caughtUp(),
    },
    changes: store,
    cursors,
    searchUse: searchUse(database.apiPool, now),
    membership: new Membership({
      pool: database.apiPool,
      keys,
      rates,
      adminPubkeys: config.adminPubkeys,
      log,
      now,
    }),
    ownPool: database.ownPool,
    gate,
    turns,
    intake: new Intake(greedyShare),
    input,
    output,
    openValues: new OpenValues(() => communities.share()),
    rates,
    work,
    addressOf,
    metrics,
    log,
    now,
  });
}

/** Counts each search, also one that repeats an earlier search. */
function searchUse(pool: Database['apiPool'], now: () => number): SearchUse {
  const counting = (community: number, pubkey: string) =>
    ({ community, pubkey, metric: 'search', now: now() }) as const;
  return {
    count: async (community, pubkey) => {
      const used = await countUse(pool, counting(community, pubkey));
      if (!isDenial(used)) return undefined;
      return refusal('rate-limited', `quota exceeded: search, ${used.details?.limit} a day`);
    },
    giveBack: (community, pubkey) => giveBack(pool, counting(community, pubkey)),
  };
}
