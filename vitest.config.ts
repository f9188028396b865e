import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    // Written for bundlers: it imports its own files without their endings.
    server: { deps: { inline: [/@snort\//] } },
    // A busy machine is slow, not broken: tests wait for conditions.
    testTimeout: 180_000,
    hookTimeout: 240_000,
    // In CI a test that fails runs once more. Its first failure stays in the output: it is a bug to fix.
    retry: process.env.CI === 'true' ? 1 : 0,
    expect: { poll: { timeout: 100_000 } },
    // One more than the cores of a small machine: many tests wait, for a time-out or another process.
    maxWorkers: 3,
  },
});
