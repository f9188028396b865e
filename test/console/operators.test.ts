/** Roles, sessions and blocks in Chromium, and what each role may not do there. */
import { npubEncode } from 'nostr-tools/nip19';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { type ConsoleTest, startConsole } from '../support/console.js';
import { newAuthor, sign } from '../support/events.js';

const FAR = { timeout: 240_000 };
const OPERATORS = '/v1/admin/operators';
let test: ConsoleTest;
let client: RawClient;

beforeAll(async () => {
  test = await startConsole();
  client = await RawClient.connect(test.node.url);
}, FAR.timeout);
afterAll(async () => {
  await client?.close();
  await test?.close();
});

async function roleOf(pubkey: string): Promise<string | undefined> {
  const { body } = await test.api.ask<{ items: { pubkey: string; role: string }[] }>('GET', OPERATORS, {
    as: test.boss,
  });
  return body.items.find((one) => one.pubkey === pubkey)?.role;
}

describe('a role', FAR, () => {
  it('is given, changed and taken away; fixed operators stay', async () => {
    const person = newAuthor();
    const profile = sign(person, { kind: 0, content: JSON.stringify({ name: 'Mina' }) });
    expect(await client.publish(profile)).toEqual([true, '']);
    const view = await test.open('/admin/operators', { as: test.boss });
    const { page } = view;
    const fixed = page.getByRole('row').filter({ hasText: 'Fixed' });
    await fixed.getByText('Operator', { exact: true }).waitFor();
    expect(await fixed.getByRole('button', { name: /^Take/ }).count()).toBe(0);
    await page.getByRole('textbox', { name: 'Public key' }).fill(npubEncode(person.pubkey));
    await page.getByRole('button', { name: 'Give the role' }).click();
    const row = page.getByRole('row').filter({ hasText: 'Mina' });
    await row.waitFor();
    await view.expectAccessible();
    expect(await roleOf(person.pubkey)).toBe('moderator');
    await row.getByRole('combobox', { name: /^Role of/ }).click();
    await page.getByRole('option', { name: 'Viewer' }).click();
    await page.getByText('The role is now: Viewer').waitFor();
    expect(await roleOf(person.pubkey)).toBe('viewer');
    await row.getByRole('button', { name: 'Take away: Mina' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('textbox').fill('Mina');
    await dialog.getByRole('button', { name: 'Take away' }).click();
    await row.waitFor({ state: 'detached' });
    expect(await roleOf(person.pubkey)).toBeUndefined();
    await view.close();
  });

  it('of a viewer shows who has which role, and the own sessions, and changes nothing else', async () => {
    const viewer = await test.giveRole('viewer');
    for (let sessions = 0; sessions < 2; sessions += 1)
      await test.api.ask('POST', '/v1/admin/session', { as: viewer });
    const view = await test.open('/admin/operators', {
      as: viewer,
      language: 'ja',
      width: 390,
      height: 844,
    });
    const { page } = view;
    await page.getByText('このブラウザー').waitFor();
    await view.expectNoOverflow();
    await view.expectAccessible();
    expect(await page.getByRole('button', { name: '役割を与える' }).count()).toBe(0);
    expect(await page.getByRole('button', { name: 'セッション' }).count()).toBe(0);
    const end = page.getByRole('button', { name: '終了' });
    await end.first().click();
    await page.getByText('セッションを終了しました。').waitFor();
    await eventually('one is left to end', async () => ((await end.count()) === 1 ? true : undefined));
    await view.close();
  });

  it('comes with sessions, which an operator ends', async () => {
    const moderator = await test.giveRole('moderator');
    const open = await test.open('/admin/operators', { as: moderator });
    await open.page.getByText('This browser').waitFor();
    const view = await test.open('/admin/operators', { as: test.boss });
    const { page } = view;
    const short = npubEncode(moderator.pubkey).slice(0, 10);
    await page.getByRole('row').filter({ hasText: short }).getByRole('button', { name: 'Sessions' }).click();
    await page.getByRole('button', { name: 'End all sessions of this key (1)' }).click();
    await page.getByText('Sessions ended: 1').waitFor();
    await open.page.reload();
    await open.page.getByRole('heading', { name: 'Sign in' }).waitFor();
    await open.close();
    await view.close();
  });
});

describe('a block', FAR, () => {
  const isAccepted = async (content: string) =>
    (await client.publish(sign(newAuthor(), { content })))[0] === true;
  const untilAccepted = (content: string, expected: boolean) =>
    eventually(`accepted: ${expected}`, async () =>
      (await isAccepted(`${content} ${Math.random()}`)) === expected ? true : undefined,
    );

  it('of a word refuses posts until it is taken away, and comes back by undoing that', async () => {
    const operator = await test.giveRole('operator');
    const view = await test.open('/admin/blocks?kind=words', { as: operator });
    const { page } = view;
    await page.getByText('No word is blocked').waitFor();
    await page.getByRole('textbox', { name: 'Word' }).fill('barnacle');
    await page.getByRole('textbox', { name: 'Reason' }).fill('too many of them');
    await page.getByRole('button', { name: 'Block', exact: true }).click();
    const row = page.getByRole('row').filter({ hasText: 'too many of them' });
    await row.waitFor();
    await view.expectAccessible();
    await untilAccepted('a barnacle', false);
    await row.getByRole('button', { name: 'Unblock barnacle' }).click();
    await page.getByText('No word is blocked').waitFor();
    await untilAccepted('a barnacle', true);
    await page.getByRole('button', { name: 'Undo' }).click();
    await row.waitFor();
    await untilAccepted('a barnacle', false);
    await view.close();
  });

  it('is seen by a moderator, who cannot change it', async () => {
    const moderator = await test.giveRole('moderator');
    const view = await test.open('/admin/blocks', { as: moderator, language: 'ja' });
    const { page } = view;
    await page.getByText('ブロック中の投稿者はいません').waitFor();
    await page.getByRole('tab', { name: '言葉' }).click();
    await page.getByText('barnacle').waitFor();
    expect(new URL(page.url()).searchParams.get('kind')).toBe('words');
    expect(await page.getByRole('button', { name: 'ブロックする' }).count()).toBe(0);
    expect(await page.getByRole('button', { name: /解除/ }).count()).toBe(0);
    await view.close();
  });
});
