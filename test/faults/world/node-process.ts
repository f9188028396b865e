/** An instance of the node: the real program, whose every connection goes through a link of the world. */
import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { WorldProcess } from './process.js';

/** Another one is a copy with a broken rule (broken.ts). */
export const PROGRAM =
  process.env.MINATO_FAULTS_PROGRAM ?? fileURLToPath(new URL('../../../bin/minato.js', import.meta.url));

export interface NodePlace {
  readonly roles: string;
  readonly port: number;
  readonly env: Readonly<Record<string, string>>;
}

export class NodeProcess extends WorldProcess {
  constructor(
    name: string,
    readonly place: NodePlace,
  ) {
    super(name);
  }

  protected spawn(): ChildProcess {
    const { roles, env, port } = this.place;
    return spawn(process.execPath, [PROGRAM, 'serve', '--roles', roles], {
      env: { ...env, MINATO_PORT: `${port}` },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
  }

  /** Asked directly, not through a link. */
  protected async untilReady(hasEnded: () => boolean): Promise<void> {
    for (;;) {
      const answer = await fetch(`http://127.0.0.1:${this.place.port}/readyz`, {
        signal: AbortSignal.timeout(10_000),
      }).catch(() => undefined);
      await answer?.text().catch(() => undefined);
      if (answer?.status === 200) return;
      if (hasEnded())
        throw new Error(answer === undefined ? 'it does not answer' : `/readyz is ${answer.status}`);
      await delay(100);
    }
  }
}
