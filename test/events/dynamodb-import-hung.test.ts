/**
 * `minato import` into a DynamoDB that hangs, is down, is slow or refuses writes: no line is refused for what
 * the store does, and the same command continues where it stopped (I1, I2).
 */
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { VerifiedEvent } from 'nostr-tools/pure';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WAIT_MS_MAX } from '../../src/events/dynamodb/writing.js';
import { serializeEvent } from '../../src/events/rules/event.js';
import { type Ended, eventually, runCli } from '../support/cli.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import {
  CREDENTIALS,
  createTables,
  DynamodbProxy,
  sharedDynamodb,
  TestDynamodb,
} from '../support/servers/dynamodb.js';
import { READY } from '../support/servers/templates.js';

/** More than are stored before both outages and are under way then, so that some wait. */
const NOTES = 250;
/** Transactions before an outage. */
const STORED_BEFORE = 30;
/** Shorter than the time-out of a request. */
const WRITE_MS = 3_500;
/** Their turns take more than two and a half times as long as an event may wait. */
const VERSIONS = Math.ceil((2.5 * WAIT_MS_MAX) / WRITE_MS);

const author = newAuthor();
const notes = Array.from({ length: NOTES }, (_, at) => sign(author, { content: `${at}` }));
const versions = Array.from({ length: VERSIONS }, (_, at) =>
  sign(author, { kind: 30_023, created_at: nowSeconds() - 1_000 + at, tags: [['d', 'x']] }),
);

let folder: string;
const closing: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-import-hung-'));
});
afterAll(async () => {
  for (const close of closing.reverse()) await close();
  await rm(folder, { recursive: true, force: true });
});

/** A node with its own tables behind a proxy, and a file to import. */
async function nodeAt(target: string, name: string, events: readonly VerifiedEvent[]) {
  const proxy = await DynamodbProxy.start(target);
  closing.push(() => proxy.stop());
  const database: TestDatabase = await createTestDatabase(READY);
  closing.push(() => database.drop());
  const place = proxy.place(`${database.connection.database}_`);
  await createTables(place);
  const env = {
    ...CREDENTIALS,
    DATABASE_URL: database.url,
    MINATO_EVENT_STORE: 'dynamodb',
    DYNAMODB_ENDPOINT: place.endpoint,
    MINATO_DYNAMODB_PREFIX: place.prefix,
  };
  const file = join(folder, `${name}.jsonl`);
  await writeFile(file, events.map((event) => `${JSON.stringify(event)}\n`).join(''));
  return {
    proxy,
    import: () => runCli(['import', file], env),
    exported: async () => {
      const { code, stdout, stderr } = await runCli(['export'], env);
      expect(code, stderr).toBe(0);
      return stdout.split('\n').slice(0, -1).sort();
    },
    hasCheckpoint: () =>
      stat(`${file}.minato-import`).then(
        () => true,
        () => false,
      ),
  };
}
const linesOf = (events: readonly VerifiedEvent[]) => events.map((event) => serializeEvent(event)).sort();
const refusedIn = ({ stdout }: Ended) => stdout.match(/^refused: .*$/gm) ?? [];
/** It has what it received while it was frozen to do first. */
const answering = (server: TestDynamodb) =>
  eventually('DynamoDB answers', async () => {
    const answer = await fetch(server.url).catch(() => undefined);
    await answer?.text();
    return answer && true;
  });
const isWrite = (operation: string) => operation === 'TransactWriteItems';

describe('an import into a DynamoDB that does not answer for long', () => {
  it.concurrent('frozen, then down: it stops with the reason, and the same command continues', async () => {
    const server = await TestDynamodb.start();
    closing.push(() => server.stop());
    const node = await nodeAt(server.url, 'notes', notes);
    let writes = 0;
    const endAfter = (count: number, end: () => unknown) => {
      writes = 0;
      node.proxy.interfere = ({ operation }) => {
        if (!isWrite(operation)) return undefined;
        writes += 1;
        if (writes === count) end();
        return undefined;
      };
    };
    const importedUntilStopped = async () => {
      const begun = performance.now();
      const stopped = await node.import();
      const seconds = (performance.now() - begun) / 1_000;
      expect(stopped.code, stopped.stderr).toBe(1);
      expect(stopped.stderr).toMatch(/the store of the events does not answer \(DynamoDB at .*\)/);
      expect(stopped.stderr).toContain('run the same command to continue from there');
      expect(refusedIn(stopped)).toEqual([]);
      expect(await node.hasCheckpoint()).toBe(true);
      // A line of the log a second, not one for each attempt of each event.
      const warnings = stopped.stderr.match(/an event could not be stored/g) ?? [];
      expect(warnings.length).toBeGreaterThan(0);
      expect(warnings.length).toBeLessThan(seconds + 2);
    };
    endAfter(STORED_BEFORE, () => server.freeze());
    await importedUntilStopped();
    server.thaw();
    await answering(server);
    endAfter(STORED_BEFORE, () => void server.goDown());
    await importedUntilStopped();
    await server.comeBack();
    node.proxy.interfere = () => undefined;
    const last = await node.import();
    expect(last.code, last.stderr).toBe(0);
    expect(refusedIn(last)).toEqual([]);
    expect(await node.hasCheckpoint()).toBe(false);
    expect(await node.exported()).toEqual(linesOf(notes));
  });

  it.concurrent('a line that waits for the turn of its key, however long, is not refused', async () => {
    const node = await nodeAt((await sharedDynamodb()).url, 'versions', versions);
    node.proxy.interfere = ({ operation }) =>
      isWrite(operation)
        ? { before: () => new Promise((resolve) => setTimeout(resolve, WRITE_MS)) }
        : undefined;
    const imported = await node.import();
    expect(refusedIn(imported)).toEqual([]);
    expect(imported.code, imported.stderr).toBe(0);
    expect(await node.exported()).toEqual(linesOf(versions.slice(-1)));
  });
});

describe('an import into a DynamoDB', () => {
  it.concurrent('that refuses every write: no line is refused, and the import stops', async () => {
    const few = notes.slice(0, 5);
    const node = await nodeAt((await sharedDynamodb()).url, 'denied', few);
    node.proxy.interfere = ({ operation }) =>
      isWrite(operation) ? { refuse: 'AccessDeniedException' } : undefined;
    const first = await node.import();
    expect(first.code, first.stderr).toBe(1);
    expect(first.stderr).toContain('nothing can be stored now (error: failed to store event)');
    expect(refusedIn(first)).toEqual([]);
    node.proxy.interfere = () => undefined;
    expect((await node.import()).code).toBe(0);
    expect(await node.exported()).toEqual(linesOf(few));
  });

  it.concurrent('that refuses one event: this line is refused, and the others are stored', async () => {
    const few = notes.slice(0, 5);
    const node = await nodeAt((await sharedDynamodb()).url, 'one', few);
    node.proxy.interfere = ({ operation, body }) =>
      isWrite(operation) && JSON.stringify(body).includes(few[2]!.id)
        ? { refuse: 'ValidationException' }
        : undefined;
    const imported = await node.import();
    expect(imported.code, imported.stderr).toBe(2);
    expect(imported.stderr).toContain('line 3: error: failed to store event');
    expect(await node.hasCheckpoint()).toBe(false);
    expect(await node.exported()).toEqual(linesOf(few.filter((_, at) => at !== 2)));
  });
});
