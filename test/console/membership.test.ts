/** Invites, plans and terms in a real browser. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ConsoleTest, startConsole } from '../support/console.js';
import { newAuthor } from '../support/events.js';

let test: ConsoleTest;
beforeAll(async () => {
  test = await startConsole();
});
afterAll(() => test?.close());

describe('invites', () => {
  it('show their code once, work, and can be revoked', async () => {
    const view = await test.open('/admin/invites', { as: test.boss });
    const { page } = view;
    await page.getByText('No invites yet').waitFor();
    await view.expectAccessible();
    for (let count = 0; count < 2; count += 1) {
      await page.getByRole('button', { name: 'Make an invite' }).first().click();
      await page.getByRole('dialog').getByRole('button', { name: 'Make an invite' }).click();
      const made = page.getByRole('dialog', { name: 'The invite is ready' });
      const code = (await made.locator('pre').first().textContent()) ?? '';
      expect(code.length).toBeGreaterThan(15);
      expect(await made.locator('pre').nth(1).textContent()).toContain(`/join/${code}`);
      await view.expectAccessible();
      await made.getByRole('button', { name: 'I have copied it' }).click();
      await made.waitFor({ state: 'detached' });
      expect(await page.getByText(code).count()).toBe(0);
    }
    await page.getByRole('button', { name: 'Revoke' }).first().click();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await page.getByText('The invite was revoked.').waitFor();
    await page.getByRole('table').getByText('Revoked').waitFor();
    await view.close();
  });

  it('are only read by viewers, in Japanese', async () => {
    const viewer = await test.giveRole('viewer');
    const view = await test.open('/admin/invites', { as: viewer, language: 'ja' });
    await view.page.getByRole('table', { name: '招待' }).getByText('未使用').waitFor();
    expect(await view.page.getByRole('button', { name: '招待を作成' }).count()).toBe(0);
    expect(await view.page.getByRole('button', { name: '無効にする' }).count()).toBe(0);
    await view.close();
  });
});

describe('plans', () => {
  it('are made, changed and removed after their id was typed', async () => {
    const view = await test.open('/admin/plans', { as: test.boss });
    const { page } = view;
    await page.getByRole('table', { name: 'Plans' }).getByText('built in').waitFor();
    await view.expectAccessible();
    await page.getByRole('button', { name: 'Make a plan' }).click();
    const make = page.getByRole('dialog', { name: 'Make a plan' });
    await make.getByLabel('Id').fill('pro');
    await make.getByLabel('Name').fill('Professional');
    await make.getByLabel('Topics at a time').fill('1200');
    await view.expectAccessible();
    await make.getByRole('button', { name: 'Save' }).click();
    const row = page.getByRole('row').filter({ hasText: 'Professional' });
    await row.getByText('1,200').waitFor();
    await row.getByRole('button', { name: 'Edit' }).click();
    const edit = page.getByRole('dialog', { name: 'Edit Professional' });
    await edit.getByLabel('Searches a day').fill('9');
    await edit.getByRole('button', { name: 'Save' }).click();
    await row.getByText('9', { exact: true }).waitFor();
    await row.getByRole('button', { name: 'Remove' }).click();
    const remove = page.getByRole('dialog', { name: 'Remove the plan Professional?' });
    expect(await remove.getByRole('button', { name: 'Remove' }).isDisabled()).toBe(true);
    await remove.getByLabel('Type pro').fill('pro');
    await remove.getByRole('button', { name: 'Remove' }).click();
    await row.waitFor({ state: 'detached' });
    await view.close();
  });

  it('have a webhook secret that is shown once, in Japanese', async () => {
    const view = await test.open('/admin/plans?tab=webhook', { as: test.boss, language: 'ja' });
    const { page } = view;
    await page.getByRole('button', { name: 'シークレットを作成' }).click();
    const shown = page.getByRole('dialog', { name: '新しいシークレット' });
    expect(((await shown.locator('pre').textContent()) ?? '').length).toBeGreaterThan(20);
    await shown.getByRole('button', { name: 'コピーしました' }).click();
    await page.getByText('シークレットは設定済みです').waitFor();
    await view.expectAccessible();
    await page.getByRole('button', { name: 'シークレットを削除' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'シークレットを削除' }).click();
    await page.getByText('シークレットは設定されていません').waitFor();
    await view.close();
  });

  it('show the usage of members, and viewers no webhook', async () => {
    const member = newAuthor();
    const about = `/v1/trust/report-based?subject=${member.pubkey}`;
    expect((await test.api.ask('GET', about, { as: member })).status).toBe(200);
    const view = await test.open('/admin/plans?tab=usage', { as: await test.giveRole('viewer') });
    const { page } = view;
    await page.getByRole('table', { name: 'Usage' }).getByText('Trust queries').waitFor();
    expect(await page.getByRole('tab').count()).toBe(2);
    await view.expectAccessible();
    await view.close();
  });
});

describe('terms', () => {
  it('go from a draft with texts to current, and members’ consents are listed', async () => {
    const view = await test.open('/admin/policies', { as: test.boss });
    const { page } = view;
    await page.getByText('No terms yet').waitFor();
    await page.getByRole('button', { name: 'New version' }).click();
    const make = page.getByRole('dialog', { name: 'New version' });
    await make.getByRole('textbox', { name: 'Version' }).fill('2031-05');
    await make.getByRole('button', { name: 'New version' }).click();
    await page.getByRole('heading', { level: 1, name: 'Terms 2031-05' }).waitFor();
    expect(await page.getByRole('button', { name: 'Publish' }).isDisabled()).toBe(true);
    for (const [tag, title] of [
      ['en', 'Terms of the harbour'],
      ['JA', '港の利用規約'],
    ] as const) {
      await page.getByRole('button', { name: 'Add a language' }).click();
      await page.getByRole('dialog').getByLabel('Language tag').fill(tag);
      await page.getByRole('dialog').getByRole('button', { name: 'Add' }).click();
      await page.getByRole('tabpanel', { name: tag.toLowerCase() }).waitFor();
      await page.getByLabel('Title').fill(title);
      await page.getByLabel('Text', { exact: false }).last().fill('Be kind to each other.');
      await page.getByRole('button', { name: 'Save the text' }).click();
      await page.getByText('SHA-256').waitFor();
    }
    await view.expectAccessible();
    await page.getByRole('button', { name: 'Publish' }).click();
    await page.getByRole('dialog').getByText('its 2 texts can no longer change').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Publish' }).click();
    await page.getByText('A published text can no longer change').waitFor();
    await page.getByRole('button', { name: 'Make current' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Type 2031-05').fill('2031-05');
    await dialog.getByRole('button', { name: 'Make current' }).click();
    await page.getByText('It is current now.').waitFor();
    await view.close();
  });

  it('list consents by member, in Japanese', async () => {
    const member = newAuthor();
    const body = { type: 'terms', version: '2031-05', locale: 'ja' };
    const given = await test.api.ask('POST', '/v1/consents', { as: member, body });
    expect(given.status).toBeLessThan(300);
    const view = await test.open('/admin/policies?tab=consents', { as: test.boss, language: 'ja' });
    await view.page.getByRole('table', { name: '同意' }).getByText('2031-05').waitFor();
    await view.expectAccessible();
    await view.close();
  });

  it('and the other pages fit on a phone', async () => {
    for (const path of [
      '/admin/policies',
      '/admin/policies/terms/2031-05',
      '/admin/plans',
      '/admin/invites',
    ]) {
      const view = await test.open(path, { as: test.boss, width: 390, height: 844, isDark: true });
      await view.page.getByRole('heading', { level: 1 }).waitFor();
      await view.page.getByRole('status').waitFor({ state: 'detached' });
      await view.expectNoOverflow();
      await view.expectAccessible();
      await view.close();
    }
  });
});
