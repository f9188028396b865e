/**
 * Files that root creates in a data folder of another user: by a command beside a node that has dropped root
 * privileges. The owner of the folder must own them too, otherwise the node could not read its own keys.
 */
import { chmod, lchown, lstat, mkdir, stat } from 'node:fs/promises';

/** Gives new files to the owner of the data folder. Does nothing unless this process is root. */
export async function giveToOwner(dataDir: string, ...paths: readonly string[]): Promise<void> {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = await stat(dataDir);
  if (uid === 0) return;
  for (const path of paths) await lchown(path, uid, gid);
}

/**
 * Creates a private folder in the data folder. A link is left as it is: the operator may have made it, and if
 * the data folder belongs to another user, root must not change the target of a link.
 */
export async function ownFolder(dataDir: string, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  if ((await lstat(folder)).isSymbolicLink()) return;
  await chmod(folder, 0o700);
  await giveToOwner(dataDir, folder);
}
