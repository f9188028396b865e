/** Settings, communities, the audit log and erasures in a real browser. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ConsoleTest, startConsole } from '../support/console.js';

let test: ConsoleTest;
beforeAll(async () => {
  test = await startConsole({ demo: true });
});
afterAll(() => test?.close());

const ask = async <T>(path: string) => (await test.api.ask<T>('GET', path, { as: test.boss })).body;

describe('settings', () => {
  it('are found by a word, changed and reset, and say who did it', async () => {
    const view = await test.open('/admin/settings', { as: test.boss });
    const { page } = view;
    await page.getByRole('searchbox', { name: 'Search settings' }).fill('retention.regularDays');
    await page.getByRole('button', { name: 'Edit retention.regularDays' }).click();
    const dialog = page.getByRole('dialog', { name: 'retention.regularDays' });
    await dialog.getByLabel('Value').fill('45');
    await view.expectAccessible();
    await dialog.getByRole('button', { name: 'Save' }).click();
    await page.getByText('retention.regularDays was changed.').waitFor();
    await page.getByText('Last changed').first().waitFor();
    const path = '/v1/admin/settings/retention.regularDays';
    expect(await ask(path)).toMatchObject({ value: 45, changed: { by: test.boss.pubkey } });
    await page.getByRole('button', { name: 'Edit retention.regularDays' }).click();
    await dialog.getByRole('button', { name: 'Reset to the default' }).click();
    await page.getByText('retention.regularDays is at its default again.').waitFor();
    expect(await ask(path)).toMatchObject({ value: 30 });
    await view.close();
  });

  it('of the node are for its operators; a viewer only reads', async () => {
    const view = await test.open('/admin/settings', { as: test.boss, language: 'ja' });
    await view.page.getByRole('tab', { name: 'ノード全体' }).click();
    await view.page.getByText('node.memoryWindowMB').waitFor();
    await view.page.getByText('コミュニティが limits.tagsMax に設定できる最大値です。').waitFor();
    await view.expectAccessible();
    await view.close();
    const as = await test.giveRole('viewer');
    const reading = await test.open('/admin/settings', { as, width: 390, height: 844, isDark: true });
    await reading.page.getByText('retention.regularDays', { exact: true }).waitFor();
    expect(await reading.page.getByRole('button', { name: /^Edit/ }).count()).toBe(0);
    expect(await reading.page.getByRole('tab').count()).toBe(0);
    await reading.expectAccessible();
    await reading.expectNoOverflow();
    await reading.close();
  });
});

describe('communities', () => {
  it('are listed and added by an operator of the node', async () => {
    const view = await test.open('/admin/communities', { as: test.boss });
    const { page } = view;
    await page.getByRole('button', { name: 'Add a community' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Short name').fill('Art Club');
    await dialog.getByText('Use a–z, 0–9 and -').waitFor();
    await dialog.getByLabel('Short name').fill('art');
    await dialog.getByRole('button', { name: 'Add a community' }).click();
    await page.getByRole('table').getByText('art', { exact: true }).waitFor();
    await view.expectAccessible();
    await view.close();
  });

  it('are refused to other operators, who read why', async () => {
    const as = await test.giveRole('operator');
    const view = await test.open('/admin/communities', { as, language: 'ja' });
    await view.page.getByRole('heading', { name: 'ノードのオペレーター専用です' }).waitFor();
    expect(await view.page.getByRole('button', { name: 'コミュニティを追加' }).count()).toBe(0);
    await view.close();
  });
});

describe('the audit log', () => {
  it('is filtered by action and exported', async () => {
    const view = await test.open('/admin/audit?action=community.create', { as: test.boss });
    const { page } = view;
    const table = page.getByRole('table', { name: 'Entries of the audit log' });
    await table.getByText('community.create').waitFor();
    expect(await table.getByText('setting.change').count()).toBe(0);
    await view.expectAccessible();
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Export CSV' }).click(),
    ]);
    expect(download.suggestedFilename()).toBe('audit-log.csv');
    await page.getByRole('button', { name: 'Clear the filters' }).click();
    await table.getByText('setting.change').first().waitFor();
    await view.close();
  });

  it('is read in Japanese on a phone', async () => {
    const view = await test.open('/admin/audit', { as: test.boss, language: 'ja', width: 390, height: 844 });
    await view.page.getByRole('table', { name: '監査ログの記録' }).waitFor();
    await view.expectAccessible();
    await view.expectNoOverflow();
    await view.close();
  });
});

describe('erasures', () => {
  it('of a community say in numbers what they delete, and can be held, released and cancelled', async () => {
    const view = await test.open('/admin/erasures', { as: test.boss });
    const { page } = view;
    await page.getByRole('button', { name: 'Erase a community' }).click();
    const dialog = page.getByRole('dialog', { name: 'Erase a whole community' });
    await dialog.getByRole('combobox', { name: 'Community' }).click();
    await page.getByRole('option', { name: 'art' }).click();
    await dialog.getByText(/^This deletes 0 events/).waitFor();
    const start = dialog.getByRole('button', { name: 'Erase the community' });
    expect(await start.isDisabled()).toBe(true);
    await dialog.getByLabel('Type art to confirm').fill('art');
    await start.click();
    const drawer = page.getByRole('dialog', { name: 'Erasure' });
    await drawer.getByText('Can be cancelled until').waitFor();
    await drawer.getByRole('button', { name: 'Hold' }).click();
    const hold = page.getByRole('dialog', { name: 'Hold this erasure?' });
    await hold.getByLabel('Legal reason').fill('court order 7');
    await hold.getByRole('button', { name: 'Hold' }).click();
    await drawer.getByText(/court order 7/).waitFor();
    await view.expectAccessible();
    await drawer.getByRole('button', { name: 'Release' }).click();
    await drawer.getByRole('button', { name: 'Cancel the erasure' }).click();
    await page.getByRole('button', { name: 'Yes, cancel it' }).click();
    await drawer.getByText('Cancelled').waitFor();
    await view.close();
  });

  it('have certificates that a viewer verifies, in Japanese', async () => {
    const as = await test.giveRole('viewer');
    const view = await test.open('/admin/erasures', { as, language: 'ja' });
    const { page } = view;
    await page.getByRole('button', { name: '検証する' }).first().click();
    await page.getByText('証明書は有効です。', { exact: false }).waitFor();
    expect(await page.getByRole('tab').count()).toBe(1);
    await view.expectAccessible();
    await view.close();
  });

  it('show their stores and the alarms on a phone', async () => {
    const { items } = await ask<{ items: { erasure_id: string }[] }>('/v1/admin/erasure-certificates');
    const path = `/admin/erasures?erasure=${items[0]!.erasure_id}`;
    const view = await test.open(path, { as: test.boss, width: 390, height: 844, isDark: true });
    const { page } = view;
    await page.getByRole('table', { name: 'Stores' }).getByText('postgres:events', { exact: true }).waitFor();
    await view.expectAccessible();
    await page.keyboard.press('Escape');
    await page.getByRole('tab', { name: 'Alarms' }).click();
    await page.getByRole('heading', { name: 'No alarms' }).waitFor();
    await view.expectNoOverflow();
    await view.close();
  });
});
