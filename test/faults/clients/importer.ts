/** `minato import` as a process of its own, which may be killed and is then run again. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { VerifiedEvent } from 'nostr-tools/pure';
import { PROGRAM } from '../world/node-process.js';

const AGAIN_MS = 1_000;

export interface Import {
  readonly file: string;
  readonly community: string;
  readonly events: readonly VerifiedEvent[];
  readonly env: Readonly<Record<string, string>>;
  readonly killAfterMs: number | undefined;
  readonly untilMs: number;
}

/** Until it has ended with exit code 0. */
export async function importFile(options: Import): Promise<void> {
  const { file, events, killAfterMs, untilMs } = options;
  await writeFile(file, events.map((event) => `${JSON.stringify(event)}\n`).join(''));
  const until = Date.now() + untilMs;
  let { code, said } = await runOnce(options, killAfterMs);
  while (code !== 0) {
    if (Date.now() > until) throw new Error(`minato import ends with ${code}: ${said}`);
    await delay(AGAIN_MS);
    ({ code, said } = await runOnce(options, undefined));
  }
}

async function runOnce(
  { file, community, env }: Import,
  killAfterMs: number | undefined,
): Promise<{ code: number | null; said: string }> {
  const child = spawn(process.execPath, [PROGRAM, 'import', file, '--community', community], {
    env: { ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      said = (said + String(chunk)).slice(-2_000);
    });
  const ended = once(child, 'exit') as Promise<[number | null]>;
  const timer = killAfterMs === undefined ? undefined : setTimeout(() => child.kill('SIGKILL'), killAfterMs);
  const [code] = await ended;
  clearTimeout(timer);
  return { code, said };
}
