/**
 * `node --import tsx bench/console.ts [events]`, after `npm run build`: the console on a store of 100,000
 * events (sql-store.ts) and 10,000 members. Times of each way to find events over HTTP, of a walk through all
 * pages, and of both pages in a real Chromium: their first rows, scrolling to the very end, jumping,
 * filtering, and coming back to the tab.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { finalizeEvent, generateSecretKey, getPublicKey } from 'nostr-tools/pure';
import type { Page } from 'playwright-core';
import { launchChromium } from '../test/support/servers/chromium.js';
import { findChromium } from '../test/support/servers/programs.js';
import { withDatabase } from './database.js';
import { withFilledNode } from './filled-node.js';
import { latency } from './measure.js';
import { cleanUpOnSignal } from './node.js';
import { untilUpToDate } from './settle.js';
import { anyAuthor, BUSY_AUTHOR, coldTopic, eventId, HOT_TOPIC } from './sql-store.js';

const EVENTS = Number(process.argv[2] ?? 100_000);
const MEMBERS = 10_000;
const ASKED = 40;
const WAIT_MS = 120_000;
const INDEXED_MS_MAX = 15 * 60_000;
const say = (text: string) => process.stdout.write(`${text}\n`);
const secret = generateSecretKey();

async function main(): Promise<void> {
  const env = { MINATO_ADMIN_PUBKEYS: getPublicKey(secret) };
  await withFilledNode(EVENTS, env, say, async (bench) => {
    const base = bench.node.url.replace(/^ws/, 'http');
    const cookie = await signIn(base);
    await untilIndexed(base, cookie);
    say(`consumers: ${Math.round(await untilUpToDate(bench))} s`);
    await withDatabase(bench, async (client) => {
      await hideSome(client);
      await addMembers(client);
    });
    await askAll(base, cookie);
    await walk(base, cookie);
    await browse(base, cookie);
  });
}

/** The index is built from what is stored, once. */
async function untilIndexed(base: string, cookie: string): Promise<void> {
  const end = performance.now() + INDEXED_MS_MAX;
  for (;;) {
    const found = await ask(base, cookie, { text: 'lantern' }).catch((error: Error) => error);
    if (!(found instanceof Error)) return;
    if (performance.now() > end) throw found;
    await sleep(1_000);
  }
}

interface Querying {
  query(text: string, values?: unknown[]): Promise<unknown>;
}

async function addMembers(client: Querying): Promise<void> {
  await client.query(
    `INSERT INTO members (community, pubkey, name, note, created_at, updated_at)
     SELECT 1, sha256(convert_to('member ' || n, 'UTF8')), 'keeper' || n, 'lives at pier ' || n % 97, t, t
     FROM generate_series(1, $1::bigint) AS n, LATERAL (SELECT 1700000000000 + n * 1000 AS t) AS times`,
    [MEMBERS],
  );
  await client.query('ANALYZE members');
}

/** The busy author has deleted half of their events. */
async function hideSome(client: Querying): Promise<void> {
  await client.query(
    `WITH hidden AS (UPDATE events SET hidden = 2, hidden_at = created_at * 1000
       WHERE pubkey = decode($1, 'hex') AND seq % 20 < 10 RETURNING id, seq),
     tags AS (DELETE FROM event_tags t USING hidden h WHERE t.seq = h.seq)
     UPDATE event_dedupe d SET hidden = 2 FROM hidden h WHERE d.event_id = h.id`,
    [BUSY_AUTHOR],
  );
  await client.query('ANALYZE events');
}

async function signIn(base: string): Promise<string> {
  const url = `${base}/v1/admin/session`;
  const event = finalizeEvent(
    {
      kind: 27_235,
      created_at: Math.floor(Date.now() / 1_000),
      content: '',
      tags: [
        ['u', url],
        ['method', 'POST'],
      ],
    },
    secret,
  );
  const authorization = `Nostr ${Buffer.from(JSON.stringify(event)).toString('base64')}`;
  const response = await fetch(url, { method: 'POST', headers: { authorization } });
  if (response.status !== 201) throw new Error(`sign-in: ${response.status} ${await response.text()}`);
  return response.headers.get('set-cookie')!.split(';')[0]!;
}

interface Found {
  readonly items: readonly { readonly event_id: string }[];
  readonly next_cursor: string | null;
}

async function ask(base: string, cookie: string, query: Record<string, string>): Promise<Found> {
  const response = await fetch(`${base}/v1/admin/events?${new URLSearchParams(query)}`, {
    headers: { cookie },
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as Found;
}

const SHAPES: readonly (readonly [title: string, query: (round: number) => Record<string, string>])[] = [
  ['newest', () => ({})],
  ['one id', (round) => ({ id: eventId(round * 37) })],
  ['busy author', () => ({ author: BUSY_AUTHOR })],
  ['any author', (round) => ({ author: anyAuthor(round * 10 + 1) })],
  ['hot topic', () => ({ topic: HOT_TOPIC })],
  ['cold topic', (round) => ({ topic: coldTopic(round % 10) })],
  ['kind 7', () => ({ kind: '7' })],
  ['busy author in hot topic, kind 1', () => ({ author: BUSY_AUTHOR, topic: HOT_TOPIC, kind: '1' })],
  ['a word of every event', () => ({ text: 'lantern' })],
  ['a word of no event', (round) => ({ text: `nothing${round}` })],
  ['deleted events of an author', () => ({ author: BUSY_AUTHOR, state: 'hidden' })],
  [
    'deleted events, a topic among them',
    () => ({ author: BUSY_AUTHOR, state: 'hidden', topic: coldTopic(0) }),
  ],
  ['deleted events of everybody', () => ({ state: 'deleted' })],
];

async function askAll(base: string, cookie: string): Promise<void> {
  say('\nGET /v1/admin/events, pages of 100            p50 ms  p99 ms  items');
  for (const [title, query] of SHAPES) {
    const times: number[] = [];
    let items = 0;
    for (let round = 0; round < ASKED; round += 1) {
      const start = performance.now();
      items = (await ask(base, cookie, { limit: '100', ...query(round) })).items.length;
      times.push(performance.now() - start);
    }
    const { p50Ms, p99Ms } = latency(times.slice(2));
    say(`  ${title.padEnd(42)} ${p50Ms.toFixed(1).padStart(7)} ${p99Ms.toFixed(1).padStart(7)} ${items}`);
  }
}

/** Every page, to the last: a late page must not cost more than an early one. */
async function walk(base: string, cookie: string): Promise<void> {
  const times: number[] = [];
  let cursor: string | undefined;
  let items = 0;
  do {
    const start = performance.now();
    const page = await ask(base, cookie, { limit: '200', ...(cursor && { cursor }) });
    times.push(performance.now() - start);
    items += page.items.length;
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  const tenth = Math.ceil(times.length / 10);
  const [first, last] = [times.slice(0, tenth), times.slice(-tenth)].map((part) =>
    latency(part).p50Ms.toFixed(1),
  );
  const seconds = (times.reduce((a, b) => a + b, 0) / 1_000).toFixed(1);
  say(`\nwalk: ${items} events in ${times.length} pages of 200, ${seconds} s`);
  say(`      p50 of the first tenth ${first} ms, of the last tenth ${last} ms`);
}

async function browse(base: string, cookie: string): Promise<void> {
  const browser = await launchChromium(await findChromium());
  try {
    const context = await browser.newContext({ viewport: { width: 1_280, height: 800 } });
    context.setDefaultTimeout(WAIT_MS);
    const [name, value] = cookie.split('=') as [string, string];
    await context.addCookies([{ name, value, url: base }]);
    const page = await context.newPage();
    say('\nevents in Chromium, 1280 × 800');
    await look(page, `${base}/admin/events`);
    await timed('filter by a topic (250 ms of it wait for typing)', async () => {
      await page.getByLabel('Topic').fill(coldTopic(3));
      await until(page, `rows.every((row) => row.textContent.includes('${coldTopic(3)}'))`);
    });
    say(`\n${MEMBERS} members in Chromium`);
    await look(page, `${base}/admin/members`);
    await timed('find a name (200 ms of it wait for typing)', async () => {
      await page.getByLabel('Search').fill('keeper77');
      await until(page, `rows.every((row) => row.textContent.includes('keeper77'))`);
    });
  } finally {
    await browser.close();
  }
}

async function look(page: Page, url: string): Promise<void> {
  await timed('first rows after opening the address', async () => {
    await page.goto(url);
    await page.getByRole('row').nth(5).waitFor();
  });
  await scroll(page);
  for (let round = 0; round < 3; round += 1)
    await timed('jump to a random place among all of them', () => jump(page));
  say(`  requests when one comes back to the tab ${await comeBack(page)}`);
}

const SETTLED_MS = 3_000;

/** How many requests of the API the page makes. */
async function comeBack(page: Page): Promise<number> {
  let requests = 0;
  const count = (request: { url(): string }) => {
    if (request.url().includes('/v1/admin/')) requests += 1;
  };
  await sleep(SETTLED_MS);
  page.on('request', count);
  await page.evaluate(`document.dispatchEvent(new Event('visibilitychange', { bubbles: true }))`);
  await sleep(SETTLED_MS);
  page.off('request', count);
  return requests;
}

async function timed(title: string, work: () => Promise<unknown>): Promise<void> {
  const start = performance.now();
  await work();
  say(`  ${title.padEnd(52)} ${Math.round(performance.now() - start)} ms`);
}

const LOADED = `Number([...document.querySelectorAll('tbody tr[data-index]')].at(-1)?.dataset.index ?? 0)`;

/** Scrolls to the end of what is loaded until nothing more comes, and measures the frames meanwhile. */
async function scroll(page: Page): Promise<void> {
  const start = performance.now();
  let rows = 0;
  for (;;) {
    const part = await page.evaluate<{ rows: number; p50: number; p99: number }>(SCROLL_FOR_SECONDS);
    const seconds = ((performance.now() - start) / 1_000).toFixed(0);
    const frames = `p50 ${part.p50.toFixed(1)} ms, p99 ${part.p99.toFixed(1)} ms`;
    say(
      `  scrolled to row ${String(part.rows).padStart(6)} after ${seconds.padStart(3)} s; frames: ${frames}`,
    );
    if (part.rows === rows || performance.now() - start > SCROLL_MS_MAX) return;
    rows = part.rows;
  }
}

const SCROLL_MS_MAX = 10 * 60_000;
const SCROLL_FOR_SECONDS = `new Promise((done) => {
  const frames = [];
  const start = performance.now();
  let before = start;
  const step = () => {
    const now = performance.now();
    frames.push(now - before);
    before = now;
    window.scrollTo(0, document.documentElement.scrollHeight);
    if (now - start < 20_000) return requestAnimationFrame(step);
    frames.sort((a, b) => a - b);
    const at = (share) => frames[Math.floor(frames.length * share)];
    done({ rows: ${LOADED} + 1, p50: at(0.5), p99: at(0.99) });
  };
  requestAnimationFrame(step);
})`;

async function jump(page: Page): Promise<void> {
  const share = Math.random();
  await page.evaluate(`window.scrollTo(0, document.documentElement.scrollHeight * ${share})`);
  await until(page, 'rows.some((row) => row.getBoundingClientRect().top > innerHeight / 2)');
}

/** Looks at the shown rows at every frame. */
function until(page: Page, condition: string): Promise<unknown> {
  return page.evaluate(`new Promise((done) => {
    const look = () => {
      const rows = [...document.querySelectorAll('tbody tr[data-index]')];
      if (rows.length > 0 && ${condition}) done(true);
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  })`);
}

cleanUpOnSignal(say);
await main();
