/** Starts a Chromium, also one from the cache, which has its fonts' settings beside it. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type Browser, chromium } from 'playwright-core';
import { environmentOf, type Program } from './debian-package.js';

/** Long enough for a busy machine. */
const START_MS_MAX = 60_000;

export function launchChromium(program: Program): Promise<Browser> {
  const fonts = join(dirname(program.path), '../../../etc/fonts');
  const own = existsSync(fonts) ? { FONTCONFIG_PATH: fonts } : {};
  return chromium.launch({
    executablePath: program.path,
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
    env: { ...environmentOf(program), ...own } as Record<string, string>,
    timeout: START_MS_MAX,
  });
}
