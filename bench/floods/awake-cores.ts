/**
 * Keeps the cores of a virtual machine awake. A core without work is given back to the host, and gets it
 * again late: a host with other guests took up to 85 % of a core from a machine that was half idle, and 1 %
 * from the same machine while it was busy. One process for each core spins with the priority of the idle
 * task: it runs only when nothing else wants to, and makes room at once.
 *
 * Linux shares cores between sessions first (autogroup, sched(7)). In the session of the bench these
 * processes would make it compete for half of each core with every process of PostgreSQL, whatever their own
 * priority is: searches took 1,800 ms at p99. So each has a session of its own, with the lowest share.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';

/** Ends by itself when the bench is gone, also after a `kill -9`. */
const SPIN = `
  const bench = process.ppid;
  for (;;) {
    for (let i = 0; i < 1e7; i++);
    if (process.ppid !== bench) process.exit();
  }`;

const LOWEST = '19';

/** Returns what ends it. Without `chrt` (util-linux) nothing is started: a common priority would compete. */
export function keepCoresAwake(): () => void {
  if (process.platform !== 'linux') return () => undefined;
  const spinning = Array.from({ length: availableParallelism() }, (): ChildProcess => {
    const args = ['--idle', '0', process.execPath, '-e', SPIN];
    const child = spawn('chrt', args, { stdio: 'ignore', detached: true });
    void writeFile(`/proc/${child.pid}/autogroup`, LOWEST, { flag: 'r+' }).catch(() => undefined);
    return child.on('error', () => undefined);
  });
  return () => {
    for (const child of spinning) child.kill('SIGKILL');
  };
}
