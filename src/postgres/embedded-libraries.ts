/**
 * Creates the symbolic links by which the embedded PostgreSQL finds its libraries. An npm package cannot
 * contain links, so its install script creates them. If npm ran no scripts, or the package was copied without
 * links, they are created here at the first start: beside the libraries, or in the data folder if this user
 * may not write there.
 */
import { mkdir, readFile, rm, stat, symlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { errorCode } from './rules-error-code.js';

/** An entry of the package's list of links. Both paths are relative to the folder of the package. */
interface Link {
  /** The file. */
  readonly source: string;
  /** The link to it. */
  readonly target: string;
}

/** The environment with which the programs of PostgreSQL find their libraries; mostly empty. */
export async function linkLibraries(program: string, dataFolder: string): Promise<NodeJS.ProcessEnv> {
  const root = dirname(dirname(dirname(program)));
  const missing = await missingLinks(root);
  if (missing.length === 0) return {};
  try {
    await linkAll(missing.map(({ source, target }) => [basename(source), join(root, target)]));
    return {};
  } catch (error) {
    if (!isReadOnly(error)) throw error;
  }
  const folder = join(dataFolder, 'postgres-libraries');
  // Links of another version, or to another path of the package, would be broken.
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder);
  const all = await linksOf(root);
  await linkAll(all.map(({ source, target }) => [join(root, source), join(folder, basename(target))]));
  const variable = process.platform === 'darwin' ? 'DYLD_LIBRARY_PATH' : 'LD_LIBRARY_PATH';
  // A library looks for others in the folder of the link by which it was found.
  return { [variable]: `${folder}:${join(root, 'native', 'lib')}` };
}

async function linksOf(root: string): Promise<Link[]> {
  const list = await readFile(join(root, 'native', 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  return JSON.parse(list) as Link[];
}

async function missingLinks(root: string): Promise<Link[]> {
  const links = await linksOf(root);
  const isThere = await Promise.all(links.map(({ target }) => exists(join(root, target))));
  return links.filter((_link, at) => !isThere[at]);
}

async function linkAll(links: readonly (readonly [to: string, at: string])[]): Promise<void> {
  for (const [to, at] of links) {
    // Another start may create the same links now.
    await symlink(to, at).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
  }
}

function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

function isReadOnly(error: unknown): boolean {
  return ['EACCES', 'EPERM', 'EROFS'].includes(errorCode(error) ?? '');
}
