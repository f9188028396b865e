/** Cases, held posts and labels in Chromium: the main tasks of moderators, in both languages. */
import { npubEncode } from 'nostr-tools/nip19';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { type ConsoleTest, startConsole } from '../support/console.js';
import { type Author, newAuthor, sign } from '../support/events.js';

const FAR = { timeout: 240_000 };
const MODERATION = '/v1/admin/moderation';
let test: ConsoleTest;
let client: RawClient;
let moderator: Author;

beforeAll(async () => {
  test = await startConsole();
  client = await RawClient.connect(test.node.url);
  moderator = await test.giveRole('moderator');
}, FAR.timeout);
afterAll(async () => {
  await client?.close();
  await test?.close();
});

async function post(content: string, author = newAuthor()): Promise<NostrEvent> {
  const event = sign(author, { content });
  expect(await client.publish(event)).toEqual([true, '']);
  return event;
}
async function report({ id }: NostrEvent, reason = 'spam'): Promise<void> {
  const body = { event_id: id, reason, comment: 'look at this' };
  expect((await test.api.ask('POST', '/v1/reports', { as: newAuthor(), body })).status).toBe(201);
}
const isServed = async ({ id }: NostrEvent) => (await client.query({ ids: [id] })).events.length === 1;
const untilServed = (event: NostrEvent, expected: boolean) =>
  eventually(`served: ${expected}`, async () => ((await isServed(event)) === expected ? true : undefined));

describe('a case', FAR, () => {
  it('shows the text as text, is removed with one click, and that is undone', async () => {
    const event = await post('<img src="https://example.com/x.png"> buy my watches');
    for (let reports = 0; reports < 2; reports += 1) await report(event);
    const view = await test.open('/admin/cases', { as: moderator });
    const { page } = view;
    await page.getByText('2 reports, 0 with standing').waitFor();
    await view.expectAccessible();
    await page.getByRole('link', { name: 'buy my watches' }).click();
    await page.getByRole('heading', { name: 'Case about a post', level: 1 }).waitFor();
    await page.getByText('<img src="https://example.com/x.png"> buy my watches').waitFor();
    await view.expectAccessible();
    await page.getByRole('textbox', { name: 'Note' }).fill('third time');
    await page.getByRole('button', { name: 'Remove', exact: true }).click();
    await page.getByText('Removed: 1').waitFor();
    await page.getByText('third time').waitFor();
    expect(await isServed(event)).toBe(false);
    await page.getByRole('button', { name: 'Undo' }).click();
    await page.getByText('Undone', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Dismiss' }).waitFor();
    await untilServed(event, true);
    await view.close();
  });

  it('is found by filters that stay in the address', async () => {
    const [one, other] = [await post('a lone lighthouse'), await post('another boat')];
    await report(one, 'impersonation');
    await report(other, 'nudity');
    const view = await test.open('/admin/cases', { as: moderator });
    const { page } = view;
    await page.getByRole('link', { name: 'another boat' }).waitFor();
    await page.getByRole('textbox', { name: 'Author' }).fill(npubEncode(one.pubkey));
    await page.getByRole('textbox', { name: 'Author' }).press('Enter');
    await page.getByRole('link', { name: 'another boat' }).waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'a lone lighthouse' }).waitFor();
    expect(new URL(page.url()).searchParams.get('author')).toBe(one.pubkey);
    await page.reload();
    await page.getByRole('link', { name: 'a lone lighthouse' }).waitFor();
    await page.getByRole('combobox', { name: 'Reason of a report' }).click();
    await page.getByRole('option', { name: 'spam' }).click();
    await page.getByText('No case matches these filters').waitFor();
    await page.getByRole('button', { name: 'Clear the filters' }).click();
    await page.getByRole('link', { name: 'another boat' }).waitFor();
    await view.close();
  });

  it('is decided together with others, on a phone and in Japanese', async () => {
    const author = newAuthor();
    for (const text of ['first net', 'second net', 'third net']) await report(await post(text, author));
    const view = await test.open(`/admin/cases?author=${author.pubkey}`, {
      as: moderator,
      language: 'ja',
      width: 390,
      height: 844,
    });
    const { page } = view;
    await page.getByRole('link', { name: 'third net' }).waitFor();
    await view.expectNoOverflow();
    await view.expectAccessible();
    await page.getByRole('checkbox', { name: 'すべての行を選択' }).check();
    await page.getByText('3 件を選択中').waitFor();
    await page.getByRole('button', { name: '問題なしとする' }).click();
    await page.getByText('3 件を問題なしとしました').waitFor();
    await page.getByText('条件に合うケースはありません').waitFor();
    await view.close();
  });
});

describe('held posts', FAR, () => {
  const rule = { name: 'Prize draws', action: 'hold', conditions: { words: ['prize draw'] } };

  it('are released and removed, one or many', async () => {
    const { body } = await test.api.ask<{ rule_id: string }>('POST', `${MODERATION}/rules`, {
      as: test.boss,
      body: rule,
    });
    const path = `${MODERATION}/rules/${body.rule_id}`;
    await test.api.ask('POST', `${MODERATION}/rules/try`, {
      as: test.boss,
      body: { rule_id: body.rule_id, last: 1 },
    });
    await test.api.ask('PATCH', path, { as: test.boss, body: { enabled: true } });
    const [bad, ...good] = [
      await post('prize draw: send your key'),
      await post('the prize draw of the festival'),
      await post('no prize draw this year'),
    ];
    const view = await test.open('/admin/held', { as: moderator });
    const { page } = view;
    await page.getByText('prize draw: send your key').waitFor();
    await view.expectAccessible();
    const row = page.getByRole('row').filter({ hasText: 'send your key' });
    await row.getByRole('button', { name: 'Remove' }).click();
    await page.getByText('Removed: 1').waitFor();
    await row.waitFor({ state: 'detached' });
    await page.getByRole('checkbox', { name: 'Select all rows' }).check();
    await page.getByRole('region', { name: '2 selected' }).getByRole('button', { name: 'Release' }).click();
    await page.getByText('Published: 2').waitFor();
    await page.getByText('No post is held').waitFor();
    for (const event of good) await untilServed(event, true);
    expect(await isServed(bad!)).toBe(false);
    await view.close();
    await test.api.ask('DELETE', `${path}?keep=true`, { as: test.boss });
  });
});

describe('labels', FAR, () => {
  it('are put in a case, listed, withdrawn, and put again by undoing it', async () => {
    const event = await post('a picture of a mermaid');
    await report(event, 'nudity');
    const view = await test.open(`/admin/cases?author=${event.pubkey}`, { as: moderator });
    const { page } = view;
    await page.getByRole('link', { name: 'a picture of a mermaid' }).click();
    await page.getByRole('button', { name: 'Put a label' }).click();
    await page.getByRole('combobox', { name: 'Label' }).click();
    await page.getByRole('option', { name: 'Not safe for work' }).click();
    await page.getByRole('button', { name: 'Put this label' }).click();
    await page.getByText('Labelled: 1').waitFor();
    await page.goto(`${test.node.http}/admin/labels?person=${event.pubkey}`);
    const row = page.getByRole('row').filter({ hasText: 'Not safe for work' });
    await row.waitFor();
    await view.expectAccessible();
    await row.getByRole('button', { name: 'Withdraw' }).click();
    await page.getByText('No label is in force').waitFor();
    await page.getByRole('button', { name: 'Undo' }).click();
    await row.waitFor();
    await view.close();
  });
});

describe('a viewer', FAR, () => {
  it('has no pages of cases, and reads labels without acting on them', async () => {
    const event = await post('something odd');
    const { body } = await test.api.ask<{ case_id: string }>('POST', `${MODERATION}/cases`, {
      as: moderator,
      body: { event_id: event.id },
    });
    await test.api.ask('POST', `${MODERATION}/cases/${body.case_id}/actions`, {
      as: moderator,
      body: { action: 'label', label: { label: 'safe' } },
    });
    const viewer = await test.giveRole('viewer');
    const view = await test.open(`/admin/labels?person=${event.pubkey}`, { as: viewer });
    const { page } = view;
    await page.getByRole('row').filter({ hasText: 'Safe' }).waitFor();
    expect(await page.getByRole('button', { name: 'Withdraw' }).count()).toBe(0);
    const pages = page.getByRole('navigation', { name: 'Pages' });
    await pages.getByRole('link', { name: 'Labels' }).waitFor();
    for (const name of ['Cases', 'Held posts', 'Rules', 'Batches', 'Blocks'])
      expect(await pages.getByRole('link', { name, exact: true }).count(), name).toBe(0);
    await page.goto(`${test.node.http}/admin/cases`);
    await page.getByRole('alert').getByText('OPERATORS_ONLY').waitFor();
    await view.close();
  });
});
