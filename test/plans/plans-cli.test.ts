/** `minato plans` and `minato usage` as an operator runs them. */
import * as nip19 from 'nostr-tools/nip19';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isDenial } from '../../src/api/rules-errors.js';
import { listAudit } from '../../src/audit/audit.sql.js';
import { addCommunity } from '../../src/communities/communities.sql.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { readMemberPlan, readPlan } from '../../src/plans/plans.sql.js';
import { countUse, dayText } from '../../src/plans/usage.sql.js';
import { readWebhookSecret } from '../../src/plans/webhook-secrets.sql.js';
import { type Ended, runCli } from '../support/cli.js';
import { newAuthor } from '../support/events.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

const member = newAuthor().pubkey;
let store: TestStore;
let art: number;
beforeAll(async () => {
  store = await openTestStore();
  art = await addCommunity(store.database.pool, 'art', undefined, Date.now());
});
afterAll(() => store.close());

const minato = (...args: string[]): Promise<Ended> =>
  runCli([...args, '-c', 'art'], { DATABASE_URL: store.test.url });
async function output(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await minato(...args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return stdout;
}
async function problem(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await minato(...args);
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  return stderr;
}
const planOf = () => readMemberPlan(store.database.pool, { community: art, pubkey: member }, Date.now());

describe('minato plans', () => {
  it('shows the built-in plan, makes another and changes only what is given', async () => {
    expect(await output('plans')).toBe(
      'free  "Free"  (built in)  100 topics at a time, 1000 searches a day, 1000 trust queries a day, ' +
        '50 reports a day, 3 exports of personal data a day\n',
    );
    expect(await output('plans', 'set', 'gold', '--name', 'Gold', '--max-topics', '5')).toMatch(
      /^gold {2}"Gold" {2}5 topics at a time, unlimited searches a day, /,
    );
    await output('plans', 'set', 'gold', '--search-per-day', '7', '--max-topics', 'unlimited');
    const { name, limits } = (await readPlan(store.database.pool, art, 'gold'))!;
    expect({ name, limits }).toEqual({ name: 'Gold', limits: { searchPerDay: 7 } });
    expect((await output('plans', 'list')).split('\n')).toHaveLength(3);
  });

  it('gives a member a plan until a time, and removes a plan without members', async () => {
    const npub = nip19.npubEncode(member);
    expect(await output('plans', 'assign', npub, 'gold', '--until', '2131-05-17')).toBe(
      `${member}  gold  until 2131-05-17T00:00Z\n`,
    );
    expect(await planOf()).toMatchObject({ planId: 'gold', until: Date.UTC(2131, 4, 17) });
    expect(await problem('plans', 'remove', 'gold')).toBe(
      'minato: Members have this plan; give them another plan first. (members: 1)\n',
    );
    expect(await output('plans', 'assign', member, 'free')).toBe(`${member}  free\n`);
    expect(await output('plans', 'remove', 'gold')).toBe('gold was removed\n');
    const page = await listAudit(store.database.pool, art, { limit: 10 });
    const actions = isDenial(page) ? [] : page.items.map(({ action, actor }) => [action, actor]);
    expect(actions).toEqual([
      ['plan.delete', null],
      ['plan.assign', null],
      ['plan.assign', null],
      ['plan.change', null],
      ['plan.create', null],
    ]);
  });

  it('makes the secret of a payment provider, and removes it', async () => {
    const secret = await output('plans', 'webhook-secret');
    expect(secret).toMatch(/^whsec_[\w-]{43}\n$/);
    expect((await readWebhookSecret(store.database.pool, art))?.secret).toBe(secret.trim());
    expect(await output('plans', 'webhook-secret', '--remove')).toBe('the secret was removed\n');
    expect(await readWebhookSecret(store.database.pool, art)).toBeUndefined();
    expect(await problem('plans', 'webhook-secret', '--remove')).toBe('minato: Not found.\n');
  });

  it('says in a sentence what cannot be done', async () => {
    expect(await problem('plans', 'assign', member, 'silver')).toBe('minato: plan "silver" not found\n');
    expect(await problem('plans', 'remove', 'silver')).toBe('minato: Not found.\n');
    expect(await problem('plans', 'set', 'No!')).toContain('use lower-case letters, digits and -');
    expect(await problem('plans', 'set', 'a', '--max-topics', '-1')).toContain('or "unlimited"');
    expect(await problem('plans', 'assign', member, 'free', '--until', 'soon')).toContain(
      'use a time in UTC',
    );
  });
});

describe('minato usage', () => {
  it('shows who used what on which day, filtered by the options', async () => {
    expect(await output('usage')).toBe('no usage\n');
    const now = Date.now();
    const use = { community: art, pubkey: member, metric: 'search' as const };
    await countUse(store.database.pool, { ...use, now });
    await countUse(store.database.pool, { ...use, now: now - DAY_MS });
    const day = (at: number) => dayText(Math.floor(at / DAY_MS));
    const lines = [`${day(now)}  ${member}  search   1\n`, `${day(now - DAY_MS)}  ${member}  search   1\n`];
    expect(await output('usage')).toBe(lines.join(''));
    expect(await output('usage', nip19.npubEncode(member), '--day', day(now))).toBe(lines[0]);
    expect(await output('usage', '--metric', 'reports')).toBe('no usage\n');
    expect(await output('usage', newAuthor().pubkey)).toBe('no usage\n');
    expect(await problem('usage', '--day', 'today')).toContain('a day such as');
    expect(await problem('usage', '--metric', 'likes')).toContain('must be one of');
  });
});
