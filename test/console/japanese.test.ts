/**
 * The main tasks of operators and moderators, worked through in Japanese. The other tests work through them
 * in English, and some in both; here are those that they do in English only.
 */
import { npubEncode } from 'nostr-tools/nip19';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { RawClient } from '../support/clients/client.js';
import { type ConsoleTest, startConsole, type View } from '../support/console.js';
import { newAuthor, sign } from '../support/events.js';
import { textsIn } from '../support/texts.js';

/** A task on a busy machine. */
const LONG_MS = 240_000;
const t = textsIn('ja');
let test: ConsoleTest;
let client: RawClient;
let view: View;
let page: Page;

beforeAll(async () => {
  test = await startConsole();
  client = await RawClient.connect(test.node.url);
  view = await test.open('/admin/', { as: test.boss, language: 'ja' });
  page = view.page;
}, LONG_MS);
afterAll(async () => {
  await view?.close();
  await client?.close();
  await test?.close();
});

const button = (name: string) => page.getByRole('button', { name, exact: true });
const inDialog = (name: string) => page.getByRole('dialog').getByRole('button', { name, exact: true });

async function post(content: string) {
  const event = sign(newAuthor(), { content });
  expect(await client.publish(event)).toEqual([true, '']);
  return event;
}

const TASKS: Readonly<Record<string, () => Promise<unknown>>> = {
  '/invites': async () => {
    await button(t('invites:create')).first().click();
    await inDialog(t('invites:create')).click();
    await inDialog(t('invites:done')).click();
    await button(t('invites:revoke')).first().click();
    await inDialog(t('invites:revoke')).click();
    await page.getByText(t('invites:revoked')).waitFor();
  },
  '/plans': async () => {
    await button(t('plans:create')).click();
    await page.getByRole('dialog').getByLabel(t('plans:id')).fill('pro');
    await page.getByRole('dialog').getByLabel(t('plans:name')).fill('専門家');
    await inDialog(t('plans:save')).click();
    await page.getByRole('row').filter({ hasText: '専門家' }).waitFor();
  },
  '/policies': async () => {
    await button(t('policies:create')).click();
    await page
      .getByRole('dialog')
      .getByRole('textbox', { name: t('policies:version') })
      .fill('1');
    await inDialog(t('policies:create')).click();
    await button(t('policies:addLanguage')).first().click();
    await page.getByRole('dialog').getByLabel(t('policies:locale')).fill('ja');
    await inDialog(t('policies:add')).click();
    await page.getByRole('tabpanel').getByLabel(t('policies:titleLabel')).fill('港の利用規約');
    await page.getByRole('tabpanel').getByRole('textbox').last().fill('お互いに親切に。');
    await button(t('policies:save')).click();
    await page.getByText(t('policies:hash')).waitFor();
    await button(t('policies:publish')).click();
    await inDialog(t('policies:publish')).click();
    await page.getByText(t('policies:fixed')).waitFor();
  },
  '/operators': async () => {
    const person = newAuthor();
    await page.getByRole('textbox', { name: t('operators:key') }).fill(npubEncode(person.pubkey));
    await button(t('operators:give')).click();
    await page
      .getByRole('row')
      .filter({ hasText: npubEncode(person.pubkey).slice(0, 10) })
      .waitFor();
  },
  '/topics': async () => {
    await button(t('topics:create')).click();
    await page.getByRole('dialog').getByLabel(t('topics:idOrName')).fill('夜の船');
    await inDialog(t('topics:create')).click();
    await button('夜の船').waitFor();
  },
  '/rules': async () => {
    await page
      .getByRole('link', { name: t('rules:create') })
      .first()
      .click();
    await page.getByRole('textbox', { name: t('rules:name'), exact: true }).fill('懸賞');
    await page.getByRole('combobox', { name: t('rules:words') }).fill('懸賞');
    await page.getByRole('combobox', { name: t('rules:words') }).press('Enter');
    await page.getByText(/件中 0 件/).waitFor();
    await button(t('rules:saveEnable')).click();
    await page.getByText(t('rules:nowOn', { name: '懸賞' })).waitFor();
    const isServed = async () => {
      const { id } = await post('懸賞に当選しました');
      return (await client.query({ ids: [id] })).events.length === 1;
    };
    await expect.poll(isServed, { timeout: 60_000 }).toBe(false);
  },
  '/held': async () => {
    const row = page.getByRole('row').filter({ hasText: '懸賞に当選しました' }).first();
    await row.getByRole('button', { name: t('cases:act.release') }).click();
    await page.getByText(t('cases:done.restore', { n: 1 })).waitFor();
  },
  '/cases': async () => {
    const event = await post('とても怪しい時計');
    const body = { event_id: event.id, reason: 'spam', comment: '' };
    expect((await test.api.ask('POST', '/v1/reports', { as: newAuthor(), body })).status).toBe(201);
    await page.reload();
    await page.getByRole('link', { name: 'とても怪しい時計' }).click();
    await button(t('cases:act.remove')).click();
    await page.getByText(t('cases:done.remove', { n: 1 })).waitFor();
    await button(t('cases:undo')).click();
    await page.getByText(t('cases:undone'), { exact: true }).waitFor();
  },
  '/blocks?kind=words': async () => {
    await page.getByRole('textbox', { name: t('blocks:value.words') }).fill('フジツボ');
    await button(t('blocks:block')).click();
    await page.getByRole('row').filter({ hasText: 'フジツボ' }).waitFor();
    await button(t('blocks:unblockOne', { value: 'フジツボ' })).click();
    await page.getByText(t('blocks:none.words')).waitFor();
  },
  '/settings': async () => {
    const key = 'retention.regularDays';
    await page.getByRole('searchbox', { name: t('settings:search') }).fill(key);
    await button(t('settings:editNamed', { key })).click();
    await page.getByRole('dialog').getByLabel(t('settings:value')).fill('45');
    await inDialog(t('settings:save')).click();
    await page.getByText(t('settings:saved', { key })).waitFor();
  },
  '/communities': async () => {
    await button(t('communities:add')).click();
    await page.getByRole('dialog').getByLabel(t('communities:slug')).fill('art');
    await inDialog(t('communities:add')).click();
    await page.getByRole('table').getByText('art', { exact: true }).waitFor();
  },
  '/audit': async () => {
    await page.getByRole('combobox', { name: t('audit:action') }).click();
    await page.getByRole('option', { name: 'community.create' }).click();
    await page.waitForURL(/action=community\.create/);
    await page.getByRole('table').getByText('community.create').waitFor();
    await expect.poll(() => page.getByRole('table').getByText('setting.change').count()).toBe(0);
  },
  '/consumers/search': async () => {
    await button(t('consumers:pause')).click();
    await inDialog(t('consumers:pause')).click();
    await button(t('consumers:resume')).click();
    await page.getByText(t('consumers:done.resume', { name: 'search' })).waitFor();
  },
  '/jobs': async () => {
    await button(t('jobs:runOf', { name: 'forget-quotas' })).click();
    await page.getByText(t('jobs:queued', { name: 'forget-quotas' })).waitFor();
  },
  '/log': async () => {
    test.node.log.error('船が着きました');
    await page.getByText('船が着きました').waitFor();
    await page.getByLabel(t('log:text')).fill('何もない');
    await page.getByText(t('log:noneFound')).waitFor();
  },
  '/storage': async () => {
    await button(t('storage:count')).click();
    const counted = page.getByRole('table', { name: t('storage:purge') });
    await counted
      .or(page.getByText(t('storage:nothing')))
      .first()
      .waitFor();
  },
};

it.each(Object.keys(TASKS))(
  '%s',
  async (path) => {
    await page.goto(`${test.node.http}/admin${path}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await TASKS[path]!();
    expect(view.problems).toEqual([]);
  },
  LONG_MS,
);
