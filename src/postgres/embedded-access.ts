/**
 * Writes pg_hba.conf of the embedded PostgreSQL: only the role of the node may connect, through the unix
 * socket, whose folder only the server's user and root may enter. TCP is rejected, even if somebody starts
 * the server by hand with a listen address. The file is written at each start: a data folder of an earlier
 * version has lines that trust hosts.
 */
import { chown, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { SystemUser } from './system-user.js';

/** The name of the role and of the database. */
export const NAME = 'minato';

const LINES = `# Written by Minato at each start; changes are lost.
# The socket lies in a folder that only the user of this server and root may enter.
local  all          ${NAME}  trust
local  replication  ${NAME}  trust
# Nobody connects over TCP.
host   all          all  all  reject
host   replication  all  all  reject
`;

/** True if the file was different before. */
export async function writeAccessRules(pgdata: string, user: SystemUser | undefined): Promise<boolean> {
  const path = join(pgdata, 'pg_hba.conf');
  if ((await readFile(path, 'utf8').catch(() => '')) === LINES) return false;
  // Written atomically: without this file the server does not start.
  const made = `${path}.minato`;
  await rm(made, { force: true });
  await writeFile(made, LINES, { mode: 0o600, flag: 'wx' });
  if (user !== undefined) await chown(made, user.uid, user.gid);
  await rename(made, path);
  return true;
}
