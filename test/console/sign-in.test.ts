/** Getting into the console: the first set-up, each way to sign in, and what nobody gets without it. */
import { once } from 'node:events';
import { nip19, nip44 } from 'nostr-tools';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import WebSocket from 'ws';
import { makeLink } from '../../src/sessions/links.sql.js';
import { openSetup } from '../../src/setup/setup.sql.js';
import { type ConsoleTest, startConsole } from '../support/console.js';
import { type Author, newAuthor, sign } from '../support/events.js';

describe('the sign-in', () => {
  let test: ConsoleTest;
  beforeAll(async () => {
    test = await startConsole();
  });
  afterAll(() => test?.close());

  it('by an extension starts a session, which a reload keeps and signing out ends', async () => {
    const view = await test.open('/admin/', { extension: test.boss });
    await view.expectAccessible();
    await view.page.getByRole('button', { name: 'Sign in' }).click();
    await view.page.getByRole('navigation', { name: 'Pages' }).waitFor();
    await view.page.reload();
    await view.page.getByRole('button', { name: 'Operator' }).click();
    await view.page.getByRole('menuitem', { name: 'Sign out' }).click();
    await view.page.getByRole('heading', { name: 'Sign in' }).waitFor();
    await view.close();
  });

  it('refuses a key without a role, and says so', async () => {
    const view = await test.open('/admin/', { extension: newAuthor() });
    await view.page.getByRole('button', { name: 'Sign in' }).click();
    await view.page.getByRole('alert').getByText('OPERATORS_ONLY').waitFor();
    await view.close();
  });

  it('by the link of the command works once, and leaves no code in the address', async () => {
    const viewer = await test.giveRole('viewer');
    const { pool } = test.node.database;
    const made = await makeLink(pool, { community: 1, pubkey: viewer.pubkey }, Date.now());
    if (!('code' in made)) throw new Error('no link');
    const path = `/admin/#code=${made.code}`;
    const view = await test.open(path, { language: 'ja' });
    await view.page.getByRole('button', { name: 'サインイン' }).click();
    await view.page.getByRole('button', { name: '閲覧者' }).waitFor();
    expect(view.page.url()).not.toContain(made.code);
    await view.close();
    const again = await test.open(path);
    await again.page.getByRole('button', { name: 'Sign in' }).click();
    await again.page.getByRole('alert').getByText('INVALID_LINK').waitFor();
    await again.close();
  });

  it('by a remote signer goes over the relay of the node itself', async () => {
    const operator = await test.giveRole('operator');
    const signer = await startRemoteSigner(test.node.url, operator);
    const view = await test.open('/admin/');
    await view.page.getByRole('link', { name: 'Remote signer' }).click();
    await view.page.getByLabel('Address of the signer').fill(signer.address);
    await view.expectAccessible();
    await view.page.getByRole('button', { name: 'Connect' }).click();
    await view.page.getByRole('navigation', { name: 'Pages' }).waitFor();
    expect(new URL(view.page.url()).pathname).not.toContain('remote');
    signer.close();
    await view.close();
  });

  it('a request without the token of the session is refused', async () => {
    const view = await test.open('/admin/', { as: test.boss });
    const status = await view.page.evaluate(
      `fetch('/v1/admin/session', { method: 'DELETE' }).then((r) => r.status)`,
    );
    expect(status).toBe(403);
    await view.close();
  });

  it('at the address of a community is for that community', async () => {
    const { status } = await fetch(`${test.node.http}/c/nowhere/admin/`);
    expect(status).toBe(404);
  });

  it('at phone width fits the screen, and the keys open help and the finder', async () => {
    const phone = await test.open('/admin/', { as: test.boss, width: 390, height: 844 });
    await phone.page.getByRole('button', { name: 'Open the navigation' }).waitFor();
    await phone.expectNoOverflow();
    await phone.close();
    const view = await test.open('/admin/', { as: test.boss });
    await view.page.getByRole('navigation', { name: 'Pages' }).waitFor();
    await view.page.keyboard.press('?');
    await view.page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor();
    await view.page.keyboard.press('Escape');
    await view.page.getByRole('dialog').waitFor({ state: 'detached' });
    await view.page.keyboard.press('/');
    await view.page.getByRole('dialog', { name: 'Find a page' }).waitFor();
    await view.close();
  });
});

describe('the first set-up', () => {
  it('leads from the link to a signed-in operator; then the link is dead', async () => {
    const test = await startConsole({ env: { MINATO_ADMIN_PUBKEYS: '' } });
    const code = (await openSetup(test.node.database.pool, { fixed: [] }))!;
    const operator = newAuthor();
    const without = await test.open('/admin/setup');
    await without.page.getByRole('heading', { name: 'This link no longer works' }).waitFor();
    await without.close();
    const view = await test.open(`/admin/setup#setup=${code}`, { extension: operator });
    const { page } = view;
    await page.getByRole('button', { name: 'Use the key of my extension' }).click();
    await expect
      .poll(() => page.getByLabel('Public key').inputValue())
      .toBe(nip19.npubEncode(operator.pubkey));
    await view.expectAccessible();
    const next = () => page.getByRole('button', { name: 'Next' }).click();
    await next();
    await page.getByLabel('Name of the community').fill('Old Harbour');
    await next();
    await page.getByLabel('By topic').check();
    await page.getByLabel('First topics').fill('ships\ntea\n');
    await view.expectAccessible();
    await next();
    await page.getByLabel('Title').fill('Terms');
    await page.getByLabel('Text').fill('Be kind.');
    await page.getByRole('button', { name: 'Set up the node' }).click();
    await page.getByRole('heading', { name: 'The node is set up' }).waitFor();
    await page.getByRole('link', { name: 'Sign in' }).click();
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('button', { name: 'Operator' }).waitFor();
    await view.close();
    const community = test.node.node.communities.find(undefined, undefined)!;
    expect(community.settings['relay.name']).toBe('Old Harbour');
    expect(community.settings['topic.mode']).toBe('required');
    const dead = await test.open(`/admin/setup#setup=${code}`, { language: 'ja' });
    await dead.page.getByRole('heading', { name: 'このリンクはもう使えません' }).waitFor();
    await dead.close();
    await test.close();
  });
});

/** A remote signer (NIP-46) that signs everything for this key, reached over this relay. */
async function startRemoteSigner(relay: string, author: Author) {
  const signer = newAuthor();
  const socket = new WebSocket(relay);
  await once(socket, 'open');
  const now = Math.floor(Date.now() / 1_000);
  socket.send(JSON.stringify(['REQ', 'asked', { kinds: [24_133], '#p': [signer.pubkey], since: now - 10 }]));
  socket.on('message', (data) => {
    const [type, , event] = JSON.parse(String(data)) as [string, string, ReturnType<typeof sign>];
    if (type !== 'EVENT') return;
    const key = nip44.getConversationKey(signer.secret, event.pubkey);
    const { id, method, params } = JSON.parse(nip44.decrypt(event.content, key)) as {
      id: string;
      method: string;
      params: string[];
    };
    const result =
      method === 'sign_event'
        ? JSON.stringify(sign(author, JSON.parse(params[0]!)))
        : method === 'get_public_key'
          ? author.pubkey
          : 'ack';
    const content = nip44.encrypt(JSON.stringify({ id, result }), key);
    const answer = sign(signer, { kind: 24_133, content, tags: [['p', event.pubkey]] });
    socket.send(JSON.stringify(['EVENT', answer]));
  });
  const address = `bunker://${signer.pubkey}?relay=${encodeURIComponent(relay)}`;
  return { address, close: () => socket.close() };
}
