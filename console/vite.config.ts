/** Builds the two pages: the operators' console (`/admin/`) and the members' pages (`/`). */
import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import react from '@vitejs/plugin-react';
import { defineConfig, type Plugin } from 'vite';
import { usedStyles } from './used-styles.js';

/** Notifications are made of components too. */
const notifications = dirname(fileURLToPath(import.meta.resolve('@mantine/notifications')));
const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** Both pages begin the same. */
const sharedHead: Plugin = {
  name: 'shared-head',
  transformIndexHtml: {
    order: 'pre',
    handler: (html) => html.replace('<!-- head -->', readFileSync(at('head.html'), 'utf8').trim()),
  },
};

export default defineConfig({
  root: at('.'),
  base: '/',
  plugins: [react(), usedStyles([at('src'), notifications]), sharedHead],
  build: {
    outDir: at('../dist/console'),
    emptyOutDir: true,
    assetsDir: 'assets',
    // Nothing is inlined: the policy of the pages allows no data: address for scripts and styles.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1_000,
    rollupOptions: {
      input: [at('admin.html'), at('members.html')],
      // What most pages use is one file: many small ones compress badly.
      output: {
        codeSplitting: {
          groups: [
            { name: 'shared', minShareCount: 12 },
            { name: 'icons', test: /tabler/ },
          ],
        },
      },
    },
  },
});
