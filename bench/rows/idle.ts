/**
 * The cost of an unused node: everything is stored, every consumer is up to date, and no client is connected.
 */
import { type Row, Skip } from '../measure.js';
import { treeCpuSeconds } from '../node.js';
import { cpuShare, untilQuiet, untilUpToDate } from '../settle.js';

export const idle: Row = {
  id: 'idle',
  title: 'CPU of an idle node and its database',
  headline: 'cpuPercent',
  unit: '% of a core',
  main: true,
  needsStored: true,
  repeatsMax: 2,
  seconds: ({ idleSeconds }) => idleSeconds + 4,
  async measure(bench, findings) {
    const pid = bench.node?.pid;
    if (pid === undefined) throw new Skip('only for a node that the bench booted');
    if (treeCpuSeconds(pid) === undefined) throw new Skip('needs /proc');
    await untilUpToDate(bench);
    if (!(await untilQuiet(bench))) findings.note('the node did not become quiet within a minute');
    return { cpuPercent: (await cpuShare(pid, bench.sizes.idleSeconds * 1_000)) * 100 };
  },
};
