/** I14, seen from outside: what each process of the node holds after a round. */
import { readdirSync, readFileSync } from 'node:fs';
import { NODES } from '../plan.js';
import type { Violations } from '../violations.js';
import type { World } from '../world/world.js';

const MEMORY_MB_MAX = 1_000;
const FILES_MAX = 500;

export function checkProcesses({ nodes }: World, violations: Violations): void {
  for (const name of NODES) {
    const { pid } = nodes[name];
    if (pid === undefined) continue;
    const files = readdirSync(`/proc/${pid}/fd`).length;
    const memory = Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1_024;
    if (files > FILES_MAX) violations.add('I14', `${name} has ${files} open files`);
    if (memory > MEMORY_MB_MAX) violations.add('I14', `${name} uses ${Math.round(memory)} MB`);
  }
}
