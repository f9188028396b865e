/**
 * A real redis-server for the tests: the machine's own, or Debian's package unpacked into a cache. Nothing is installed and
 * no right is needed: apt works on lists of its own, and only what this machine lacks is fetched.
 */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';

export interface RedisBinary {
  readonly path: string;
  /** Where its libraries are, when it comes from the cache. */
  readonly libraries?: string;
}

const CACHE = resolve('node_modules/.cache/minato');
const UNPACKED = join(CACHE, 'redis');
const MISSING = `The tests need redis-server, which is not in PATH. On Debian and Ubuntu they fetch it by themselves; elsewhere install
it first (Fedora: dnf install redis; Alpine: apk add redis; Arch: pacman -S redis; macOS: brew install redis).`;

export async function findRedis(): Promise<RedisBinary> {
  const installed = inPath('redis-server');
  if (installed !== undefined) return { path: installed };
  if (!existsSync(join(UNPACKED, 'usr/bin/redis-server'))) await fetchPackages();
  return { path: join(UNPACKED, 'usr/bin/redis-server'), libraries: await librariesIn(UNPACKED) };
}

function inPath(name: string): string | undefined {
  const folders = (process.env.PATH ?? '').split(':').filter((folder) => folder !== '');
  return folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
}

async function fetchPackages(): Promise<void> {
  if (inPath('apt-get') === undefined || inPath('dpkg-deb') === undefined) throw new Error(MISSING);
  process.stderr.write('redis-server is missing: fetching the package of Debian, once …\n');
  await mkdir(CACHE, { recursive: true });
  const folder = await mkdtemp(join(CACHE, 'fetching-'));
  try {
    await unpackInto(folder);
    // Another run may have been faster; one of the two is as good as the other.
    await rename(join(folder, 'unpacked'), UNPACKED).catch((error) => {
      if (!existsSync(join(UNPACKED, 'usr/bin/redis-server'))) throw error;
    });
  } catch (error) {
    throw new Error(`redis-server could not be fetched; install it by hand (apt-get install redis-server)`, {
      cause: error,
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function unpackInto(folder: string): Promise<void> {
  await mkdir(join(folder, 'lists/partial'), { recursive: true });
  await mkdir(join(folder, 'cache/archives/partial'), { recursive: true });
  const own = ['-qq', '-o', `Dir::State::lists=${folder}/lists`, '-o', `Dir::Cache=${folder}/cache`];
  // The user that apt would drop to has no right in the cache.
  const apt = (...args: string[]) =>
    execFileSync('apt-get', [...own, '-o', 'APT::Sandbox::User=', ...args], {
      cwd: folder,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  apt('update');
  const plan = apt('-s', '--no-install-recommends', 'install', 'redis-server');
  const lacking = [...plan.matchAll(/^Inst (\S+)/gm)].map((match) => match[1]!);
  apt('download', ...lacking);
  const archives = (await readdir(folder)).filter((name) => name.endsWith('.deb'));
  for (const archive of archives)
    execFileSync('dpkg-deb', ['-x', join(folder, archive), join(folder, 'unpacked')]);
}

/** `usr/lib/x86_64-linux-gnu`, or what another machine calls it. */
async function librariesIn(root: string): Promise<string> {
  const folders = ['usr/lib', 'lib'].map((name) => join(root, name)).filter((path) => existsSync(path));
  const nested = folders.map(async (folder) => {
    const entries = await readdir(folder, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map((entry) => join(folder, entry.name));
  });
  return (await Promise.all(nested)).flat().join(':');
}
