/**
 * Keeps the cores of a virtual machine awake. A core without work is given back to the host, and gets it
 * again late: a host with other guests took up to 85 % of a core from a machine that was half idle, and 1 %
 * from the same machine while it was busy. One process for each core spins with the priority of the idle
 * task: it runs only when nothing else wants to, and makes room at once.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';

/** Ends by itself when the bench is gone, also after a `kill -9`. */
const SPIN = `
  const bench = process.ppid;
  for (;;) {
    for (let i = 0; i < 1e7; i++);
    if (process.ppid !== bench) process.exit();
  }`;

/** Returns what ends it. Without `chrt` (util-linux) nothing is started: a common priority would compete. */
export function keepCoresAwake(): () => void {
  if (process.platform !== 'linux') return () => undefined;
  const spinning = Array.from({ length: availableParallelism() }, (): ChildProcess => {
    const child = spawn('chrt', ['--idle', '0', process.execPath, '-e', SPIN], { stdio: 'ignore' });
    return child.on('error', () => undefined);
  });
  return () => {
    for (const child of spinning) child.kill('SIGKILL');
  };
}
