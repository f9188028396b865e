/** The node that the floods are measured on: its store is full, and its consumers are up to date. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Corpus } from '../corpus.js';
import {
  type BootedNode,
  freePort,
  nodeEnvironment,
  PROGRAM,
  runCommand,
  startNode,
  withCleanUp,
} from '../node.js';
import { untilUpToDate } from '../settle.js';

type NodeEnv = Readonly<Record<string, string>>;

/** Fills the store with `minato import`, which has no rate limit. */
export async function fillStore(folder: string, corpus: Corpus, nodeEnv: NodeEnv): Promise<void> {
  const file = join(folder, 'import.jsonl');
  writeFileSync(file, corpus.lines(0, corpus.size));
  const env = nodeEnvironment(join(folder, 'data'), await freePort(), nodeEnv);
  const { code, output } = await runCommand(['import', file], env);
  if (code !== 0) throw new Error(`minato import ended with ${code}:\n${output}`);
}

/** Changes settings as an operator does. They are kept in the database, for every node on the folder. */
export async function changeSettings(
  folder: string,
  settings: Readonly<Record<string, string>>,
  nodeEnv: NodeEnv,
): Promise<void> {
  for (const [key, value] of Object.entries(settings)) {
    const env = nodeEnvironment(join(folder, 'data'), await freePort(), nodeEnv);
    const { code, output } = await runCommand(['settings', 'set', key, value], env);
    if (code !== 0) throw new Error(`minato settings set ${key} ended with ${code}:\n${output}`);
  }
}

/**
 * Starts a node on the folder and stops it after the work. The work begins when the consumers are up to date:
 * what a node does once after its start, such as indexing the imported events, is not measured.
 */
export async function withNode<T>(
  folder: string,
  nodeEnv: NodeEnv,
  work: (node: BootedNode, port: number) => Promise<T>,
  profileFolder?: string,
): Promise<T> {
  let node: BootedNode | undefined;
  return withCleanUp(
    async () => node?.stop(),
    async () => {
      node = await startNode(folder, nodeEnv, PROGRAM, profileFolder);
      await node.ready();
      await untilUpToDate({ node, folder, nodeEnv });
      return work(node, Number(new URL(node.url).port));
    },
  );
}
