/**
 * Makes the pictures of the pages in docs/images, in both languages, from the invented community of
 * `minato demo`:
 *   npm run docs:screenshots
 * It needs a Chromium in PATH, or the one that the tests have fetched, and a font with Japanese characters.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Browser } from 'playwright-core';
import { launchChromium } from '../test/support/servers/chromium.js';
import { findChromium } from '../test/support/servers/programs.js';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const IMAGES = join(ROOT, 'docs/images');
const SIZE = { width: 1_280, height: 800 };
const WAIT_MS = 120_000;

interface Picture {
  readonly name: string;
  readonly path: string;
  /** Shown when the page has its data. */
  readonly until: string;
  readonly isDark?: boolean;
  readonly isMembers?: boolean;
}

const PICTURES: readonly Picture[] = [
  { name: 'console-cases', path: '/admin/cases', until: 'table tbody tr' },
  { name: 'console-members', path: '/admin/members', until: 'table tbody tr' },
  { name: 'console-topics', path: '/admin/topics', until: 'table tbody tr', isDark: true },
  { name: 'members', path: '/', until: 'main', isMembers: true },
];
const LANGUAGES = ['en', 'ja'] as const;

const folder = await mkdtemp(join(tmpdir(), 'minato-pictures-'));
const { node, link } = await startDemo(folder);
const browser = await launchChromium(await findChromium());
try {
  await mkdir(IMAGES, { recursive: true });
  const state = await signIn(browser, link);
  for (const language of LANGUAGES) for (const picture of PICTURES) await take(picture, language, state);
} finally {
  await browser.close();
  const ended = new Promise((resolve) => node.once('exit', resolve));
  node.kill('SIGTERM');
  await ended;
  await rm(folder, { recursive: true, force: true });
}

/** Resolves when the node answers, with the link that signs in. */
function startDemo(cwd: string): Promise<{ node: ChildProcess; link: string }> {
  const child = spawn(process.execPath, [join(ROOT, 'bin/minato.js'), 'demo', '--serve'], { cwd });
  return new Promise((resolve, reject) => {
    let output = '';
    child.once('exit', () => reject(new Error(output)));
    child.stderr.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
    child.stdout.on('data', (chunk: Buffer) => {
      output += chunk.toString();
      const [found] = /http:\S+#code=\S+/.exec(output) ?? [];
      if (found !== undefined && output.includes('"ready"')) resolve({ node: child, link: found });
    });
  });
}

type State = Awaited<ReturnType<Awaited<ReturnType<Browser['newContext']>>['storageState']>>;

async function signIn(window: Browser, url: string): Promise<State> {
  const context = await window.newContext({ locale: 'en-US' });
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage();
  await page.goto(url);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('navigation').first().waitFor();
  const state = await context.storageState();
  await context.close();
  return state;
}

async function take(picture: Picture, language: (typeof LANGUAGES)[number], state: State): Promise<void> {
  const { name, path, until, isDark = false, isMembers = false } = picture;
  const context = await browser.newContext({
    viewport: SIZE,
    locale: language === 'ja' ? 'ja-JP' : 'en-US',
    timezoneId: 'UTC',
    colorScheme: isDark ? 'dark' : 'light',
    reducedMotion: 'reduce',
    ...(isMembers ? {} : { storageState: { ...state, origins: [] } }),
  });
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage();
  await page.goto(new URL(path, link).href);
  await page.locator(until).first().waitFor();
  await page.waitForLoadState('networkidle').catch(() => undefined);
  const file = join(IMAGES, `${name}${language === 'en' ? '' : `.${language}`}.png`);
  await page.screenshot({ path: file });
  process.stdout.write(`${file}\n`);
  await context.close();
}
