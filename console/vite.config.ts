/** Builds the two pages: the operators' console (`/admin/`) and the members' pages (`/`). */
import { fileURLToPath } from 'node:url';
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

const at = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  root: at('.'),
  base: '/',
  plugins: [react()],
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
