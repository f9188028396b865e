/**
 * Import and export of events in DynamoDB, as commands: what one node exports, another imports, from either
 * store into the other.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { serializeEvent } from '../../src/events/rules/event.js';
import { runCli } from '../support/cli.js';
import { newAuthor, nowSeconds, sign } from '../support/events.js';
import { createTestDatabase, type TestDatabase } from '../support/servers/database.js';
import { CREDENTIALS, createTables, sharedDynamodb } from '../support/servers/dynamodb.js';
import { READY } from '../support/servers/templates.js';

const author = newAuthor();
let folder: string;
let databases: TestDatabase[];
let postgres: Record<string, string>;
let dynamodb: Record<string, string>;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-export-'));
  databases = [await createTestDatabase(READY), await createTestDatabase(READY)];
  const { url: endpoint } = await sharedDynamodb();
  const place = { endpoint, region: 'us-east-1', prefix: `${databases[1]!.connection.database}_` };
  await createTables(place);
  postgres = { DATABASE_URL: databases[0]!.url };
  dynamodb = {
    ...CREDENTIALS,
    DATABASE_URL: databases[1]!.url,
    MINATO_EVENT_STORE: 'dynamodb',
    DYNAMODB_ENDPOINT: endpoint,
    MINATO_DYNAMODB_PREFIX: place.prefix,
  };
});
afterAll(async () => {
  for (const database of databases ?? []) await database.drop();
  await rm(folder, { recursive: true, force: true });
});

const notes = Array.from({ length: 270 }, (_, at) =>
  sign(author, { content: `number ${at}`, created_at: nowSeconds() - at }),
);
const versions = [1, 2].map((at) => sign(author, { kind: 0, created_at: at, content: `${at}` }));
const deleted = sign(author, { content: 'deleted', created_at: nowSeconds() - 5 });
const request = sign(author, { kind: 5, tags: [['e', deleted.id]] });
const brief = sign(author, { content: 'brief', tags: [['t', 'sea']] });
const first = [...notes, versions[0]!, deleted, brief];
const then = [versions[1]!, request];
const served = [...notes, versions[1]!, request, brief].map((event) => serializeEvent(event)).sort();

const exported = async (env: Record<string, string>, ...args: string[]) => {
  const { code, stdout, stderr } = await runCli(['export', ...args], env);
  expect(code, stderr).toBe(0);
  return stdout.split('\n').slice(0, -1).sort();
};

describe('events in DynamoDB', () => {
  it('are imported with the outcome of each line, and exported as they were', async () => {
    // Lines of one file are imported at once, so what follows another event is in a file of its own.
    for (const [name, events] of [
      ['first', first],
      ['then', then],
    ] as const) {
      const file = join(folder, `${name}.jsonl`);
      await writeFile(file, events.map((event) => `${JSON.stringify(event)}\n`).join(''));
      const imported = await runCli(['import', file], dynamodb);
      expect(imported.code, imported.stderr).toBe(0);
      expect(imported.stdout).toMatch(new RegExp(`^stored +${events.length}$`, 'm'));
      expect((await runCli(['import', file], dynamodb)).stdout).toMatch(/^stored +0$/m);
    }
    expect(await exported(dynamodb)).toEqual(served);
    expect(await exported(dynamodb, '--filter', '{"#t":["sea"]}')).toEqual([serializeEvent(brief)]);
    expect(await exported(dynamodb, '--history')).toEqual([serializeEvent(versions[0]!)]);
  });

  it('go into PostgreSQL, where the same is exported', async () => {
    const file = join(folder, 'served.jsonl.gz');
    expect((await runCli(['export', file], dynamodb)).code).toBe(0);
    const imported = await runCli(['import', file], postgres);
    expect(imported.code, imported.stderr).toBe(0);
    expect(await exported(postgres)).toEqual(served);
  });

  it('an export that was killed resumes after its last page', async () => {
    const whole = join(folder, 'whole.jsonl');
    await runCli(['export', whole], dynamodb);
    const lines = (await readFile(whole, 'utf8')).split('\n').slice(0, -1);
    // As a kill leaves it: 250 events are one page, and a part of the next one is in the file.
    const cut = join(folder, 'cut.jsonl');
    const page = lines.slice(0, 250);
    const last = JSON.parse(page.at(-1)!) as { created_at: number; id: string };
    const text = `${page.join('\n')}\n`;
    await writeFile(cut, `${text}${lines[250]!.slice(0, 20)}`);
    const state = {
      seq: 0,
      walk: `${last.created_at}/${last.id}`,
      events: 250,
      bytes: Buffer.byteLength(text),
      community: 'default',
      filter: '',
    };
    await writeFile(`${cut}.minato-export`, JSON.stringify(state));
    const resumed = await runCli(['export', cut, '--resume'], dynamodb);
    expect(resumed.code, resumed.stderr).toBe(0);
    expect(await readFile(cut, 'utf8')).toBe(await readFile(whole, 'utf8'));
  });
});
