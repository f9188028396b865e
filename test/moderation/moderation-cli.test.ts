/** `minato moderation` as an operator runs it beside a node, and rules applied to an import. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually, runCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';

let folder: string;
let relay: TestNode;
let client: RawClient;
const author = newAuthor();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-moderation-cli-'));
  relay = await startTestNode({ env: { MINATO_DATA_DIR: folder } });
  client = await RawClient.connect(relay.url);
});
afterAll(async () => {
  await client.close();
  await relay.close();
  await rm(folder, { recursive: true });
});

const minato = (args: string[], stdin?: string) =>
  runCli(args, { DATABASE_URL: relay.test.url, MINATO_DATA_DIR: folder }, stdin);
const says = async (args: string[], stdin?: string): Promise<string> => {
  const { code, stdout, stderr } = await minato(['moderation', ...args], stdin);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return stdout;
};
const served = async ({ id }: { id: string }) => (await client.query({ ids: [id] })).events.length === 1;

describe('minato moderation', () => {
  it('explains itself in its help', async () => {
    const { stdout } = await minato(['moderation', '--help']);
    for (const words of ['rules', 'try', 'cases', 'case', 'act', 'Examples:'])
      expect(stdout).toContain(words);
  });

  it('leads from a rule to a case and to an action on it', async () => {
    const before = sign(author, { content: 'a casino' });
    expect(await client.publish(before)).toEqual([true, '']);
    const rule = { name: 'casino', action: 'hold', conditions: { words: ['Casino'] } };
    expect(await says(['rules', 'add', '-'], JSON.stringify(rule))).toContain(
      '"casino"  hold  priority 0  not tried',
    );
    const early = await minato(['moderation', 'rules', 'enable', 'casino']);
    expect(early).toMatchObject({ code: 1, stderr: expect.stringContaining('Run a trial of this rule') });
    const tried = await says(['try', 'casino', '--last', '100']);
    expect(tried).toContain('it would have matched 1');
    expect(tried).toContain(`${before.id}  "a casino"`);
    expect(await says(['rules', 'enable', 'casino'])).toContain('  enabled  ');
    const held = sign(author, { content: 'another casino' });
    expect(await client.publish(held)).toEqual([true, '']);
    await eventually('it is held', async () => ((await served(held)) ? undefined : true));
    expect(await served(before), 'what came before the rule').toBe(true);
    const cases = await says(['cases', '--status', 'held']);
    expect(cases).toContain(`event ${held.id}`);
    const id = cases.slice(0, 36);
    expect(await says(['act', id, 'restore', '--note', 'a joke'])).toContain(
      'restore by the command line: restored  "a joke"',
    );
    expect(await served(held)).toBe(true);
    await says(['act', id, 'label', '--label', 'safe', '--days', '3']);
    const shown = await says(['case', id]);
    for (const words of ['resolved', held.id, 'remove by a rule: removed', 'label safe 1, until'])
      expect(shown).toContain(words);
    expect(await says(['rules', 'remove', 'casino'])).toBe('casino is deleted\n');
    expect(await says(['rules'])).toBe('there are no rules\n');
  });

  it('removes all events of an author after a dry run, and undoes it', async () => {
    const spammer = newAuthor();
    const event = sign(spammer, { content: 'buy it' });
    expect(await client.publish(event)).toEqual([true, '']);
    const args = ['remove', '--author', spammer.pubkey];
    expect(await says([...args, '--dry-run'])).toContain('it would remove 1\n  kind 1: 1');
    expect(await served(event)).toBe(true);
    const id = (await says([...args, '--note', 'spam'])).slice(0, 36);
    await eventually('it is removed', async () => ((await served(event)) ? undefined : true));
    expect(await says(['batches', id])).toContain('done     ');
    await says(['undo', id]);
    await eventually('it is back', async () => ((await served(event)) ? true : undefined));
    const none = await minato(['moderation', 'remove']);
    expect(none).toMatchObject({ code: 1, stderr: expect.stringContaining('at least one condition') });
  });

  it('acts on all cases that the filters find', async () => {
    const other = newAuthor();
    const events = [sign(other, { content: 'one' }), sign(other, { content: 'two' })];
    for (const event of events) expect(await client.publish(event)).toEqual([true, '']);
    const tags = events.map(({ id }) => ['e', id, 'malware']);
    expect(await client.publish(sign(author, { kind: 1_984, tags }))).toEqual([true, '']);
    await relay.node.consumers!.drained();
    const filters = ['--status', 'open', '--author', other.pubkey, '--reason', 'malware'];
    expect(await says(['cases', ...filters])).toMatch(/1 report, 0 with standing.*\n.*1 report/);
    expect(await says(['act', 'all', 'remove', ...filters, '--dry-run'])).toBe(
      'it would remove 2 of 2 cases\n',
    );
    const acted = await says(['act', 'all', 'remove', ...filters]);
    expect(acted).toContain('2 of 2 cases');
    await eventually('both are removed', async () =>
      (await Promise.all(events.map(served))).some(Boolean) ? undefined : true,
    );
    expect(await says(['cases', ...filters])).toBe('there are no cases\n');
    const [batch] = /[0-9a-f-]{36}(?=\n$)/.exec(acted)!;
    expect(await says(['batches', batch])).toContain('remove  2 matched');
    await says(['undo', batch]);
    await eventually('both are back', async () =>
      (await Promise.all(events.map(served))).every(Boolean) ? true : undefined,
    );
    await eventually('both cases are open', async () =>
      (await says(['cases', ...filters])).split('\n').length === 3 ? true : undefined,
    );
  });

  it('holds and labels what a search finds, up to the time of its dry run', async () => {
    const event = sign(newAuthor(), { content: 'wombats at night' });
    expect(await client.publish(event)).toEqual([true, '']);
    const args = ['hold', '--search', 'wombats night'];
    const without = await minato(['moderation', ...args]);
    expect(without).toMatchObject({ code: 1, stderr: expect.stringContaining('--as-of') });
    const seen = await eventually('the index is there', async () => {
      const { code, stdout } = await minato(['moderation', ...args, '--dry-run']);
      return code === 0 ? stdout : undefined;
    });
    expect(seen).toContain('it would hold 1\n');
    const [, asOf] = /--as-of (\d+)/.exec(seen)!;
    const later = sign(newAuthor(), { content: 'more wombats, same night' });
    expect(await client.publish(later)).toEqual([true, '']);
    const id = (await says([...args, '--as-of', asOf!])).slice(0, 36);
    await eventually('it is held', async () => ((await served(event)) ? undefined : true));
    expect(await says(['batches', id])).toContain('done     ');
    expect(await served(later)).toBe(true);
    await says(['undo', id]);
    await eventually('it is back', async () => ((await served(event)) ? true : undefined));
    await says(['label', '--label', 'nsfw', '--search', 'wombats', '--as-of', 'now']);
    await eventually('both are labelled', async () =>
      (await client.query({ kinds: [1_985], '#e': [event.id, later.id] })).events.length === 2
        ? true
        : undefined,
    );
  });

  it('says what is wrong with a rule', async () => {
    const wrong = JSON.stringify({ name: 'x', action: 'hide', conditions: { patterns: ['(['] } });
    const { code, stderr } = await minato(['moderation', 'rules', 'add', '-'], wrong);
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: expect.stringMatching(/conditions\.patterns\.0: the pattern cannot be read/),
    });
  });
});

describe('an import', () => {
  it('is refused by a rule like a post', async () => {
    const rule = { name: 'rum', action: 'refuse', conditions: { words: ['rum'] } };
    await says(['rules', 'add', '-'], JSON.stringify(rule));
    await says(['try', 'rum']);
    await says(['rules', 'enable', 'rum']);
    const file = join(folder, 'events.jsonl');
    const rejects = join(folder, 'rejects.jsonl');
    const events = ['rum', 'water'].map((content) => sign(author, { content }));
    await writeFile(file, events.map((event) => `${JSON.stringify(event)}\n`).join(''));
    const { code, stdout } = await minato(['import', file, '--rejects', rejects]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: expect.any(String) });
    expect(await Promise.all(events.map(served))).toEqual([false, true]);
  });

  it('is held by a rule like a post', async () => {
    const rule = { name: 'gin', action: 'hold', conditions: { words: ['gin'] } };
    await says(['rules', 'add', '-'], JSON.stringify(rule));
    await says(['try', 'gin']);
    await says(['rules', 'enable', 'gin']);
    const file = join(folder, 'held.jsonl');
    const events = ['gin', 'tonic'].map((content) => sign(author, { content }));
    await writeFile(file, events.map((event) => `${JSON.stringify(event)}\n`).join(''));
    expect(await minato(['import', file])).toMatchObject({ code: 0 });
    expect(await Promise.all(events.map(served))).toEqual([false, true]);
    expect(await says(['cases', '--status', 'held'])).toContain('rule: gin');
  });
});
