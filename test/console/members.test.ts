/** The members' pages in a real browser: a whole way, remote signers, phones, and what others write. */
import { mkdir } from 'node:fs/promises';
import { useWebSocketImplementation } from 'nostr-tools/pool';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import WebSocket from 'ws';
import { isDenial } from '../../src/api/rules-errors.js';
import { writeSetting } from '../../src/communities/communities.sql.js';
import type { SettingKey } from '../../src/communities/rules-settings.js';
import { createInvite } from '../../src/members/invites.sql.js';
import { createPolicy, makeCurrent, publishPolicy, writeText } from '../../src/policies/policies.sql.js';
import { createNodeTopic } from '../../src/topics/node-topics.sql.js';
import { authenticate } from '../support/clients/auth.js';
import { startBunker } from '../support/clients/bunker.js';
import { RawClient } from '../support/clients/client.js';
import { type ConsoleTest, startConsole } from '../support/console.js';
import { type Author, newAuthor, nowSeconds, sign } from '../support/events.js';
import { textsIn } from '../support/texts.js';

const BOATS = `kukuri:${'b'.repeat(64)}`;
const NAME = 'Harbour of boats';
const TERMS = { en: 'Be kind to one another.', ja: 'お互いに親切にしましょう。' };
const SHOTS = process.env.SCREENSHOTS;

useWebSocketImplementation(WebSocket);
let test: ConsoleTest;
const community = () => test.node.node.communities.find(undefined, undefined)!;
const pool = () => test.node.database.pool;

async function done<T>(work: Promise<T>): Promise<Exclude<T, { denied: unknown }>> {
  const result = await work;
  if (isDenial(result)) throw new Error(JSON.stringify(result));
  return result as Exclude<T, { denied: unknown }>;
}

async function settle(key: SettingKey, value: unknown): Promise<void> {
  await writeSetting(pool(), community().id, key, value, Date.now());
  const isSet = () => JSON.stringify(community().settings[key]) === JSON.stringify(value);
  await vi.waitUntil(isSet, { timeout: 60_000 });
}

beforeAll(async () => {
  test = await startConsole({ env: { MINATO_TOPIC_MODE: 'required', MINATO_AUTH_MODE: 'required' } });
  await settle('relay.name', NAME);
  await settle('relay.description', 'We talk about <b>boats</b>.');
  await settle('erasure.memberGraceDays', 0);
  const topic = { community: community().id, topic: BOATS, name: 'boats', public: false, pinned: true };
  await done(createNodeTopic(pool(), topic, { enabledMax: 100 }, Date.now()));
  const ref = { community: community().id, type: 'terms', version: '1' } as const;
  await done(createPolicy(pool(), ref, Date.now()));
  for (const [locale, content] of Object.entries(TERMS))
    await done(writeText(pool(), { ...ref, locale }, { title: `Terms ${locale}`, content }, Date.now()));
  await done(publishPolicy(pool(), ref, Date.now()));
  await done(makeCurrent(pool(), ref, Date.now()));
  await vi.waitUntil(() => community().policies.length === 1, { timeout: 60_000 });
});
afterAll(() => test?.close());

async function shot(page: Page, name: string): Promise<void> {
  if (SHOTS === undefined) return;
  await mkdir(SHOTS, { recursive: true });
  await page.screenshot({ path: `${SHOTS}/${name}.png`, fullPage: true });
}

/** A member who has agreed, with an approved subscription. */
async function newMember(): Promise<Author> {
  const as = newAuthor();
  const { body } = await test.api.ask<{ items: { content_hash: string }[] }>('GET', '/v1/policies/current');
  expect(body.items).toHaveLength(1);
  const agreed = { type: 'terms', version: '1', locale: 'en' };
  expect((await test.api.ask('POST', '/v1/consents', { as, body: agreed })).status).toBe(201);
  const asked = await test.api.ask<{ request: { request_id: string } }>(
    'POST',
    '/v1/topic-subscription-requests',
    { as, body: { topic_id: BOATS } },
  );
  await approve(asked.body.request.request_id);
  return as;
}

async function approve(id: string): Promise<void> {
  const path = `/v1/admin/topic-subscription-requests/${id}/approve`;
  const { status } = await test.api.ask('POST', path, { as: test.boss, body: { note: 'welcome' } });
  expect(status).toBe(200);
}

async function postAs(author: Author, content: string, createdAt = nowSeconds()) {
  const client = await RawClient.connect(test.node.url);
  expect(await authenticate(client, author, test.node.url)).toEqual([true, '']);
  const event = sign(author, { content, created_at: createdAt, tags: [['t', BOATS]] });
  await expect.poll(() => client.publish(event), { timeout: 60_000 }).toEqual([true, expect.any(String)]);
  await client.close();
  return event;
}

const article = (page: Page, text: string) => page.getByRole('article').filter({ hasText: text });

describe.each(['en', 'ja'] as const)("a member's way (%s)", (language) => {
  const t = textsIn(language);

  it('leads from the landing page to the certificate of the erasure', async () => {
    const alice = newAuthor();
    const view = await test.open('/', { extension: alice, language });
    const { page } = view;

    // What this community is; its description is text.
    await page.getByRole('heading', { name: NAME, level: 1 }).waitFor();
    await page.getByText('We talk about <b>boats</b>.').waitFor();
    await page.getByRole('img', { name: t('home:qrLabel', { address: '' }).trim() }).waitFor();
    await view.expectAccessible();
    await shot(page, 'landing');

    // Sign in, and ask for a topic by its name: the node asks for consent first.
    await page
      .getByRole('banner')
      .getByRole('button', { name: t('home:signIn') })
      .click();
    await page.getByRole('button', { name: t('home:withExtension') }).click();
    await page.getByRole('button', { name: t('home:me') }).waitFor();
    await page.getByLabel(t('home:askByName')).fill('Night boats');
    await page
      .getByRole('button', { name: t('home:ask') })
      .last()
      .click();
    await page.getByRole('dialog').getByText(TERMS[language]).waitFor();
    await view.expectAccessible();
    await page.getByRole('button', { name: t('home:agree') }).click();
    await page.getByText(t('home:asked')).waitFor();

    // The request is followed: it is approved without a reload.
    await page.getByRole('button', { name: t('home:me') }).click();
    await page.getByRole('menuitem', { name: t('home:mine') }).click();
    await page.getByText(t('home:requestStatus.pending'), { exact: true }).waitFor();
    const { body } = await test.api.ask<{ items: { request_id: string; topic_id: string }[] }>(
      'GET',
      '/v1/topic-subscription-requests',
      { as: alice },
    );
    await approve(body.items[0]!.request_id);
    await page.getByText(t('home:status.active'), { exact: true }).waitFor();
    await page.getByText(t('home:note', { note: 'welcome' })).waitFor();
    await view.expectAccessible();
    await shot(page, 'me');

    // Pause and resume.
    await page.getByRole('button', { name: t('home:pause') }).click();
    await page.getByText(t('home:status.paused'), { exact: true }).waitFor();
    await page.getByRole('button', { name: t('home:resume') }).click();
    await page.getByText(t('home:status.active'), { exact: true }).waitFor();

    // Read, post, reply, delete.
    await page.getByRole('link', { name: 'night boats' }).click();
    await page.getByRole('heading', { name: 'night boats', level: 1 }).waitFor();
    await page.getByLabel(t('home:newPost')).fill('The ferry is early today');
    await page.getByRole('button', { name: t('home:post'), exact: true }).click();
    const first = article(page, 'The ferry is early today');
    await first.first().waitFor();
    await first.getByRole('button', { name: t('home:reply') }).click();
    await first.getByLabel(t('home:newReply')).fill('And it is empty');
    await first.getByRole('button', { name: t('home:reply') }).click();
    await article(page, 'And it is empty').waitFor();
    await article(page, 'And it is empty').getByText('The ferry is early today').waitFor();
    await view.expectAccessible();
    await shot(page, 'topic');

    // The conversation has an address of its own.
    await article(page, 'And it is empty').getByRole('link').first().click();
    await page.getByRole('heading', { name: t('home:conversation'), level: 1 }).waitFor();
    await expect.poll(() => page.getByRole('article').count()).toBe(2);
    await page.locator('.answers .answers').getByText('And it is empty').waitFor();
    await view.expectAccessible();
    await shot(page, 'conversation');
    await page.getByRole('link', { name: 'night boats' }).click();
    const reply = article(page, 'And it is empty');
    await reply.getByRole('button', { name: t('home:actions') }).click();
    await page.getByRole('menuitem', { name: t('home:delete') }).click();
    await page
      .getByRole('dialog')
      .getByRole('button', { name: t('home:delete') })
      .click();
    await reply.waitFor({ state: 'detached' });

    // Search.
    await page.getByRole('link', { name: t('home:searchHere') }).click();
    await page.getByLabel(t('home:words')).fill('ferry');
    await expect
      .poll(
        async () => {
          await page
            .getByRole('button', { name: t('home:search'), exact: true })
            .last()
            .click();
          await page.reload();
          await page
            .getByText('The ferry is early')
            .or(page.getByText(t('home:foundNothing')))
            .waitFor();
          return article(page, 'The ferry is early').count();
        },
        { timeout: 60_000 },
      )
      .toBe(1);
    await view.expectAccessible();
    await shot(page, 'search');

    // A file of everything.
    await page.getByRole('button', { name: t('home:me') }).click();
    await page.getByRole('menuitem', { name: t('home:myData') }).click();
    await page.getByRole('button', { name: t('home:makeExport') }).click();
    const link = page.getByRole('link', { name: t('home:download', { size: '' }).split(/[(（]/)[0]!.trim() });
    await link.waitFor();
    const [file] = await Promise.all([page.waitForEvent('download'), link.click()]);
    expect(file.suggestedFilename()).toMatch(/\.zip$/);
    expect(await file.failure()).toBeNull();

    // Erase everything, with the name of the community typed.
    await page.getByRole('button', { name: t('home:erase'), exact: true }).click();
    const dialog = page.getByRole('dialog');
    const [counted] = t('home:eraseWhat', { events: '#', subscriptions: '' }).split('#');
    await dialog.getByText(`${counted}1`).waitFor();
    expect(await dialog.getByRole('button', { name: t('home:erase'), exact: true }).isDisabled()).toBe(true);
    await view.expectAccessible();
    await dialog.getByLabel(t('shared:typeName', { name: NAME })).fill(NAME);
    await dialog.getByRole('button', { name: t('home:erase'), exact: true }).click();
    await page.getByText(t('home:eraseStatus.done')).waitFor();
    await shot(page, 'data');
    const [certificate] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: t('home:certificate'), exact: true }).click(),
    ]);
    expect(certificate.suggestedFilename()).toMatch(/^erasure-.*\.json$/);
    expect(await certificate.failure()).toBeNull();
    await page.reload();
    await page.getByText(t('home:eraseStatus.done')).waitFor();
    await view.expectAccessible();
    await view.close();
  });
});

describe.each(['en', 'ja'] as const)('a member (%s)', (language) => {
  const t = textsIn(language);

  async function signedIn(as: Author, path: string) {
    const view = await test.open('/', { extension: as, language });
    await signInAt(view.page, t);
    await view.page.goto(test.node.http + path);
    return view;
  }

  it('ends a subscription after a question', async () => {
    const alice = await newMember();
    const view = await signedIn(alice, '/me');
    const { page } = view;
    await page.getByRole('button', { name: t('home:end'), exact: true }).click();
    const dialog = page.getByRole('dialog', { name: t('home:endTitle', { topic: 'boats' }) });
    await dialog.getByText(t('home:endAbout')).waitFor();
    await view.expectAccessible();
    await dialog.getByRole('button', { name: t('home:end'), exact: true }).click();
    await page.getByText(t('home:ended')).waitFor();
    await page.getByText(t('home:noSubscriptions'), { exact: true }).waitFor();
    const { body } = await test.api.ask<{ items: { status: string }[] }>('GET', '/v1/topic-subscriptions', {
      as: alice,
    });
    expect(body.items.map(({ status }) => status)).toEqual(['ended']);
    await view.close();
  });

  it('withdraws the consent, can no longer read, and agrees again', async () => {
    const view = await signedIn(await newMember(), '/me/terms');
    const { page } = view;
    await page.getByText(TERMS[language]).waitFor();
    await page.getByRole('button', { name: t('home:withdraw') }).click();
    const dialog = page.getByRole('dialog', { name: t('home:withdrawTitle') });
    await dialog.getByText(t('home:withdrawAbout')).waitFor();
    await dialog.getByRole('button', { name: t('home:withdraw') }).click();
    await page.getByRole('button', { name: t('home:agree') }).waitFor();
    await page.goto(`${test.node.http}/topics/${BOATS}`);
    await page.getByText(t('home:termsFirst')).waitFor();
    expect(await page.getByRole('article').count()).toBe(0);
    await view.expectAccessible();
    await page.getByRole('button', { name: t('home:agree') }).click();
    await page.getByLabel(t('home:newPost')).waitFor();
    await view.close();
  });

  it('appeals against a decision, and reads that it was settled', async () => {
    const alice = await newMember();
    const post = await postAs(alice, `a post that is removed (${language})`);
    const decide = (path: string, body: object) =>
      test.api.ask<{ case_id: string }>('POST', `/v1/admin/moderation/cases${path}`, { as: test.boss, body });
    const { case_id } = (await decide('', { event_id: post.id })).body;
    expect((await decide(`/${case_id}/actions`, { action: 'remove' })).status).toBe(201);
    const view = await signedIn(alice, '/me/moderation');
    const { page } = view;
    await page.getByText(t('home:decision.remove')).waitFor();
    await page.getByRole('button', { name: t('home:appeal'), exact: true }).click();
    const dialog = page.getByRole('dialog', { name: t('home:appeal') });
    await dialog.getByLabel(t('home:appealWhy')).fill('it was about a real boat');
    await view.expectAccessible();
    await dialog.getByRole('button', { name: t('home:sendAppeal') }).click();
    await page.getByText(t('home:appealed')).waitFor();
    await page.getByText(t('home:appealWaits', { text: 'it was about a real boat' })).waitFor();
    expect(await page.getByRole('button', { name: t('home:appeal'), exact: true }).count()).toBe(0);

    // A moderator reads it in the case, and restores the post.
    const moderating = await test.open(`/admin/cases/${case_id}`, { as: test.boss, language });
    const { page: caseOf } = moderating;
    await caseOf.getByText(t('cases:appealWaits')).waitFor();
    await caseOf.getByText('it was about a real boat').waitFor();
    await caseOf.getByRole('button', { name: t('cases:act.restore'), exact: true }).click();
    await caseOf.getByText(t('cases:done.restore', { n: 1 })).waitFor();
    await moderating.close();
    await page.reload();
    await page.getByText(t('home:decision.restore')).waitFor();
    await page
      .getByText(t('home:appealSettled', { text: 'it was about a real boat' }))
      .first()
      .waitFor();
    await view.close();
  });
});

describe('the reader', () => {
  it('shows live posts and older ones, and takes reports', async () => {
    const [alice, bob] = [await newMember(), await newMember()];
    const longAgo = nowSeconds() - 3_600;
    const client = await RawClient.connect(test.node.url);
    expect(await authenticate(client, bob, test.node.url)).toEqual([true, '']);
    await postAs(bob, 'number 0', longAgo);
    for (let count = 1; count < 60; count += 1) {
      const draft = { content: `number ${count}`, created_at: longAgo + count, tags: [['t', BOATS]] };
      expect((await client.publish(sign(bob, draft)))[0]).toBe(true);
    }
    await client.close();
    const view = await test.open('/', { extension: alice });
    await signInAt(view.page);
    await view.page.goto(`${test.node.http}/topics/${BOATS}`);
    const { page } = view;
    await article(page, 'number 59').waitFor();
    expect(await page.getByText('number 0', { exact: true }).count()).toBe(0);
    await page.getByRole('button', { name: 'Older posts' }).click();
    await page.getByRole('article').getByText('number 0', { exact: true }).waitFor();
    await postAs(bob, 'a wave just now');
    const live = article(page, 'a wave just now');
    await live.waitFor();
    await live.getByRole('button', { name: 'Actions' }).click();
    await page.getByRole('menuitem', { name: 'Report' }).click();
    await page.getByLabel('What should moderators know?').fill('too wet');
    await page.getByRole('button', { name: 'Send report' }).click();
    await page.getByText('The moderators have your report.').waitFor();
    const { body } = await test.api.ask<{ items: { comment: string }[] }>('GET', '/v1/reports', {
      as: alice,
    });
    expect(body.items).toMatchObject([{ comment: 'too wet' }]);
    await view.close();
  });

  it('shows what others write as text, and loads a picture only after a click', async () => {
    const [alice, bob] = [await newMember(), await newMember()];
    await postAs(bob, '<img src="https://pictures.example/x.png"> https://pictures.example/boat.png');
    const view = await test.open('/', { extension: alice });
    await signInAt(view.page);
    const asked: string[] = [];
    await view.context.route('https://pictures.example/**', (route) => {
      asked.push(route.request().url());
      const body = Buffer.from(PIXEL, 'base64');
      return route.fulfill({ contentType: 'image/png', body });
    });
    const { page } = view;
    await page.goto(`${test.node.http}/topics/${BOATS}`);
    await article(page, '<img src="https://pictures.example/x.png">').first().waitFor();
    expect(asked).toEqual([]);
    expect(view.problems).toEqual([]);
    await page.getByRole('button', { name: 'Show the picture from pictures.example' }).last().click();
    await expect.poll(() => asked, { timeout: 60_000 }).toEqual(['https://pictures.example/boat.png']);
    await view.context.close();
    expect(view.problems).toEqual(['request: https://pictures.example/boat.png']);
  });

  it('sends strangers to the sign-in, in Japanese and on a phone', async () => {
    const view = await test.open('/', { language: 'ja', width: 390, height: 844, isDark: true });
    await view.page.getByRole('heading', { name: 'お使いのアプリから接続' }).waitFor();
    await view.expectNoOverflow();
    await view.expectAccessible();
    await shot(view.page, 'phone-landing');
    await view.page.goto(`${test.node.http}/topics/${BOATS}`);
    await view.page.getByText('このコミュニティはメンバー専用です。').waitFor();
    await view.expectNoOverflow();
    await view.expectAccessible();
    await view.close();
  });

  it('works for a member in Japanese on a phone', async () => {
    const alice = await newMember();
    await postAs(alice, '今日は船がよく見えます');
    const view = await test.open('/', { extension: alice, language: 'ja', width: 390, height: 844 });
    const { page } = view;
    await signInAt(page, textsIn('ja'));
    for (const [path, text] of [
      [`/topics/${BOATS}`, '今日は船がよく見えます'],
      ['/me', 'プランと利用状況'],
      ['/me/terms', 'お互いに親切にしましょう。'],
      ['/me/moderation', '措置はありません'],
      ['/me/data', '自分のすべてのデータを消去'],
      ['/search', 'トピックを選択'],
    ] as const) {
      await page.getByRole('button', { name: '自分のページ' }).waitFor();
      await page.goto(test.node.http + path);
      await page.getByText(text).or(page.getByPlaceholder(text)).first().waitFor();
      await view.expectNoOverflow();
      await view.expectAccessible();
      await shot(page, `phone${path.replaceAll(/[^a-z]+/g, '-').slice(0, 18)}`);
    }
    await view.close();
  });
});

describe('an invite', () => {
  it('says what it is for, and starts the subscription', async () => {
    const expiresAt = Date.now() + 3_600_000;
    const { id } = community();
    const { code } = await done(createInvite(pool(), { community: id, topic: BOATS, expiresAt }, Date.now()));
    const view = await test.open(`/join/${code}`, { extension: newAuthor() });
    const { page } = view;
    await page.getByText('boats').first().waitFor();
    await view.expectAccessible();
    await page.getByRole('main').getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('button', { name: 'Browser extension' }).click();
    await page.getByRole('button', { name: 'Join with this invite' }).click();
    await page.getByRole('button', { name: 'I agree' }).click();
    await page.getByLabel('Write a post').waitFor();
    await view.close();
  });
});

describe('a remote signer', () => {
  it('over the relay of this node signs in, posts, and is used again after a reload', async () => {
    const member = await newMember();
    const bunker = await startBunker(test.node.url, member);
    const view = await test.open(`/remote?next=${encodeURIComponent(`/topics/${BOATS}`)}`);
    const { page } = view;
    await view.expectAccessible();
    await page.getByLabel('Address of the signer').fill(bunker.address);
    await page.getByRole('button', { name: 'Connect' }).click();
    await page.getByLabel('Write a post').fill('signed far away');
    await page.getByRole('button', { name: 'Post', exact: true }).click();
    await article(page, 'signed far away').waitFor();
    await page.reload();
    await page.getByLabel('Write a post').fill('and once more');
    await page.getByRole('button', { name: 'Post', exact: true }).click();
    await article(page, 'and once more').waitFor();
    await view.close();
    bunker.close();
  });
});

describe('the pages of the server', () => {
  it('have the facts about the community for readers without JavaScript', async () => {
    const page = await fetch(test.node.http, { headers: { accept: 'text/html' } });
    const html = await page.text();
    expect(html).toContain(`<title>${NAME}</title>`);
    expect(html).toContain('We talk about &#60;b&#62;boats&#60;/b&#62;.');
    expect(html).toMatch(/<noscript>[\s\S]*ws:\/\/127\.0\.0\.1[\s\S]*<\/noscript>/);
    expect(page.headers.get('content-security-policy')).toContain("img-src 'self' data:;");
    const information = await fetch(test.node.http, { headers: { accept: 'application/nostr+json' } });
    expect(await information.json()).toMatchObject({ name: NAME });
  });

  it('reach other hosts only where that is needed', async () => {
    const policyOf = async (path: string) =>
      (await fetch(test.node.http + path)).headers.get('content-security-policy');
    expect(await policyOf(`/topics/${BOATS}`)).toContain("img-src 'self' data: https:;");
    expect(await policyOf('/c/default/search')).toContain('https:');
    expect(await policyOf('/remote')).toContain("connect-src 'self' wss:;");
    for (const path of ['/me', '/me/data', '/join/x', '/c/default/me'])
      expect(await policyOf(path)).toMatch(/img-src 'self' data:;.*connect-src 'self';/);
    expect((await fetch(`${test.node.http}/c/nowhere/me`)).status).toBe(404);
    expect((await fetch(`${test.node.http}/nowhere`)).status).toBe(404);
  });
});

const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

async function signInAt(page: Page, t = textsIn('en')): Promise<void> {
  await page
    .getByRole('banner')
    .getByRole('button', { name: t('home:signIn') })
    .click();
  await page.getByRole('button', { name: t('home:withExtension') }).click();
  await page.getByRole('button', { name: t('home:me') }).waitFor();
}
