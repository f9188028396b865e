/** Import files of events, good and bad lines, through `minato import` beside the running node. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Dice } from '../../../src/demo/rules-dice.js';
import { makeEvent, makeSigned } from '../make/events.js';
import { oddText } from '../make/values.js';
import { mutate } from '../mutate.js';
import { Broken, type Done } from '../target.js';
import type { FuzzedNode } from './node.js';

const PROGRAM = fileURLToPath(new URL('../../../bin/minato.js', import.meta.url));

export async function runImport(node: FuzzedNode, seed: string, inputs: number): Promise<Done> {
  const began = performance.now();
  const dice = new Dice(`${seed}/import`);
  const now = Math.floor(Date.now() / 1_000);
  const line = () => {
    const event = JSON.stringify(dice.chance(0.5) ? makeSigned(dice, now) : makeEvent(dice, now));
    if (dice.chance(0.3)) return mutate(dice, event, [event]);
    return dice.chance(0.05) ? oddText(dice, 200) : event;
  };
  const text = Array.from({ length: inputs }, () => line().replaceAll('\n', ' ')).join('\n');
  await importText(node, text);
  return { target: 'import', inputs, seconds: (performance.now() - began) / 1_000, notes: {} };
}

async function importText(node: FuzzedNode, text: string): Promise<void> {
  const child = spawn(process.execPath, [PROGRAM, 'import'], {
    env: node.env,
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const shown: Buffer[] = [];
  child.stdout.on('data', (chunk) => shown.push(chunk));
  child.stderr.on('data', (chunk) => shown.push(chunk));
  child.stdin.on('error', () => undefined);
  child.stdin.end(text);
  const [code] = (await once(child, 'close')) as [number | null];
  node.check();
  const said = Buffer.concat(shown).toString();
  // 2: some lines were refused, and it says which.
  if (code === null || code > 2 || /\n\s+at .+:\d+:\d+/.test(said))
    throw new Broken('import', text, `the command ended with ${code}: ${said.slice(-600)}`);
}
