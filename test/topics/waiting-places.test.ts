/** The places for requests that wait for an operator: keys that anybody can make fill half of them (I14). */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { requestTopic } from '../../src/topics/requests.sql.js';
import type { RequestRules } from '../../src/topics/rules-requests.js';
import { newAuthor } from '../support/events.js';
import { openTestStore, type TestStore } from '../support/stores/store.js';

const RULES: RequestRules = {
  pendingMax: 5,
  pendingTotalMax: 4,
  enabledMax: 1_000,
  autoApproval: 'off',
  allowList: [],
};

let store: TestStore;
beforeAll(async () => {
  store = await openTestStore();
});
afterAll(() => store.close());

const pubkey = () => newAuthor().pubkey;

function ask(member: string, name: string, rules: Partial<RequestRules> = {}) {
  const wanted = { community: 1, pubkey: member, topic: `kukuri:${name}`, services: [] };
  return requestTopic(store.database.pool, wanted, { ...RULES, ...rules }, Date.now());
}

it('those who are not members yet fill half of the places, and the others are for members', async () => {
  const waits = { request: expect.objectContaining({ status: 'pending' }) };
  const refused = (limit: number, of: string) => ({
    denied: 'PENDING_SUBSCRIPTION_REQUEST_LIMIT_REACHED',
    details: { limit, of },
  });
  const [member, newcomer] = [pubkey(), pubkey()];
  expect(await ask(member, 'own', { autoApproval: 'within-limits' })).toMatchObject({
    request: { status: 'active' },
  });
  expect(await ask(newcomer, 'a')).toEqual(waits);
  expect(await ask(pubkey(), 'a')).toEqual(waits);
  // Who has asked is not a member by that.
  for (const another of [newcomer, pubkey()])
    expect(await ask(another, 'b')).toEqual(refused(2, 'those who are not members yet'));
  expect(await ask(member, 'a')).toEqual(waits);
  expect(await ask(member, 'b')).toEqual(waits);
  expect(await ask(member, 'c')).toEqual(refused(4, 'all members'));
});
