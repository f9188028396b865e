/**
 * A walk through every page of the navigation, in both languages: each page loads its data, has no serious
 * finding of axe, breaks no policy, asks no other host, and fits a phone. The first load is small.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ConsoleTest, startConsole, type View, type ViewOptions } from '../support/console.js';

/** Scripts, styles and the page itself with their headers, as they travel. */
const FIRST_LOAD_BYTES_MAX = 380_000;

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

/** Goes to a page and waits until it shows its data. */
async function show({ page }: View, path: string): Promise<void> {
  await page.goto(test.node.http + path);
  await page.getByRole('heading', { level: 1 }).waitFor();
  await expect.poll(() => page.locator('main [data-loading]').count(), { message: path }).toBe(0);
}

const LOOKS: readonly (ViewOptions & { readonly name: string })[] = [
  { name: 'English on a desk', language: 'en' },
  { name: '日本語 on a phone, dark', language: 'ja', width: 390, height: 844, isDark: true },
];

describe.each(LOOKS)('$name', (look) => {
  it(
    'every page shows its data, is accessible and fits',
    async () => {
      const view = await test.open('/admin/', { ...look, as: test.boss });
      const paths = await pathsOf(view);
      expect(paths.length).toBeGreaterThan(15);
      for (const path of paths) {
        await show(view, path);
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
          await show(view, path);
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
  await page.goto(`${test.node.http}/admin/`);
  await page.getByRole('heading', { level: 1 }).waitFor();
  await page.waitForLoadState('load');
  expect(total).toBeGreaterThan(100_000);
  expect(total).toBeLessThanOrEqual(FIRST_LOAD_BYTES_MAX);
  await view.close();
});
