/**
 * `--consumers off`: pauses search, moderation and trust with the operator's command as soon as the node has
 * booted.
 */
import { join } from 'node:path';
import type { Bench } from './measure.js';
import { nodeEnvironment, runCommand } from './node.js';

/** Does nothing on an old commit without consumers. */
export async function pauseConsumers(bench: Pick<Bench, 'folder' | 'nodeEnv' | 'program'>): Promise<void> {
  const run = (args: readonly string[]) =>
    runCommand(args, nodeEnvironment(join(bench.folder, 'data'), 0, bench.nodeEnv), bench.program);
  const help = await run(['--help']);
  if (!/^\s*consumers\b/m.test(help.output)) return;
  const listed = await run(['consumers', 'list', '--json']);
  for (const name of consumerNames(listed.output)) {
    const { code, output } = await run(['consumers', 'pause', name]);
    if (code !== 0) throw new Error(`${name} could not be paused: ${output}`);
  }
}

/** The command's exit code also reports problems of a consumer, so only its output counts. */
export function consumerNames(output: string): string[] {
  const names = [...output.matchAll(/"consumer":\s*"([^"]+)"/g)].map(([, name]) => name!);
  if (names.length === 0) throw new Error(`minato consumers list names no consumer: ${output}`);
  return names;
}
