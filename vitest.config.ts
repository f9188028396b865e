import { readdirSync, statSync } from 'node:fs';
import { relative } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Each of these has a process to itself: it changes or measures its process, or has modules of its own. */
const ALONE = [
  /^test\/clients\//,
  /^test\/port\/floods-http\./,
  /^test\/relay\/(back-pressure|floods-frames)\./,
  /^test\/search\/search-index\./,
  /^test\/sync\/clients\./,
  /^src\/events\/verify\/pool\./,
];
/** The longest by their wall time; the others by their size. Then no long file is left for the end. */
const LONGEST = [
  'test/p2p/converge.test.ts',
  'test/faults/faults.test.ts',
  'test/console/walk.test.ts',
  'test/fuzz/fuzz.test.ts',
  'test/personal-data/personal-data-worker.test.ts',
  'test/events/lane.test.ts',
  'test/node/hung-peers.test.ts',
  'test/events/two-years.test.ts',
  'test/node/root.test.ts',
  'test/demo/demo.test.ts',
  'test/node/packed.test.ts',
  'test/events/kill.test.ts',
  'test/outbox/consumers-kill.test.ts',
  'test/node/idle.test.ts',
  'test/events/import-export.test.ts',
  'test/events/replaceable-keys.test.ts',
  'test/postgres/embedded.test.ts',
];
/**
 * The other files share processes, which load the program once, and not once for each file: that was a third
 * of all CPU time. A process ends after its group, because some 30 MB of each file stay in its memory.
 */
const GROUP_FILES = 110;

const filesIn = (folder: string): string[] =>
  readdirSync(new URL(folder, import.meta.url), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.test.ts'))
    .map((name) => `${folder}/${name}`);
const sizeOf = (path: string) => statSync(new URL(path, import.meta.url)).size;
const rankOf = (path: string) =>
  (LONGEST.indexOf(path) + 1 || LONGEST.length + 1) + (/^src/.test(path) ? 1 : 0);
const isAlone = (path: string) => ALONE.some((pattern) => pattern.test(path));

const ordered = [...filesIn('test'), ...filesIn('src')].sort(
  (a, b) => rankOf(a) - rankOf(b) || sizeOf(b) - sizeOf(a),
);
const alone = ordered.filter(isAlone);
const shared = ordered.filter((path) => !isAlone(path));
const groups = Array.from({ length: Math.ceil(shared.length / GROUP_FILES) }, (_, at) =>
  shared.slice(at * GROUP_FILES, (at + 1) * GROUP_FILES),
);
const places = new Map([...alone, ...shared].map((path, place) => [path, place]));

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const placeOf = ({ moduleId }: TestSpecification) =>
      places.get(relative(this.ctx.config.root, moduleId)) ?? places.size;
    return [...files].sort((a, b) => placeOf(a) - placeOf(b));
  }
}

const common = {
  setupFiles: ['test/support/secrets/watch.ts', 'test/support/run-seed.ts'],
  // Written for bundlers: it imports its own files without their endings.
  server: { deps: { inline: [/@snort\//] } },
  // A busy machine is slow, not broken: tests wait for conditions.
  testTimeout: 180_000,
  hookTimeout: 240_000,
  // In CI a test that fails runs once more, with the same seed. Its first failure stays in the output:
  // it is a bug to fix.
  retry: process.env.CI === 'true' ? 1 : 0,
  expect: { poll: { timeout: 100_000 } },
};

export default defineConfig({
  test: {
    globalSetup: ['test/support/global-setup.ts'],
    sequence: { sequencer: LongestFirst },
    // One more than the cores of a small machine: many tests wait, for a time-out or another process.
    maxWorkers: 3,
    // The groups load the same modules. By content and configuration, in node_modules.
    experimental: { fsModuleCache: true },
    projects: [
      { test: { ...common, name: 'alone', include: alone } },
      ...groups.map((include, at) => ({
        test: { ...common, name: `group ${at + 1}`, include, isolate: false },
      })),
    ],
  },
});
