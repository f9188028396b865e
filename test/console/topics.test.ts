/** Topics and storage in a real browser: create, change with a preview of the purge, block, and the sizes. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ConsoleTest, startConsole } from '../support/console.js';

let test: ConsoleTest;
beforeAll(async () => {
  test = await startConsole({ demo: true });
});
afterAll(() => test?.close());

interface Topic {
  topic_id: string;
  name: string | null;
  events: number;
  blocked: boolean;
  ingest_policy: { retentionDays?: number; maxEvents?: number };
}

const topics = async () => {
  const path = '/v1/admin/node-subscriptions?limit=200';
  return (await test.api.ask<{ items: Topic[] }>('GET', path, { as: test.boss })).body.items;
};

/** The largest topic of the demo that has a name. */
async function largest(): Promise<Topic & { name: string }> {
  const named = (await topics()).filter((one): one is Topic & { name: string } => one.name !== null);
  return named.sort((a, b) => b.events - a.events)[0]!;
}

describe('topics', () => {
  it('are listed with their sizes, and an operator creates one', async () => {
    const view = await test.open('/admin/topics', { as: test.boss });
    const { page } = view;
    const { name } = await largest();
    await page.getByRole('button', { name, exact: true }).waitFor();
    await view.expectAccessible();
    await page.getByRole('button', { name: 'New topic' }).click();
    await page.getByLabel('Name or id').fill('night boats');
    await page.getByRole('dialog').getByRole('button', { name: 'New topic' }).click();
    await page.getByRole('button', { name: 'night boats' }).waitFor();
    expect((await topics()).some((one) => one.name === 'night boats')).toBe(true);
    await view.close();
  });

  it('show what a changed policy would purge, and save it only after the name was typed', async () => {
    const topic = await largest();
    expect(topic.events).toBeGreaterThan(3);
    const view = await test.open(`/admin/topics?topic=${encodeURIComponent(topic.topic_id)}`, {
      as: test.boss,
    });
    const { page } = view;
    const drawer = page.getByRole('dialog', { name: 'Topic' });
    await drawer.getByLabel('Most events').fill('2');
    await drawer.getByRole('button', { name: 'What would this purge?' }).click();
    await drawer.getByText(/^To fit below the new limits/).waitFor();
    await view.expectAccessible();
    await drawer.getByRole('button', { name: 'Save' }).click();
    const confirm = page.getByRole('dialog', { name: 'Save and purge?' });
    const save = confirm.getByRole('button', { name: 'Save and purge' });
    await confirm.getByText(/^To fit below the new limits/).waitFor();
    expect(await save.isDisabled()).toBe(true);
    await confirm.getByLabel(/^Type .* to confirm$/).fill(topic.name);
    await save.click();
    await page.getByText('Saved.').waitFor();
    const changed = (await topics()).find(({ topic_id }) => topic_id === topic.topic_id)!;
    expect(changed.ingest_policy.maxEvents).toBe(2);
    await view.close();
  });

  it('are blocked and unblocked in Japanese', async () => {
    const { topic_id } = (await topics()).find(({ name }) => name === 'night boats')!;
    const path = `/admin/topics?topic=${encodeURIComponent(topic_id)}`;
    const view = await test.open(path, { as: test.boss, language: 'ja' });
    const { page } = view;
    await page.getByRole('button', { name: 'ブロック', exact: true }).click();
    const confirm = page.getByRole('dialog', { name: 'このトピックをブロックしますか' });
    await confirm.getByLabel('理由').fill('迷惑行為');
    await confirm.getByLabel('確認のため night boats と入力してください').fill('night boats');
    await confirm.getByRole('button', { name: 'ブロック', exact: true }).click();
    await page.getByText('トピックをブロックしました。').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'ブロックを解除' }).click();
    await page.getByText('ブロックを解除しました。').waitFor();
    expect((await topics()).find((one) => one.topic_id === topic_id)!.blocked).toBe(false);
    await view.close();
  });

  it('are read by a viewer, who changes nothing, also on a phone in the dark', async () => {
    const as = await test.giveRole('viewer');
    const view = await test.open('/admin/topics', { as, width: 390, height: 844, isDark: true });
    const { page } = view;
    const { name } = await largest();
    await page.getByRole('button', { name, exact: true }).click();
    await page.getByText('Only operators may change topics.').waitFor();
    expect(await page.getByRole('button', { name: 'Save' }).count()).toBe(0);
    expect(await page.getByRole('button', { name: 'New topic' }).count()).toBe(0);
    await view.expectAccessible();
    await view.expectNoOverflow();
    await view.close();
  });
});

describe('storage', () => {
  it('shows an operator of the node sizes, partitions and what would be purged', async () => {
    const view = await test.open('/admin/storage', { as: test.boss });
    const { page } = view;
    const partitions = page.getByRole('table', { name: 'Partitions' });
    await partitions.getByText('Up to 30 days').first().waitFor();
    await page.getByRole('button', { name: 'Count now' }).click();
    await page
      .getByRole('table', { name: 'What would be purged now' })
      .or(page.getByText('Nothing is due.'))
      .first()
      .waitFor();
    await view.expectAccessible();
    await view.close();
  });

  it('shows a viewer what the community keeps, in Japanese and on a phone', async () => {
    const as = await test.giveRole('viewer');
    const view = await test.open('/admin/storage', { as, language: 'ja', width: 390, height: 844 });
    const { page } = view;
    await page.getByRole('table', { name: '保存期間' }).getByText('通常のイベント').waitFor();
    expect(await page.getByRole('table', { name: 'パーティション' }).count()).toBe(0);
    await view.expectAccessible();
    await view.expectNoOverflow();
    await view.close();
  });
});
