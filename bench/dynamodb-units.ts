/**
 * Prints the capacity units of the event store on DynamoDB, by what a client does:
 *   node --import tsx bench/dynamodb-units.ts http://127.0.0.1:8000
 * Units depend on the sizes of items only, so those of DynamoDB Local are those of AWS. It creates tables
 * with a prefix of its own.
 */
import { createHash, randomBytes } from 'node:crypto';
import pg from 'pg';
import { settingsFrom } from '../src/communities/rules-settings.js';
import { Dynamodb } from '../src/events/dynamodb/client.js';
import { startDynamodbStore } from '../src/events/dynamodb/store.js';
import { ensureTables } from '../src/events/dynamodb/tables.js';
import { createTagHash } from '../src/events/postgres/tag-hash.js';
import { type NostrEvent, serializeEvent } from '../src/events/rules/event.js';
import type { Filter } from '../src/events/rules/filter.js';
import { createLog } from '../src/node/log.js';

const endpoint = process.argv[2];
if (endpoint === undefined) throw new Error('which endpoint? For example http://127.0.0.1:8000');

const READS = new Set(['get', 'batch-get', 'query']);
const used = { read: 0, write: 0 };
const db = new Dynamodb(
  { endpoint, region: 'us-east-1', prefix: `units${randomBytes(3).toString('hex')}_` },
  {
    used: (operation, units) => {
      used[READS.has(operation) ? 'read' : 'write'] += units;
    },
    throttled: () => undefined,
  },
);
await ensureTables(db);
const pool = new pg.Pool();
const store = startDynamodbStore({
  db,
  database: { pool, ownPool: pool, queryPools: { light: pool, medium: pool, heavy: pool, search: pool } },
  tagHash: await createTagHash(1n),
  communities: () => [1],
  settingsOf: () => settingsFrom(new Map()),
  log: createLog('warn'),
  now: Date.now,
});

const hash = (text: string) => createHash('sha256').update(text).digest('hex');
const author = hash('author');
let made = 0;
function event(tags: number, draft: Partial<NostrEvent> = {}): NostrEvent {
  made += 1;
  return {
    id: hash(`event ${made}`),
    pubkey: author,
    created_at: 1_700_000_000 + made,
    kind: 1,
    tags: Array.from({ length: tags }, (_, at) => (at === 0 ? ['t', 'sea'] : ['p', hash(`${at}`)])),
    content: 'x'.repeat(200),
    sig: 'c'.repeat(128),
    ...draft,
  };
}
const submit = (one: NostrEvent) => store.submit({ community: 1, event: one, payload: serializeEvent(one) });
const find = (filter: Partial<Filter>, limit: number) =>
  store.find({ community: 1, filter: { tags: [], ...filter }, limit, now: Date.now() }, 'light');

console.log('| work | read units | write units |\n|---|---|---|');
async function row(name: string, work: () => Promise<unknown>): Promise<void> {
  used.read = 0;
  used.write = 0;
  await work();
  console.log(`| ${name} | ${used.read} | ${used.write} |`);
}

for (const tags of [0, 1, 3, 10, 50])
  await row(`a post of ${serializeEvent(event(tags)).length} bytes with ${tags} tags`, () =>
    submit(event(tags)),
  );
const again = event(1);
await submit(again);
await row('the same post again', () => submit(again));
await row('the first profile of an author', () => submit(event(0, { kind: 0 })));
await row('a newer profile', () => submit(event(0, { kind: 0 })));
const target = event(3);
await submit(target);
await row('a deletion of one post', () => submit(event(0, { kind: 5, tags: [['e', target.id]] })));
await row('a deletion of one address', () => submit(event(0, { kind: 5, tags: [['a', `0:${author}:`]] })));
for (let at = 0; at < 120; at += 1) await submit(event(3));
await row('REQ 20 ids', async () => {
  const ids = (await find({ kinds: new Set([1]) }, 20)).map(({ id }) => id);
  used.read = 0;
  await find({ ids: new Set(ids) }, 20);
});
await row('REQ author, 50 rows', () => find({ authors: new Set([author]) }, 50));
await row('REQ author and kind, 50 rows', () =>
  find({ authors: new Set([author]), kinds: new Set([1]) }, 50),
);
await row('REQ kind, 50 rows', () => find({ kinds: new Set([1]) }, 50));
await row('REQ #t, 50 rows', () => find({ tags: [{ name: 't', values: new Set(['sea']) }] }, 50));
await row('REQ #p, 50 rows', () => find({ tags: [{ name: 'p', values: new Set([hash('1')]) }] }, 50));
await row('REQ newest 50', () => find({}, 50));
await row('REQ of 100 authors without events', () =>
  find({ authors: new Set(Array.from({ length: 100 }, (_, at) => hash(`nobody ${at}`))) }, 50),
);
await store.close();
await db.close();
await pool.end();
