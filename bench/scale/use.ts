/** CPU and memory of each process of a node while something runs. */
import { type ProcessUse, processesOf } from '../node.js';

export interface Use {
  readonly seconds: number;
  /** Cores: the process that was started, its instances, the one with the role worker. */
  readonly nodes: readonly number[];
  /** All processes of PostgreSQL together, and the one that used most. */
  readonly database: number;
  readonly busiestSession: number;
  /** The generator of the load. */
  readonly load: number;
}

/** Use by the processes of these trees, and by this process. */
export async function useDuring<T>(
  pids: readonly number[],
  work: () => Promise<T>,
): Promise<{ readonly result: T; readonly use: Use }> {
  const read = () => new Map(pids.flatMap(processesOf).map((each) => [each.pid, each]));
  const [before, cpu, startMs] = [read(), process.cpuUsage(), performance.now()];
  const result = await work();
  const seconds = (performance.now() - startMs) / 1_000;
  const { user, system } = process.cpuUsage(cpu);
  const cores = (each: ProcessUse) => (each.cpuSeconds - (before.get(each.pid)?.cpuSeconds ?? 0)) / seconds;
  const after = [...read().values()];
  const sessions = after.filter(({ isNode }) => !isNode).map(cores);
  return {
    result,
    use: {
      seconds,
      nodes: after.filter(({ isNode }) => isNode).map(cores),
      database: sessions.reduce((sum, each) => sum + each, 0),
      busiestSession: Math.max(0, ...sessions),
      load: (user + system) / 1e6 / seconds,
    },
  };
}

const cores = (value: number): string => value.toFixed(2);

export function useText({ nodes, database, busiestSession, load }: Use): string {
  return (
    `cores: node ${nodes.map(cores).join(' + ')}, PostgreSQL ${cores(database)} ` +
    `(busiest session ${cores(busiestSession)}), load ${cores(load)}`
  );
}
