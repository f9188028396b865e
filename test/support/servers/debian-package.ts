/**
 * Finds programs that the tests need: installed ones, or Debian's package unpacked into a cache. It installs
 * nothing and needs no root: apt uses separate lists, and downloads only packages that this machine lacks.
 */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { lstat, mkdir, mkdtemp, readdir, readlink, rename, rm, symlink } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve } from 'node:path';

export interface Program {
  readonly path: string;
  /** The folder of its libraries, when it comes from the cache. */
  readonly libraries?: string;
}

export interface Wanted {
  /** Its name in PATH. */
  readonly program: string;
  /** The first of these that Debian or Ubuntu has. */
  readonly packages: readonly [string, ...string[]];
  /** How to get it where there is no apt. */
  readonly elsewhere: string;
}

const CACHE = resolve('node_modules/.cache/minato');

export async function findProgram(wanted: Wanted): Promise<Program> {
  const installed = inPath(wanted.program);
  if (installed !== undefined) return { path: installed };
  const root = join(CACHE, wanted.packages[0].replace(/-.*/, ''));
  const path = (await programIn(root, wanted.program)) ?? (await fetchProgram(root, wanted));
  return { path, libraries: await librariesIn(root) };
}

/** Environment for starting the program. */
export const environmentOf = ({ libraries }: Program): NodeJS.ProcessEnv => ({
  ...process.env,
  ...(libraries === undefined ? {} : { LD_LIBRARY_PATH: libraries }),
});

function inPath(name: string): string | undefined {
  const folders = (process.env.PATH ?? '').split(':').filter((folder) => folder !== '');
  return folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
}

/** Searches Debian's folder of Java too, because only an installation makes the link to Java. */
async function programIn(root: string, name: string): Promise<string | undefined> {
  const machines = join(root, 'usr/lib/jvm');
  const homes = existsSync(machines) ? (await readdir(machines)).sort() : [];
  const own = ['usr/bin', 'usr/sbin'].map((name) => join(root, name));
  const folders = [...own, ...homes.map((home) => join(machines, home, 'bin'))];
  return folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
}

async function fetchProgram(root: string, { program, packages, elsewhere }: Wanted): Promise<string> {
  if (inPath('apt-get') === undefined || inPath('dpkg-deb') === undefined)
    throw new Error(
      `The tests need ${program}, which is not in PATH. On Debian and Ubuntu they download it; ` +
        `on other systems install\nit first (${elsewhere}).`,
    );
  process.stderr.write(`${program} is missing: fetching the package of Debian, once …\n`);
  await mkdir(CACHE, { recursive: true });
  const folder = await mkdtemp(join(CACHE, 'fetching-'));
  try {
    await unpackInto(folder, packages);
    // Another run may have been faster; then its copy is used.
    await rename(join(folder, 'unpacked'), root).catch(async (error) => {
      if ((await programIn(root, program)) === undefined) throw error;
    });
    const path = await programIn(root, program);
    if (path === undefined) throw new Error(`the downloaded packages do not contain ${program}`);
    return path;
  } catch (error) {
    throw new Error(`${program} could not be downloaded; install it (apt-get install ${packages[0]})`, {
      cause: error,
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function unpackInto(folder: string, packages: Wanted['packages']): Promise<void> {
  await mkdir(join(folder, 'lists/partial'), { recursive: true });
  await mkdir(join(folder, 'cache/archives/partial'), { recursive: true });
  const own = ['-qq', '-o', `Dir::State::lists=${folder}/lists`, '-o', `Dir::Cache=${folder}/cache`];
  // The user that apt would switch to cannot write into the cache.
  const apt = (...args: string[]) =>
    execFileSync('apt-get', [...own, '-o', 'APT::Sandbox::User=', ...args], {
      cwd: folder,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  apt('update');
  const plan = planOf((name) => apt('-s', '--no-install-recommends', 'install', name), packages);
  const lacking = [...plan.matchAll(/^Inst (\S+)/gm)].map((match) => match[1]!);
  apt('download', ...lacking);
  const archives = (await readdir(folder)).filter((name) => name.endsWith('.deb'));
  for (const archive of archives)
    execFileSync('dpkg-deb', ['-x', join(folder, archive), join(folder, 'unpacked')]);
  await keepLinksInside(join(folder, 'unpacked'));
}

function planOf(plan: (name: string) => string, [first, ...others]: readonly string[]): string {
  try {
    return plan(first!);
  } catch (error) {
    if (others.length === 0) throw error;
    return planOf(plan, others);
  }
}

/** Absolute links such as `/etc/…` are dangling here; they are changed to the unpacked target. */
async function keepLinksInside(root: string): Promise<void> {
  for (const name of await readdir(root, { recursive: true })) {
    const path = join(root, name);
    if (!(await lstat(path)).isSymbolicLink()) continue;
    const target = await readlink(path);
    if (!target.startsWith('/') || !existsSync(join(root, target))) continue;
    await rm(path);
    await symlink(relative(dirname(path), join(root, target)), path);
  }
}

/** The folders with libraries below `usr/lib` and `lib`, such as `usr/lib/x86_64-linux-gnu/pulseaudio`. */
async function librariesIn(root: string): Promise<string> {
  const found = new Set<string>();
  for (const top of ['usr/lib', 'lib'].map((name) => join(root, name)).filter((path) => existsSync(path))) {
    for (const path of await readdir(top, { recursive: true }))
      if (/^lib.*\.so(\.|$)/.test(basename(path))) found.add(join(top, dirname(path)));
  }
  return [...found].sort().join(':');
}
