/**
 * A walk through every page of the navigation, in both languages: each page loads its data, has no serious
 * finding of axe, breaks no policy, asks no other host, and fits a phone. The first load is small.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { writeSamples } from '../../src/overview/samples.sql.js';
import { type ConsoleTest, startConsole, type View, type ViewOptions } from '../support/console.js';

/** Scripts, styles and the page itself with their headers, as they travel. */
const FIRST_LOAD_BYTES_MAX = 300_000;

/** Some thirty pages on a busy machine. */
const LONG_MS = 600_000;

let test: ConsoleTest;
beforeAll(async () => {
  test = await startConsole({ demo: true });
});
afterAll(() => test?.close());

async function pathsOf({ page }: View): Promise<string[]> {
  const links = page.getByRole('navigation').locator('a[href*="/admin/"]');
  await links.first().waitFor({ state: 'attached' });
  const paths = await links.evaluateAll((found) => found.map((link) => (link as unknown as URL).pathname));
  return [...new Set(paths)];
}

/** Opens a page by its address. */
async function load({ page }: View, path: string): Promise<void> {
  await page.goto(test.node.http + path);
}

/** Opens a page by its link in the navigation, which costs less. */
async function follow({ page }: View, path: string): Promise<void> {
  if (new URL(page.url()).pathname === path) return;
  const heading = page.getByRole('heading', { level: 1 });
  const before = await heading.textContent();
  await page
    .getByRole('navigation')
    .locator(`a[href="${path}"]`)
    .first()
    .evaluate((link) => (link as unknown as { click(): void }).click());
  await expect.poll(() => heading.textContent(), { message: path }).not.toBe(before);
}

/** Waits until it shows its data. */
async function untilShown({ page }: View, path: string): Promise<void> {
  await page.getByRole('heading', { level: 1 }).waitFor();
  await expect.poll(() => page.locator('main [data-loading]').count(), { message: path }).toBe(0);
}

const LOOKS: readonly (ViewOptions & { readonly name: string; readonly go: typeof follow })[] = [
  { name: 'English on a desk', language: 'en', go: load },
  { name: '日本語 on a phone, dark', language: 'ja', width: 390, height: 844, isDark: true, go: follow },
];

describe.each(LOOKS)('$name', ({ go, ...look }) => {
  it(
    'every page shows its data, is accessible and fits',
    async () => {
      const view = await test.open('/admin/', { ...look, as: test.boss });
      const paths = await pathsOf(view);
      expect(paths.length).toBeGreaterThan(15);
      for (const path of paths) {
        await go(view, path);
        await untilShown(view, path);
        await expect(view.expectAccessible(), path).resolves.toBeUndefined();
        await expect(view.expectNoOverflow(), path).resolves.toBeUndefined();
        expect(view.problems, path).toEqual([]);
        expect(await view.page.getByRole('alert').allTextContents(), path).toEqual([]);
      }
      await view.close();
    },
    LONG_MS,
  );
});

it(
  'a viewer and a moderator see fewer pages, and those that they see work',
  async () => {
    const seen: number[] = [];
    for (const role of ['viewer', 'moderator', 'operator'] as const) {
      const view = await test.open('/admin/', { as: await test.giveRole(role) });
      const paths = await pathsOf(view);
      seen.push(paths.length);
      if (role !== 'operator')
        for (const path of paths) {
          await follow(view, path);
          await untilShown(view, path);
          expect(await view.page.getByRole('alert').allTextContents(), `${role} ${path}`).toEqual([]);
        }
      await view.close();
    }
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    expect(seen[0]).toBeLessThan(seen[2]!);
  },
  LONG_MS,
);

it(`the first load is at most ${FIRST_LOAD_BYTES_MAX / 1_000} kB on the wire`, async () => {
  // A chart has something to show.
  const at = Math.floor(Date.now() / 60_000) * 60_000 - 600_000;
  const idle = { connections: 1, laneDepth: 0, lagSeconds: {}, databaseBytes: null, diskFreeBytes: null };
  await writeSamples(test.node.database.pool, 'minute', [{ at, outcomes: [3], okTimes: [0, 3], ...idle }]);
  const view = await test.open('/admin/', { as: test.boss });
  const page = await view.context.newPage();
  const session = await view.context.newCDPSession(page);
  await session.send('Network.enable');
  await session.send('Network.setCacheDisabled', { cacheDisabled: true });
  const ofPage = new Set<string>();
  let total = 0;
  session.on('Network.responseReceived', ({ requestId, response }) => {
    if (!new URL(response.url).pathname.startsWith('/v1/')) ofPage.add(requestId);
  });
  session.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => {
    if (ofPage.has(requestId)) total += encodedDataLength;
  });
  await page.goto(`${test.node.http}/admin/overview`);
  await page.getByRole('heading', { level: 1 }).waitFor();
  // With everything that the page loads later, such as the library of the charts.
  await page.getByRole('figure').first().waitFor();
  await expect.poll(() => page.locator('main [data-loading]').count()).toBe(0);
  await expect.poll(() => page.locator('.uplot').count()).toBeGreaterThan(0);
  expect(total).toBeGreaterThan(100_000);
  expect(total).toBeLessThanOrEqual(FIRST_LOAD_BYTES_MAX);
  await view.close();
});
