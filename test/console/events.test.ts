/**
 * Events, search and trust in the console: found by what one has, the life of one event with who sees it, and
 * what each role may see; in both languages, on a phone, and for readers who cannot see.
 */
import { neventEncode, npubEncode } from 'nostr-tools/nip19';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RawClient } from '../support/clients/client.js';
import { type ConsoleTest, startConsole } from '../support/console.js';
import { type Author, newAuthor, sign } from '../support/events.js';

let test: ConsoleTest;
const author: Author = newAuthor();
const [kept, deleted] = ['harbour lantern at dusk', 'never mind this'].map((content) =>
  sign(author, { content }),
);
const request = sign(author, { kind: 5, tags: [['e', deleted!.id]], content: '' });
const secret = sign(author, { kind: 4, tags: [['p', newAuthor().pubkey]], content: 'between us' });

beforeAll(async () => {
  test = await startConsole({ demo: true, trust: true });
  const client = await RawClient.connect(test.node.url);
  for (const event of [kept!, deleted!, request, secret]) expect((await client.publish(event))[0]).toBe(true);
  await client.close();
});
afterAll(() => test?.close());

describe('the finder', () => {
  it('lists what is stored, finds by words, and keeps its filters in the address', async () => {
    const view = await test.open('/admin/events', { as: test.boss });
    const { page } = view;
    await page.getByRole('table', { name: 'Stored events' }).waitFor();
    await view.expectAccessible();
    await page.getByLabel('Find').fill('harbour lantern');
    await page.getByRole('link', { name: kept!.content }).waitFor();
    await page.waitForURL(/text=harbour/);
    await page.reload();
    await page.getByRole('link', { name: kept!.content }).waitFor();
    expect(await page.getByLabel('Find').inputValue()).toBe('harbour lantern');
    await page.getByRole('button', { name: 'Reset filters' }).click();
    await page.waitForURL((url) => url.search === '');
    await view.close();
  });

  it('takes an npub as the author, and lists what was deleted without its content', async () => {
    const view = await test.open('/admin/events', { as: test.boss });
    const { page } = view;
    await page.getByLabel('Find').fill(npubEncode(author.pubkey));
    await page.getByRole('link', { name: kept!.content }).waitFor();
    await page.waitForURL(/author=npub1/);
    await page.getByText('only its author and recipients may read it').waitFor();
    await page.getByRole('combobox', { name: 'Show' }).click();
    await page.getByRole('option', { name: 'Deleted' }).click();
    await page.getByText('Its author deleted it').waitFor();
    expect(await page.content()).not.toContain(deleted!.content);
    await page.getByLabel('Kinds').fill('x');
    await page.getByText('Numbers with commas').waitFor();
    await view.close();
  });

  it('opens the page of an event from its nevent, and says so when nothing is known', async () => {
    const view = await test.open('/admin/events', { as: test.boss });
    const { page } = view;
    await page.getByLabel('Find').fill(neventEncode({ id: kept!.id }));
    await page.waitForURL(new RegExp(`/admin/events/${kept!.id}`));
    await page.getByRole('heading', { name: 'Note', exact: true }).waitFor();
    await page.goto(`${test.node.http}/admin/events/${'f'.repeat(64)}`);
    await page.getByRole('heading', { name: 'Nothing is known about this event' }).waitFor();
    await view.expectAccessible();
    await view.close();
  });

  it('works in Japanese and on a phone', async () => {
    const view = await test.open('/admin/events', { as: test.boss, language: 'ja', width: 390, height: 844 });
    const { page } = view;
    await page.getByRole('table', { name: '保存されているイベント' }).waitFor();
    await view.expectNoOverflow();
    await page.getByLabel('検索').first().fill('harbour lantern');
    await page.getByRole('link', { name: kept!.content }).click();
    await page.getByRole('heading', { name: 'これまでの経過' }).waitFor();
    await view.expectNoOverflow();
    await view.expectAccessible();
    await view.close();
  });
});

describe('the page of an event', () => {
  it('has its life, its readers, its JSON, and what keeps it out', async () => {
    const view = await test.open(`/admin/events/${deleted!.id}`, { as: test.boss, isDark: true });
    const { page } = view;
    const life = page.getByRole('list', { name: 'What happened to it' });
    await life.getByText('Deletion requested').waitFor();
    expect(await life.getByRole('listitem').count()).toBe(3);
    await page.getByText('blocked: deleted by its author').waitFor();
    const readers = page.getByRole('table', { name: 'Readers of this event' });
    await readers.getByText('Its author deleted it').first().waitFor();
    expect(await page.content()).not.toContain(deleted!.content);
    await view.expectAccessible();
    await life
      .getByRole('link', { name: new RegExp(`^${request.id.slice(0, 8)}`) })
      .first()
      .click();
    await page.getByRole('heading', { name: 'Deletion request' }).waitFor();
    await page.getByRole('button', { name: 'Raw JSON' }).click();
    await page.getByText(`"id": "${request.id}"`).waitFor();
    await view.expectAccessible();
    await view.close();
  });

  it('shows what another key would see', async () => {
    const view = await test.open(`/admin/events/${secret.id}`, { as: test.boss });
    const { page } = view;
    await page.getByText('Private: only its author and recipients may read it.').waitFor();
    await page.getByLabel('Check for another key').fill(npubEncode(author.pubkey));
    const asked = page.getByRole('row', { name: /This key/ });
    await asked.getByText('Served', { exact: true }).waitFor();
    await page.waitForURL(/reader=npub1/);
    expect(await page.content()).not.toContain(secret.content);
    await view.close();
  });

  it('shows a viewer the event and its readers, and not the moderation', async () => {
    const viewer = await test.giveRole('viewer');
    const view = await test.open(`/admin/events/${kept!.id}`, { as: viewer });
    const { page } = view;
    await page.getByText('Moderators and operators see what happened to it.').waitFor();
    await page
      .getByRole('row', { name: /Anybody/ })
      .getByText('Served', { exact: true })
      .waitFor();
    await view.close();
  });
});

describe('the search', () => {
  it('finds what members find, in English and Japanese', async () => {
    const view = await test.open('/admin/search', { as: test.boss });
    const { page } = view;
    await page.getByRole('heading', { name: 'Search as your members do' }).waitFor();
    await page.getByLabel('Words').fill('harbour lantern');
    await page.getByRole('list', { name: 'Results' }).getByText(kept!.content).waitFor();
    await page.waitForURL(/q=harbour/);
    await view.expectAccessible();
    await page.getByLabel('Words').fill('qqqqxyz');
    await page.getByRole('heading', { name: 'Nothing found' }).waitFor();
    await view.close();
    const other = await test.open('/admin/search?q=harbour', {
      as: test.boss,
      language: 'ja',
      width: 390,
      height: 844,
    });
    await other.page.getByRole('list', { name: '検索結果' }).waitFor();
    await other.expectNoOverflow();
    await other.expectAccessible();
    await other.close();
  });
});

describe('the trust', () => {
  it('of a member has both scores and what they are made of, in English and Japanese', async () => {
    const view = await test.open('/admin/trust', { as: await test.giveRole('viewer') });
    const { page } = view;
    await page.getByRole('heading', { name: 'Look up a person' }).waitFor();
    await view.expectAccessible();
    await page.getByLabel('Person').fill('nobody');
    await page.getByRole('button', { name: 'Show trust' }).click();
    await page.getByText('Not a public key').waitFor();
    await page.getByLabel('Person').fill(npubEncode(await someTalker()));
    await page.getByRole('button', { name: 'Show trust' }).click();
    await page.getByRole('region', { name: 'Reports and labels' }).getByText(/^Rank/).waitFor();
    await page.getByRole('table', { name: 'Ties' }).waitFor();
    await view.expectAccessible();
    const { url } = { url: new URL(page.url()).pathname };
    await view.close();
    const other = await test.open(url, {
      as: test.boss,
      language: 'ja',
      width: 390,
      height: 844,
      isDark: true,
    });
    await other.page.getByRole('heading', { name: '通報とラベル' }).waitFor();
    await other.expectNoOverflow();
    await other.expectAccessible();
    await other.close();
  });
});

/** Somebody of the demo who talks with another person. */
async function someTalker(): Promise<string> {
  const { rows } = await test.node.database.pool.query<{ pubkey: string }>(
    `SELECT encode(p.pubkey, 'hex') AS pubkey FROM trust_contacts c JOIN trust_people p ON p.id = c.author
     WHERE EXISTS (SELECT 1 FROM trust_contacts o WHERE o.author = c.named AND o.named = c.author) LIMIT 1`,
  );
  return rows[0]!.pubkey;
}
