import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    // Written for bundlers: it imports its own files without their endings.
    server: { deps: { inline: [/@snort\//] } },
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // One more than the cores of a small machine: many tests wait, for a time-out or another process.
    maxWorkers: 3,
  },
});
