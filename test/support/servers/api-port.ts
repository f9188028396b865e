/** The API of a running test node on a port of its own: for other options, or other routes. */
import type { Route } from '../../../src/api/contract.js';
import { type ApiOptions, addApi } from '../../../src/api/server.js';
import { createLog } from '../../../src/node/log.js';
import { IN_DATABASE } from '../../../src/outbox/changes.sql.js';
import { createAddressOf } from '../../../src/port/client-address.js';
import { Http } from '../../../src/port/http.js';
import { CursorMaker } from '../../../src/relay/cursors/cursor.js';
import { PositionSeal } from '../../../src/relay/cursors/sealed-position.js';
import { PostgresSessions } from '../../../src/sessions/postgres.js';
import type { TestNode } from '../node.js';

/** Without routes it has all of them. */
export function createApiPort(
  { node, database }: TestNode,
  own: Partial<ApiOptions> = {},
  routes?: Route[],
): { readonly http: Http; readonly add: () => void; readonly listen: () => Promise<string> } {
  const { metrics, communities, verifier, limits, rates } = node;
  const http = new Http({ metrics, metricsToken: undefined, ready: async () => undefined });
  let port = 0;
  const options: ApiOptions = {
    pool: database.apiPool,
    networkId: '',
    changed: IN_DATABASE,
    communities,
    verifier,
    bases: () => [`ws://127.0.0.1:${port}`],
    useOnce: (...credential) => limits.useOnce(...credential),
    sessions: new PostgresSessions(database.apiPool),
    tokenSecret: 'secret',
    downloadSecret: 'secret',
    exportSoon: async () => undefined,
    eraseSoon: async () => undefined,
    countHeld: async () => ({ succeeded: new Map(), failed: new Map() }),
    previewPurge: async () => ({ complete: true, jobs: [], counts: [] }),
    hashOf: async () => undefined,
    search: { pool: database.pool, searchPool: database.searchPool, tagHash: () => 0n, cursorSecret: '' },
    inSlot: (_asker, _cost, query) => query(database.pool),
    inClass: (_asker, _cost, query) => query('light'),
    events: node.store,
    cursors: new CursorMaker(new PositionSeal('00'.repeat(32)), Date.now),
    adminPubkeys: [],
    carryOut: async () => undefined,
    addressOf: createAddressOf(['loopback']),
    rates,
    version: '0',
    log: createLog('silent'),
    now: Date.now,
    ...own,
  };
  const add = () => addApi(http, options, routes);
  const listen = async () => {
    add();
    port = await http.listen('127.0.0.1', 0);
    return `http://127.0.0.1:${port}`;
  };
  return { http, add, listen };
}

export async function serveApi(
  relay: TestNode,
  own: Partial<ApiOptions> = {},
  routes?: Route[],
): Promise<[Http, string]> {
  const { http, listen } = createApiPort(relay, own, routes);
  return [http, await listen()];
}
