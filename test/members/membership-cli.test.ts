/**
 * `minato requests`, `members`, `operators` and `invites`, and the audit rows of settings, as an operator
 * runs them.
 */
import * as nip19 from 'nostr-tools/nip19';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { type AuditEntry, listAudit } from '../../src/audit/audit.sql.js';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { settingsFrom } from '../../src/communities/rules-settings.js';
import { spendLink } from '../../src/sessions/links.sql.js';
import { readNodeTopic } from '../../src/topics/node-topics.sql.js';
import { requestTopic } from '../../src/topics/requests.sql.js';
import { requestRules } from '../../src/topics/rules-requests.js';
import { type Ended, runCli } from '../support/cli.js';
import { newAuthor } from '../support/events.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

const ROOT = newAuthor().pubkey;
const RULES = requestRules(settingsFrom(new Map()));
const TOPIC = `kukuri:${'ab'.repeat(32)}`;
const UNKNOWN = '00000000-0000-4000-8000-000000000000';

let store: TestStore;
let art: number;
beforeAll(async () => {
  store = await openTestStore();
  art = await addCommunity(store.database.pool, 'art', undefined, Date.now());
});
afterAll(() => store.close());

const minato = (...args: string[]): Promise<Ended> =>
  runCli(args, { DATABASE_URL: store.test.url, MINATO_ADMIN_PUBKEYS: ROOT });
async function output(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await minato(...args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return stdout;
}
async function problem(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await minato(...args);
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  expect(stderr).not.toMatch(/\n\s+at /);
  return stderr;
}
async function pending(pubkey: string, topic = TOPIC): Promise<string> {
  const wanted = { community: art, pubkey, topic, name: 'ships', services: [] };
  const requested = await requestTopic(store.database.pool, wanted, RULES, Date.now());
  if (isDenial(requested)) throw new Error(requested.denied);
  return requested.request.requestId;
}
async function audit(): Promise<readonly AuditEntry[]> {
  const page = await listAudit(store.database.pool, art, { limit: 200 });
  return isDenial(page) ? [] : page.items;
}

describe('minato requests', () => {
  it('shows a pending request, approves it with a note, and the node carries the topic', async () => {
    const member = newAuthor().pubkey;
    expect(await output('requests', '-c', 'art')).toBe('no request is pending\n');
    const requestId = await pending(member);
    expect(await output('requests', '-c', 'art')).toMatch(
      new RegExp(`^${requestId}  \\S+Z  pending    ${member}  ${TOPIC}  "ships"\n$`),
    );
    expect(await output('requests')).toBe('no request is pending\n');
    expect(await output('requests', 'approve', requestId, '--note', 'Welcome', '-c', 'art')).toMatch(
      / {2}active {2}.*"Welcome"\n$/,
    );
    expect(await readNodeTopic(store.database.pool, art, TOPIC)).toMatchObject({
      enabled: true,
      refCount: 1,
      name: 'ships',
    });
    expect((await audit())[0]).toMatchObject({ actor: null, action: 'request.approve', target: requestId });
    expect(await output('requests', 'list', '--status', 'active', '-c', 'art')).toContain(requestId);
  });

  it('rejects a request with a note, and says in a sentence what cannot be done', async () => {
    const requestId = await pending(newAuthor().pubkey);
    expect(await output('requests', 'reject', requestId, '--note', 'Not here', '-c', 'art')).toContain(
      '"Not here"',
    );
    expect(await problem('requests', 'approve', requestId, '-c', 'art')).toBe(
      'minato: This is not possible in the current status. (status: rejected)\n',
    );
    const unknown = [
      await problem('requests', 'approve', requestId),
      await problem('requests', 'reject', UNKNOWN),
      await problem('requests', 'approve', 'x'),
    ];
    expect(unknown).toEqual(Array(3).fill('minato: Not found.\n'));
  });

  it('refuses an unknown status', async () => {
    expect(await problem('requests', 'list', '--status', 'lost')).toMatch(
      /^error: .*pending, approved, active/,
    );
  });

  it('respects the cap of the community', async () => {
    const requestId = await pending(newAuthor().pubkey, `kukuri:${'cd'.repeat(32)}`);
    await output('settings', 'set', 'topic.enabledMax', '1', '-c', 'art');
    expect(await problem('requests', 'approve', requestId, '-c', 'art')).toBe(
      'minato: The maximum number of topics of this node is reached. (limit: 1)\n',
    );
    await output('settings', 'reset', 'topic.enabledMax', '-c', 'art');
  });
});

describe('minato members', () => {
  it('takes an npub, disables and enables, and shows what a member has', async () => {
    const member = newAuthor().pubkey;
    const npub = nip19.npubEncode(member);
    await output('requests', 'approve', await pending(member), '-c', 'art');
    expect(await output('members', 'show', npub, '-c', 'art')).toMatch(
      new RegExp(`^${member}  active .*1 active.*\n  active  ${TOPIC}  since \\S+Z\n$`),
    );
    expect(await output('members', 'disable', npub, '--note', 'spam', '-c', 'art')).toMatch(
      /disabled.*"spam"\n$/,
    );
    expect(await output('members', 'list', '--status', 'disabled', '-c', 'art')).toContain(member);
    expect(await output('members', 'enable', member, '-c', 'art')).toMatch(/active /);
    expect(await output('members', 'list', '--status', 'disabled', '-c', 'art')).toBe(
      'no member is disabled\n',
    );
    expect(
      (await audit()).slice(0, 2).map(({ action, target, details }) => [action, target, details]),
    ).toEqual([
      ['member.change', member, { status: 'active', note: 'spam' }],
      ['member.change', member, { status: 'disabled', note: 'spam' }],
    ]);
  });

  it('deletes for good', async () => {
    const member = newAuthor().pubkey;
    await output('requests', 'approve', await pending(member), '-c', 'art');
    expect(await output('members', 'delete', member, '-c', 'art')).toMatch(/deleted .* 0 active/);
    expect(await problem('members', 'enable', member, '-c', 'art')).toContain('(status: deleted)');
    expect(await output('members', 'show', member, '-c', 'art')).toMatch(/ {2}ended {3}.* until \S+Z\n$/);
  });

  it('refuses a stranger, an invalid key and a fixed operator', async () => {
    const stranger = newAuthor().pubkey;
    const [none, noKey, fixed] = [
      await problem('members', 'show', stranger),
      await problem('members', 'disable', 'alice'),
      await problem('members', 'disable', ROOT),
    ];
    expect(none).toBe(`minato: ${stranger} is not a member of default\n`);
    expect(noKey).toMatch(/^error: .*npub/);
    expect(fixed).toContain('MINATO_ADMIN_PUBKEYS');
    expect(await output('members')).toBe('no members yet\n');
  });
});

describe('minato operators', () => {
  it('shows the fixed ones, adds and removes others', async () => {
    const second = newAuthor().pubkey;
    expect(await output('operators', '-c', 'art')).toBe(
      `${ROOT}  operator, set by MINATO_ADMIN_PUBKEYS\nno added operators\n`,
    );
    await output('operators', 'add', nip19.npubEncode(second), '-c', 'art');
    expect(await output('operators', 'list', '-c', 'art')).toMatch(
      new RegExp(`\n${second}  operator, added \\S+Z by the command line\n$`),
    );
    expect(await output('operators')).not.toContain(second);
    expect(await output('operators', 'add', second, '--role', 'moderator', '-c', 'art')).toBe(
      `${second} has the role moderator in art\n`,
    );
    expect(await output('operators', 'add', second, '-c', 'art')).toBe(
      `${second} has the role moderator in art\n`,
    );
    expect(await output('operators', '-c', 'art')).toContain(`\n${second}  moderator, added `);
    expect(await problem('operators', 'add', second, '--role', 'king')).toContain(
      'must be one of viewer, moderator, operator.',
    );
    await output('operators', 'remove', second, '-c', 'art');
    const [removed, ...fixed] = [
      await problem('operators', 'remove', second, '-c', 'art'),
      await problem('operators', 'add', ROOT),
      await problem('operators', 'remove', ROOT),
    ];
    expect(removed).toBe('minato: Not found.\n');
    for (const one of fixed) expect(one).toContain('MINATO_ADMIN_PUBKEYS');
    expect((await audit()).slice(0, 3).map(({ action, target }) => [action, target])).toEqual([
      ['operator.remove', second],
      ['operator.change', second],
      ['operator.add', second],
    ]);
  });
});

describe('minato operators link', () => {
  it('prints a link with a code, which signs a key with a role in', async () => {
    const helper = newAuthor().pubkey;
    await output('operators', 'add', helper, '--role', 'viewer', '-c', 'art');
    const own = await output('operators', 'link', '-c', 'art');
    expect(own).toContain(`\nsigns ${ROOT} in as operator of art, once, until `);
    const printed = await output('operators', 'link', nip19.npubEncode(helper), '-c', 'art');
    const [, code] = /^http:\/\/127\.0\.0\.1:\d+\/c\/art\/admin\/#code=([\w-]{43})\n/.exec(printed)!;
    expect(printed).toContain(`\nsigns ${helper} in as viewer of art, once, until `);
    expect(await spendLink(store.database.pool, art, code!, Date.now())).toBe(helper);
    expect((await audit())[0]).toMatchObject({ actor: null, action: 'session.link', target: helper });
    const stranger = await problem('operators', 'link', newAuthor().pubkey, '-c', 'art');
    expect(stranger).toContain('this key has no role in art');
    await output('operators', 'add', helper, '--role', 'operator', '-c', 'art');
    expect(await problem('operators', 'link', '-c', 'art')).toContain('art has 2 operators; name the key');
  });
});

describe('minato invites', () => {
  it('makes an invite with a code that approves its holder, and revokes another', async () => {
    await output('settings', 'set', 'subscription.autoApproval', 'invite', '-c', 'art');
    const created = await output('invites', 'create', '--topic', TOPIC, '--days', '3', '-c', 'art');
    const [, inviteId, code] = /^(\S+) {2}\S+ {2}valid until \S+\ncode: (\S{22})\n$/.exec(created)!;
    expect(await output('invites', '-c', 'art')).not.toContain(code);
    const member = newAuthor().pubkey;
    const wanted = { community: art, pubkey: member, topic: TOPIC, services: [], invite: code };
    const rules = { ...RULES, autoApproval: 'invite' } as const;
    expect(await requestTopic(store.database.pool, wanted, rules, Date.now())).toMatchObject({
      request: { status: 'active' },
    });
    expect(await output('invites', 'list', '-c', 'art')).toMatch(
      new RegExp(`^${inviteId}  ${TOPIC}  used \\S+Z by ${member}\n$`),
    );
    expect(await problem('invites', 'revoke', inviteId!, '-c', 'art')).toMatch(
      /^minato: This is not possible/,
    );
    const other = await output('invites', 'create', '-c', 'art');
    expect(other).toContain('any topic');
    expect(await output('invites', 'revoke', other.split(' ')[0]!, '-c', 'art')).toContain('revoked');
    await output('settings', 'reset', 'subscription.autoApproval', '-c', 'art');
  });

  it('says when an invite would have no effect, and refuses an invalid topic or time', async () => {
    const { code, stderr } = await minato('invites', 'create');
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr:
        'It approves nothing yet. Run: minato settings set subscription.autoApproval invite -c default\n',
    });
    expect(await problem('invites', 'create', '--topic', 'ships')).toBe(
      'minato: "ships" is not a topic id; an example is kukuri:global\n',
    );
    for (const days of ['0', 'x', '3651'])
      expect(await problem('invites', 'create', `--days=${days}`)).toMatch(/^error: .*1 to 3650/);
  });
});

it('a change of a setting by the command line is audited; a reset without effect is not', async () => {
  await output('settings', 'set', 'relay.name', 'Art', '-c', 'art');
  await output('settings', 'reset', 'relay.name', '-c', 'art');
  await output('settings', 'reset', 'relay.name', '-c', 'art');
  const entries = (await audit()).filter(({ target }) => target === 'relay.name');
  expect(entries.map(({ actor, action, details }) => ({ actor, action, details }))).toEqual([
    { actor: null, action: 'setting.reset', details: { from: 'Art' } },
    { actor: null, action: 'setting.change', details: { from: 'Minato', to: 'Art' } },
  ]);
});

it.concurrent.each([
  ...['list', 'approve', 'reject'].map((name) => `requests ${name}`),
  ...['list', 'show', 'disable', 'enable', 'delete'].map((name) => `members ${name}`),
  ...['list', 'add', 'remove', 'link'].map((name) => `operators ${name}`),
  ...['list', 'create', 'revoke'].map((name) => `invites ${name}`),
])('minato %s --help says how it is used', async (command) => {
  const { code, stdout, stderr } = await runCli([...command.split(' '), '--help'], {});
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toMatch(new RegExp(`^Usage: minato ${command}`));
  expect(stdout).toContain('--community');
});
