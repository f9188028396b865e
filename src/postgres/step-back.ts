/**
 * Lowers the priority of a process of the embedded PostgreSQL (I18). Under contention it gets a tenth of the
 * CPU of a light query, the lane or the node; without contention it gets all. Linux shares CPU between
 * *sessions* first (autogroup, sched(7)), and every PostgreSQL process is a session of its own. So without
 * this the whole node would count as much as one expensive query, and a nice value alone changes nothing.
 */
import { writeFile } from 'node:fs/promises';
import { setPriority } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';

export const DEAR_NICENESS = 10;
/** Linux accepts one such change in 0.1 s from users other than root. */
const TRIES = 20;
const TRY_AGAIN_MS = 150;

/** If the system does not support or allow it, the process continues unchanged. */
export async function stepBack(pid: number): Promise<void> {
  try {
    setPriority(pid, DEAR_NICENESS);
    for (let tries = 0; tries < TRIES && (await isBusy(pid)); tries += 1)
      await sleep(TRY_AGAIN_MS, undefined, { ref: false });
  } catch {
    // It has ended, it belongs to another user, or this is not Linux.
  }
}

/** True if it must be tried again. */
async function isBusy(pid: number): Promise<boolean> {
  try {
    await writeFile(`/proc/${pid}/autogroup`, String(DEAR_NICENESS), { flag: 'r+' });
    return false;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
    return true;
  }
}
