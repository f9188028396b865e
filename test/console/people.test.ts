/** Requests and members in a real browser: the queue, the search, a member's page, disabling, erasing. */
import { randomUUID } from 'node:crypto';
import { npubEncode } from 'nostr-tools/nip19';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RawClient } from '../support/clients/client.js';
import { type ConsoleTest, startConsole } from '../support/console.js';
import { type Author, newAuthor, sign } from '../support/events.js';

/** For so long the pages take what they have read for fresh. */
const FRESH_MS = 6_000;
let test: ConsoleTest;
const hana = newAuthor();
const kenji = newAuthor();

beforeAll(async () => {
  test = await startConsole({ demo: true });
  const client = await RawClient.connect(test.node.url);
  for (const [author, name] of [
    [hana, 'Hana of the test'],
    [kenji, '試験の健二'],
  ] as const) {
    const content = JSON.stringify({ name, picture: 'https://pictures.invalid/me.png' });
    expect(await client.publish(sign(author, { kind: 0, content }))).toEqual([true, '']);
    for (let count = 0; count < 2; count += 1) await request(author);
  }
  client.close();
});
afterAll(() => test?.close());

async function request(as: Author): Promise<void> {
  const topic_id = `kukuri:${randomUUID().replaceAll('-', '').repeat(2)}`;
  const body = { topic_id };
  const { status } = await test.api.ask('POST', '/v1/topic-subscription-requests', { as, body });
  expect(status).toBe(201);
}

const statusesOf = async ({ pubkey }: Author): Promise<string[]> => {
  const path = `/v1/admin/topic-subscription-requests?pubkey=${pubkey}`;
  const { body } = await test.api.ask<{ items: { status: string }[] }>('GET', path, { as: test.boss });
  return body.items.map(({ status }) => status);
};

describe('requests', () => {
  it('are approved together, with a note', async () => {
    const view = await test.open('/admin/requests', { as: test.boss });
    const { page } = view;
    const rows = page.getByRole('row').filter({ hasText: 'Hana of the test' });
    await rows.nth(1).waitFor();
    await view.expectAccessible();
    for (const at of [0, 1]) await rows.nth(at).getByRole('checkbox').check();
    const selection = page.getByRole('region', { name: '2 selected' });
    await selection.getByRole('button', { name: 'Approve' }).click();
    const dialog = page.getByRole('dialog', { name: 'Approve 2 requests' });
    await dialog.getByLabel('Note to the members').fill('Welcome to the harbour');
    await view.expectAccessible();
    await dialog.getByRole('button', { name: 'Approve' }).click();
    await page.getByText('2 done, 0 refused').waitFor();
    expect(await statusesOf(hana)).toEqual(['active', 'active']);
    await view.close();
  });

  it('are rejected one by one, in Japanese', async () => {
    const view = await test.open('/admin/requests', { as: test.boss, language: 'ja' });
    const row = view.page.getByRole('row').filter({ hasText: '試験の健二' }).first();
    await row.getByRole('button', { name: '却下' }).click();
    const dialog = view.page.getByRole('dialog', { name: '1 件の申請を却下' });
    await dialog.getByRole('button', { name: '却下' }).click();
    await view.page.getByText('1 件を処理し、0 件は処理できませんでした').waitFor();
    expect((await statusesOf(kenji)).sort()).toEqual(['pending', 'rejected']);
    await view.close();
  });

  it('are only read by viewers', async () => {
    const view = await test.open('/admin/requests', { as: await test.giveRole('viewer') });
    await view.page.getByRole('row').filter({ hasText: '試験の健二' }).waitFor();
    expect(await view.page.getByRole('button', { name: 'Approve' }).count()).toBe(0);
    expect(await view.page.getByRole('checkbox').count()).toBe(0);
    await view.close();
  });
});

describe('members', () => {
  it('are found by name and key, and a link keeps the search', async () => {
    const view = await test.open('/admin/members', { as: test.boss });
    const { page } = view;
    const search = page.getByRole('textbox', { name: 'Search members' });
    await page.getByRole('table', { name: 'Members' }).waitFor();
    await view.expectAccessible();
    await search.fill('of the TEST');
    await page.waitForURL(/q=of/);
    await page.getByRole('link', { name: 'Hana of the test' }).waitFor();
    await expect.poll(() => page.getByRole('row').count()).toBe(2);
    await search.fill(npubEncode(kenji.pubkey));
    await page.getByRole('link', { name: '試験の健二' }).waitFor();
    await page.reload();
    await page.getByRole('link', { name: '試験の健二' }).waitFor();
    await search.fill('nobody has this name');
    await page.getByText('Nobody matches').waitFor();
    await view.close();
  });

  it('have a page with all that is known, whose tabs are accessible', async () => {
    const view = await test.open(`/admin/members/${hana.pubkey}`, { as: test.boss });
    const { page } = view;
    await page.getByRole('heading', { level: 1, name: 'Hana of the test' }).waitFor();
    // The address of the picture is text; nothing is loaded from there.
    await page.getByText('https://pictures.invalid/me.png').waitFor();
    await page.getByRole('table', { name: 'Subscriptions' }).getByText('Active').first().waitFor();
    for (const name of ['Plan and usage', 'Consents', 'Reports and cases', 'Data and sessions', 'Topics']) {
      await page.getByRole('tab', { name }).click();
      await page.getByRole('tabpanel').getByRole('heading').first().waitFor();
      await view.expectAccessible();
    }
    await view.close();
  });

  it('are edited, disabled with the numbers shown, and enabled again', async () => {
    const view = await test.open(`/admin/members/${hana.pubkey}`, { as: test.boss });
    const { page } = view;
    await page.getByRole('button', { name: 'Edit' }).click();
    const edit = page.getByRole('dialog', { name: 'Edit' });
    await edit.getByLabel('Name here').fill('hana');
    await edit.getByLabel('Note').fill('met at the pier');
    await edit.getByRole('button', { name: 'Save' }).click();
    await page.getByText('met at the pier').waitFor();
    await page.getByRole('button', { name: 'Actions' }).click();
    await page.getByRole('menuitem', { name: 'Disable' }).click();
    const dialog = page.getByRole('dialog', { name: 'Disable Hana of the test?' });
    await dialog.getByText('2 active subscriptions stop').waitFor();
    await dialog.getByRole('button', { name: 'Disable' }).click();
    await page.getByText('Disabled', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Actions' }).click();
    await page.getByRole('menuitem', { name: 'Enable' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Enable' }).click();
    await page.getByText('Active', { exact: true }).first().waitFor();
    await view.close();
  });

  it('are erased after the numbers were shown and the name was typed, in Japanese', async () => {
    const view = await test.open(`/admin/members/${kenji.pubkey}?tab=data`, {
      as: test.boss,
      language: 'ja',
    });
    const { page } = view;
    await page.getByRole('button', { name: '操作' }).click();
    await page.getByRole('menuitem', { name: '消去する' }).click();
    const dialog = page.getByRole('dialog', { name: '試験の健二 のデータを消去しますか' });
    await dialog.getByText('postgres:events', { exact: true }).waitFor();
    const confirm = dialog.getByRole('button', { name: '消去する' });
    expect(await confirm.isDisabled()).toBe(true);
    await dialog.getByLabel('確認のため').fill('試験の健二');
    await dialog.getByLabel('猶予期間').fill('7');
    await view.expectAccessible();
    await confirm.click();
    await page.getByRole('table', { name: 'データの消去' }).getByText('猶予期間').waitFor();
    await view.close();
  });

  it('show viewers neither actions nor notes', async () => {
    const view = await test.open(`/admin/members/${hana.pubkey}`, { as: await test.giveRole('viewer') });
    const { page } = view;
    await page.getByRole('heading', { level: 1, name: 'Hana of the test' }).waitFor();
    expect(await page.getByRole('button', { name: 'Actions' }).count()).toBe(0);
    expect(await page.getByText('met at the pier').count()).toBe(0);
    expect(await page.getByRole('tab').count()).toBe(3);
    await view.close();
  });

  it('fit on a phone, and in the dark', async () => {
    for (const path of ['/admin/requests', '/admin/members', `/admin/members/${hana.pubkey}`]) {
      const view = await test.open(path, { as: test.boss, width: 390, height: 844, isDark: true });
      await view.page.getByRole('table').first().waitFor();
      await view.expectNoOverflow();
      await view.expectAccessible();
      await view.close();
    }
  });
});

describe('a long list', () => {
  it('is not read again by itself, and its rows stay while those of other filters are read', async () => {
    await test.node.database.pool.query(
      `INSERT INTO members (community, pubkey, name, created_at, updated_at)
       SELECT 1, sha256(convert_to('member ' || n, 'UTF8')), 'keeper' || n, n, n
       FROM generate_series(1, 900) AS n`,
    );
    const view = await test.open('/admin/overview', { as: test.boss });
    const { page } = view;
    const asked: string[] = [];
    page.on('request', (request) => {
      if (request.url().includes('/v1/admin/members?')) asked.push(request.url());
    });
    await page.goto(`${test.node.http}/admin/members`);
    const last = page.getByRole('link', { name: 'keeper1', exact: true });
    const scroll = async () => {
      await page.evaluate('window.scrollTo(0, document.documentElement.scrollHeight)');
      return last.count();
    };
    await expect.poll(scroll, { timeout: 60_000 }).toBe(1);
    const pages = asked.length;
    expect(pages).toBeGreaterThan(3);

    let answer = () => {};
    const held = new Promise<void>((resolve) => {
      answer = resolve;
    });
    await page.route(/\/v1\/admin\/members\?.*status=disabled/, async (route) => {
      await held;
      await route.continue();
    });
    // Back at the tab after a while: the next request is that of the next filter, and the rows stay.
    await page.waitForTimeout(FRESH_MS);
    await page.evaluate(`document.dispatchEvent(new Event('visibilitychange', { bubbles: true }))`);
    await page.getByText('Disabled', { exact: true }).first().click();
    await page.locator('[data-loading] a').first().waitFor();
    expect(asked[pages]).toContain('status=disabled');
    answer();
    await page.locator('[data-loading]').waitFor({ state: 'detached' });
    await expect.poll(() => page.getByRole('link', { name: /^keeper/ }).count()).toBe(0);
    await view.close();
  });
});
