/**
 * Other relays that the bench can measure. They are not dependencies of the project: the bench installs them
 * into bench/.cache on demand, in pinned versions, and runs them as separate processes.
 */
import { execFile, fork } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type BootedNode, hasEnded, portOf, stopProcess } from './node.js';
import type { Sizes } from './options.js';

export interface Peer {
  readonly label: string;
  /** The rows that it supports; others would fail or stall. */
  readonly rows: readonly string[];
  /** Smaller sizes where it would take too long. */
  readonly sizes: Partial<Pick<Sizes, 'ingestEvents' | 'singleEvents' | 'storedEvents'>>;
  boot(folder: string, say: (text: string) => void): Promise<BootedNode>;
}

const INSTALLED = fileURLToPath(new URL('.cache/peer/', import.meta.url));
const PROGRAM = fileURLToPath(new URL('npm-relay.ts', import.meta.url));
const INSTALL_MS_MAX = 10 * 60_000;
const VERSION = '0.0.40';
const PACKAGES = ['core', 'event-repository-sqlite', 'validator'].map((name) => `@nostr-relay/${name}`);

/** It ignores tag filters in live delivery, so `fanout` and `deliver` would measure something else. */
const npm: Peer = {
  label: `@nostr-relay/core ${VERSION}`,
  rows: ['ingest', 'single', 'author', 'topic', 'ids', 'newest', 'count'],
  sizes: { ingestEvents: 2_000, singleEvents: 200, storedEvents: 10_000 },
  async boot(folder, say) {
    await install(say);
    const child = fork(PROGRAM, [INSTALLED, join(folder, 'peer.sqlite')], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const port = await portOf(child);
    return {
      url: `ws://127.0.0.1:${port}`,
      pid: child.pid!,
      ready: async () => undefined,
      stop: () => stopProcess(child),
      hasEnded: () => hasEnded(child),
    };
  },
};

export const PEERS: Readonly<Record<string, Peer>> = { npm };

async function install(say: (text: string) => void): Promise<void> {
  if (PACKAGES.every(isInstalled)) return;
  say(`installing ${PACKAGES.join(', ')} ${VERSION} into bench/.cache/peer`);
  const args = ['install', '--prefix', INSTALLED, '--no-audit', '--no-fund', '--save-exact'];
  try {
    await promisify(execFile)('npm', [...args, ...PACKAGES.map((name) => `${name}@${VERSION}`)], {
      timeout: INSTALL_MS_MAX,
    });
  } catch (error) {
    const { stderr } = error as { stderr?: string };
    throw new Error(
      'the peer could not be installed (it needs the npm registry, and a compiler for better-sqlite3): ' +
        `${stderr ?? error}`,
    );
  }
}

function isInstalled(name: string): boolean {
  const file = join(INSTALLED, 'node_modules', name, 'package.json');
  return (
    existsSync(file) && (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version === VERSION
  );
}
