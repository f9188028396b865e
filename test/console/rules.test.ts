/** Rules and batches in Chromium: write, try, enable, delete; preview, start, undo. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { type ConsoleTest, startConsole } from '../support/console.js';
import { type Author, newAuthor, sign } from '../support/events.js';

const FAR = { timeout: 240_000 };
let test: ConsoleTest;
let client: RawClient;
let operator: Author;
let moderator: Author;

beforeAll(async () => {
  test = await startConsole();
  client = await RawClient.connect(test.node.url);
  operator = await test.giveRole('operator');
  moderator = await test.giveRole('moderator');
}, FAR.timeout);
afterAll(async () => {
  await client?.close();
  await test?.close();
});

async function post(content: string): Promise<NostrEvent> {
  const event = sign(newAuthor(), { content });
  expect(await client.publish(event)).toEqual([true, '']);
  return event;
}
const untilServed = (event: NostrEvent, expected: boolean) =>
  eventually(`served: ${expected}`, async () =>
    ((await client.query({ ids: [event.id] })).events.length === 1) === expected ? true : undefined,
  );

describe('a rule', FAR, () => {
  it('is tried while it is written, enabled, and deleted with what it releases in numbers', async () => {
    await post('the roulette of the sea');
    await post('a quiet day');
    const view = await test.open('/admin/rules', { as: operator });
    const { page } = view;
    await page.getByText('There are no rules yet').waitFor();
    await view.expectAccessible();
    await page.getByRole('link', { name: 'New rule' }).first().click();
    await page.getByRole('textbox', { name: 'Name' }).fill('No roulette');
    await page.getByText('Fill in at least one condition').waitFor();
    await page.getByRole('combobox', { name: 'Words' }).fill('roulette');
    await page.getByRole('combobox', { name: 'Words' }).press('Enter');
    await page.getByText('1 of 2 posts').waitFor();
    await page.getByText('the roulette of the sea').waitFor();
    await view.expectAccessible();
    await page.getByRole('button', { name: 'Save and enable' }).click();
    await page.getByText('“No roulette” applies to new posts from now on.').waitFor();
    const held = await post('roulette tonight');
    await untilServed(held, false);
    await page.getByRole('link', { name: 'All rules' }).click();
    await page.getByRole('switch', { name: 'Enable the rule “No roulette”' }).waitFor();
    await page.getByRole('button', { name: 'Delete the rule “No roulette”' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Held posts that will be published: 1').waitFor();
    const confirm = dialog.getByRole('button', { name: 'Delete' });
    expect(await confirm.isDisabled()).toBe(true);
    await dialog.getByRole('textbox', { name: 'Type No roulette to confirm' }).fill('No roulette');
    await confirm.click();
    await page.getByText('There are no rules yet').waitFor();
    await untilServed(held, true);
    await view.close();
  });

  it('is read and tried by a moderator, in Japanese, but not written', async () => {
    const body = { name: 'Many boats', action: 'hold', conditions: { words: ['boat'] } };
    const made = await test.api.ask<{ rule_id: string }>('POST', '/v1/admin/moderation/rules', {
      as: operator,
      body,
    });
    const view = await test.open('/admin/rules', {
      as: moderator,
      language: 'ja',
      width: 390,
      height: 844,
    });
    const { page } = view;
    await page.getByRole('link', { name: 'Many boats' }).waitFor();
    expect(await page.getByRole('switch').isDisabled()).toBe(true);
    expect(await page.getByRole('link', { name: '新しいルール' }).count()).toBe(0);
    await view.expectNoOverflow();
    await view.expectAccessible();
    await page.getByRole('link', { name: 'Many boats' }).click();
    await page.getByText('変更できるのはオペレーターだけです').waitFor();
    await page.getByText(/件中 0 件/).waitFor();
    expect(await page.getByRole('button', { name: '保存', exact: true }).count()).toBe(0);
    await view.expectNoOverflow();
    await view.close();
    await test.api.ask('DELETE', `/v1/admin/moderation/rules/${made.body.rule_id}`, { as: operator });
  });
});

describe('a batch', FAR, () => {
  it('is previewed in numbers, started, followed, and undone', async () => {
    const posts = [await post('cheap anchors 1'), await post('cheap anchors 2')];
    const other = await post('my anchor is stuck');
    const view = await test.open('/admin/batches/new', { as: moderator });
    const { page } = view;
    await page.getByRole('combobox', { name: 'Words' }).fill('cheap anchors');
    await page.getByRole('combobox', { name: 'Words' }).press('Enter');
    await page.getByRole('combobox', { name: 'Action' }).click();
    await page.getByRole('option', { name: 'Remove' }).click();
    await page.getByRole('button', { name: 'Preview' }).click();
    await page.getByText(/^2 of \d+ posts$/).waitFor();
    await view.expectAccessible();
    await page.getByRole('button', { name: 'Start the batch' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('2 posts of 2 authors will be removed.').waitFor();
    await dialog.getByRole('textbox').fill('2');
    await dialog.getByRole('button', { name: 'Start the batch' }).click();
    await page.getByText('remove: removed').waitFor();
    await page.getByText('Done', { exact: true }).waitFor();
    await view.expectAccessible();
    for (const event of posts) await untilServed(event, false);
    await untilServed(other, true);
    await page.getByRole('link', { name: 'All batches' }).click();
    const row = page.getByRole('row').filter({ hasText: 'cheap anchors' });
    await row.getByRole('button', { name: 'Undo' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Undo' }).click();
    await page.getByText('The batch was undone.').waitFor();
    for (const event of posts) await untilServed(event, true);
    await view.close();
  });
});
