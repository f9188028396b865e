/**
 * Writes docs/settings.md:
 *   npm run docs:settings
 */
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { settingsPage } from './settings-page.js';

await writeFile(fileURLToPath(new URL('../docs/settings.md', import.meta.url)), settingsPage());
