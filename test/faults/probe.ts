/** I15: while other processes hang, an instance that runs answers /healthz, which needs none of them. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Violations } from './violations.js';
import type { World } from './world/world.js';

const PAUSE_MS = 250;
/** It answers in milliseconds; the machine may be busy. */
const ANSWER_MS_MAX = 20_000;

export function probe(world: World, violations: Violations): { stop(): Promise<void> } {
  let isRunning = true;
  const watch = async (name: 'a' | 'b') => {
    const node = world.nodes[name];
    while (isRunning) {
      const starts = node.starts;
      const ran = node.runs;
      const answer = await fetch(`http://127.0.0.1:${node.place.port}/healthz`, {
        signal: AbortSignal.timeout(ANSWER_MS_MAX),
      }).catch((error: Error) => error);
      const ranOn = ran && node.runs && node.starts === starts;
      if (answer instanceof Error && answer.name === 'TimeoutError' && ranOn)
        violations.add('I15', `${name} does not answer /healthz for ${ANSWER_MS_MAX} ms`);
      if (!(answer instanceof Error)) await answer.text().catch(() => undefined);
      await delay(PAUSE_MS);
    }
  };
  const watching = Promise.all([watch('a'), watch('b')]);
  return {
    stop: async () => {
      isRunning = false;
      await watching;
    },
  };
}
