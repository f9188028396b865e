/**
 * The pages of a node in a real Chromium. A test file shares one node and one browser; each view has its own
 * context, and collects what must not happen: errors, violations of the policy, requests to other hosts.
 */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { expect, inject } from 'vitest';
import { addOperator } from '../../src/members/operators.sql.js';
import type { Role } from '../../src/members/rules-roles.js';
import { type Api, createApi } from './clients/api.js';
import { type Author, newAuthor, sign } from './events.js';
import { startTestNode, type TestNode } from './node.js';
import { launchChromium } from './servers/chromium.js';
import { createTestDatabase } from './servers/database.js';
import { createDemoDatabase, demoBoss } from './stores/demo.js';

const axeSource = createRequire(import.meta.url).resolve('axe-core/axe.min.js');
/** Long enough for a busy machine: a test waits for a condition. */
const WAIT_MS = 60_000;

export interface ViewOptions {
  /** Signed in by a session of this key; it needs a role. */
  readonly as?: Author;
  /** An extension (NIP-07) with this key is in the browser. */
  readonly extension?: Author;
  readonly language?: 'en' | 'ja';
  readonly width?: number;
  readonly height?: number;
  readonly isDark?: boolean;
}

export interface View {
  readonly page: Page;
  readonly context: BrowserContext;
  /** Errors in the page, violations of its policy, and requests to other hosts. */
  readonly problems: readonly string[];
  /** Fails on a serious finding of axe (WCAG 2 A and AA) in what is shown now. */
  expectAccessible(): Promise<void>;
  /** Nothing is wider than the screen. */
  expectNoOverflow(): Promise<void>;
  /** Closes it, and fails if there were problems. */
  close(): Promise<void>;
}

export interface ConsoleTest {
  readonly node: TestNode;
  readonly api: Api;
  /** An operator of every community. */
  readonly boss: Author;
  readonly browser: Browser;
  /** A key with this role in the default community. */
  giveRole(role: Role): Promise<Author>;
  open(path: string, options?: ViewOptions): Promise<View>;
  close(): Promise<void>;
}

export interface ConsoleOptions {
  /** Fills the default community with invented people and their data (`minato demo`). */
  readonly demo?: boolean;
  readonly env?: Record<string, string>;
  readonly trust?: boolean;
}

export async function startConsole({
  demo = false,
  env = {},
  trust = false,
}: ConsoleOptions = {}): Promise<ConsoleTest> {
  const boss = demo ? demoBoss : newAuthor();
  const test = await (demo ? createDemoDatabase() : createTestDatabase());
  const all = { MINATO_ADMIN_PUBKEYS: boss.pubkey, MINATO_TOPIC_MODE: 'default', ...env };
  const node = await startTestNode({ env: all, on: test, trust });
  const browser = await borrowBrowser();
  const cookies = new Map<string, string>();
  return {
    node,
    api: createApi(node.http),
    boss,
    browser,
    giveRole: async (role) => {
      const author = newAuthor();
      const wanted = { community: 1, pubkey: author.pubkey, role, actor: boss.pubkey };
      await addOperator(node.database.pool, wanted, { fixed: [boss.pubkey] }, Date.now());
      return author;
    },
    open: async (path, options = {}) => {
      const cookie = options.as && (cookies.get(options.as.pubkey) ?? (await signIn(node, options.as)));
      if (options.as && cookie) cookies.set(options.as.pubkey, cookie);
      return openView(browser, node.http, path, options, cookie);
    },
    close: async () => {
      await returnBrowser(browser);
      await node.close();
      await test.drop();
    },
  };
}

/** The next test file of this worker uses the same browser, if it comes soon. */
let kept: { readonly browser: Browser; readonly closing: NodeJS.Timeout } | undefined;
const KEPT_MS_MAX = 60_000;

async function borrowBrowser(): Promise<Browser> {
  if (kept === undefined || !kept.browser.isConnected()) return launchChromium(inject('chromium'));
  const { browser, closing } = kept;
  clearTimeout(closing);
  kept = undefined;
  return browser;
}

async function returnBrowser(browser: Browser): Promise<void> {
  for (const context of browser.contexts()) await context.close();
  if (kept !== undefined) return browser.close();
  const closing = setTimeout(() => {
    kept = undefined;
    void browser.close();
  }, KEPT_MS_MAX).unref();
  kept = { browser, closing };
}

/** The value of the cookie of a new session. */
async function signIn({ http }: TestNode, as: Author): Promise<string> {
  const { headers, status } = await createApi(http).ask('POST', '/v1/admin/session', { as });
  expect(status).toBe(201);
  return headers.get('set-cookie')!.split(';')[0]!;
}

async function openView(
  browser: Browser,
  http: string,
  path: string,
  { extension, language = 'en', width = 1_280, height = 800, isDark = false }: ViewOptions,
  cookie: string | undefined,
): Promise<View> {
  const context = await browser.newContext({
    viewport: { width, height },
    locale: language === 'ja' ? 'ja-JP' : 'en-US',
    timezoneId: 'UTC',
    colorScheme: isDark ? 'dark' : 'light',
    reducedMotion: 'reduce',
  });
  context.setDefaultTimeout(WAIT_MS);
  if (cookie !== undefined) {
    const [name, value] = cookie.split('=') as [string, string];
    await context.addCookies([{ name, value, url: http, httpOnly: true, sameSite: 'Strict' }]);
  }
  if (extension !== undefined) await addExtension(context, extension);
  const problems: string[] = [];
  await context.addInitScript(IN_PAGE.reportViolations);
  const page = await context.newPage();
  const host = new URL(http).host;
  page.on('pageerror', (error) => problems.push(`error: ${error.message}`));
  page.on('console', (message) => {
    // A refused request is an answer of the node, not a defect of the page.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      problems.push(`console: ${message.text()}`);
  });
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.protocol !== 'data:' && url.protocol !== 'blob:' && url.host !== host)
      problems.push(`request: ${request.url()}`);
  });
  await page.goto(http + path);
  return {
    page,
    context,
    problems,
    expectAccessible: () => expectAccessible(page),
    expectNoOverflow: async () => {
      expect(await page.evaluate<number>(IN_PAGE.overflow)).toBeLessThanOrEqual(0);
    },
    close: async () => {
      await context.close();
      expect(problems).toEqual([]);
    },
  };
}

/** A browser extension that signs without asking. */
async function addExtension(context: BrowserContext, author: Author): Promise<void> {
  await context.exposeFunction('extensionSigns', (draft: Parameters<typeof sign>[1]) => sign(author, draft));
  await context.addInitScript(IN_PAGE.extensionOf(author.pubkey));
}

async function expectAccessible(page: Page): Promise<void> {
  // Not as a script of the page: its policy allows none but its own.
  if (!(await page.evaluate<boolean>(IN_PAGE.hasAxe))) await page.evaluate(await readFile(axeSource, 'utf8'));
  // What fades in has too little contrast until it is there.
  await expect.poll(() => page.evaluate<boolean>(IN_PAGE.isStill)).toBe(true);
  expect(await page.evaluate<string[]>(IN_PAGE.findings)).toEqual([]);
}

/** Runs in the page. */
const IN_PAGE = {
  reportViolations: `document.addEventListener('securitypolicyviolation', (event) =>
    console.error('policy: ' + event.violatedDirective + ' ' + event.blockedURI));`,
  hasAxe: `'axe' in window`,
  isStill: `document.getAnimations().every(({ effect }) =>
    effect === null || effect.getComputedTiming().endTime === Infinity)`,
  overflow: 'document.documentElement.scrollWidth - window.innerWidth',
  extensionOf: (pubkey: string) => `window.nostr = {
    getPublicKey: async () => '${pubkey}',
    signEvent: (draft) => window.extensionSigns(draft),
  };`,
  findings: `axe
    .run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'], resultTypes: ['violations'] })
    .then(({ violations }) => violations.filter(({ impact }) => ['serious', 'critical'].includes(impact)))
    .then((found) => found.map(({ id, nodes }) =>
      id + ': ' + nodes.map((each) => each.target + ' ' + each.failureSummary).join(' | ')))`,
};
