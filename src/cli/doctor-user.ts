/** The part of `minato doctor` about the system user that the node runs as. */
import { readFile } from 'node:fs/promises';
import { type Finding, fail, info, messageOf, ok, warn } from '../health/finding.js';
import type { Config } from '../node/config.js';
import { userNamed } from '../node/privileges.js';

/** `holder`: the process that holds the lock of the data folder. */
export async function* checkUser({ user }: Config, holder: number | undefined): AsyncGenerator<Finding> {
  if (user !== undefined && user !== 'root') {
    const problem = await userNamed(user).then(() => undefined, messageOf);
    if (problem !== undefined) yield fail(problem, 'Create it, name another one, or unset MINATO_USER.');
  }
  const uid = holder === undefined ? undefined : await uidOf(holder);
  if (uid === 0) {
    const advice =
      'Give a system user access to the program and the data folder (the log of the start names the path), ' +
      'or start the node as a normal user.';
    yield warn(`the node (process ${holder}) runs as root`, advice);
  } else if (uid !== undefined) yield ok(`the node runs as an unprivileged user (id ${uid})`);
  else if (process.getuid?.() === 0) yield info(whatRootBecomes(user));
}

function whatRootBecomes(user: string | undefined): string {
  if (user === 'root') return 'a node that root starts stays root (MINATO_USER)';
  return `a node that root starts becomes the system user ${user ?? '"minato"'} once it listens`;
}

/** Undefined if the system has no /proc. */
async function uidOf(pid: number): Promise<number | undefined> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  const uid = /^Uid:\t\d+\t(\d+)/m.exec(status)?.[1];
  return uid === undefined ? undefined : Number(uid);
}
