/** A node on a new folder whose store was filled by SQL before it started (sql-store.ts). */
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BootedNode, makeFolder, removeFolder, startNode, withCleanUp } from './node.js';
import { fillBySql, withStore } from './sql-store.js';

export interface FilledNode {
  readonly node: BootedNode;
  readonly folder: string;
  readonly nodeEnv: Record<string, string>;
}

/** Fills it, starts it, waits until it is ready, and stops and removes it in every case. */
export async function withFilledNode(
  count: number,
  nodeEnv: Record<string, string>,
  say: (text: string) => void,
  work: (filled: FilledNode) => Promise<void>,
): Promise<void> {
  const folder = makeFolder(tmpdir());
  await withCleanUp(
    async () => removeFolder(folder),
    async () => {
      const now = Date.now();
      await withStore(
        join(folder, 'data'),
        () => now,
        (store) => fillBySql(store, { count, ingestedAt: now, say }),
      );
      const node = await startNode(folder, nodeEnv);
      await withCleanUp(
        () => node.stop(),
        async () => {
          await node.ready();
          await work({ node, folder, nodeEnv });
        },
      );
    },
  );
}
