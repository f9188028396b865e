/** The commands that the bench sends to the attacker's process, and its answers. */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { stopProcess } from '../node.js';
import type { Material } from './flood.js';

export interface Prepare extends Omit<Material, 'sign'> {
  readonly do: 'prepare';
  readonly flood: string;
  readonly socketsMax: number;
}

export interface Start {
  readonly do: 'start';
  readonly port: number;
  readonly addresses: readonly string[];
  /** The pace of an earlier attack (`Sent.pace`), sent instead of the flood's own pace. */
  readonly pace?: readonly number[] | undefined;
}

/** The time that one entry of a pace stands for. */
export const PACE_MS = 50;

export type Command = Prepare | Start | { readonly do: 'stop' };

/** What an attacker did between start and stop. */
export interface Sent {
  readonly seconds: number;
  readonly messages: number;
  readonly bytes: number;
  /** Sockets that were opened, that the other side closed, and that it refused. */
  readonly opened: number;
  readonly closed: number;
  readonly refused: number;
  /** Messages in each 50 ms since the start. */
  readonly pace: readonly number[];
}

/** An answer names its command, so a late answer is not taken for that of another command. */
export interface Answer {
  readonly to: 'begin' | Command['do'];
  readonly answer?: Sent | undefined;
}

/** After this time a node that accepts no more connections is measured as it is. */
const START_MS_MAX = 10_000;
const ANSWER_MS_MAX = 120_000;

export class Attacker {
  private constructor(private readonly child: ChildProcess) {}

  static async prepare(command: Omit<Prepare, 'do'>): Promise<Attacker> {
    const child = fork(fileURLToPath(new URL('attacker.ts', import.meta.url)), {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const attacker = new Attacker(child);
    await attacker.answerTo('begin', ANSWER_MS_MAX);
    await attacker.send({ do: 'prepare', ...command }, ANSWER_MS_MAX);
    return attacker;
  }

  /** Resolves when every socket was opened or refused, or after ten seconds. */
  async start(port: number, addresses: readonly string[], pace?: readonly number[]): Promise<void> {
    await this.send({ do: 'start', port, addresses, pace }, START_MS_MAX).catch(() => undefined);
  }

  async stop(): Promise<Sent> {
    return (await this.send({ do: 'stop' }, ANSWER_MS_MAX))!;
  }

  async end(): Promise<void> {
    await stopProcess(this.child);
  }

  private send(command: Command, withinMs: number): Promise<Sent | undefined> {
    const answer = this.answerTo(command.do, withinMs);
    this.child.send(command);
    return answer;
  }

  private answerTo(command: Answer['to'], withinMs: number): Promise<Sent | undefined> {
    return new Promise((resolve, reject) => {
      const settle = (done: () => void): void => {
        clearTimeout(late);
        this.child.off('message', onMessage);
        this.child.off('exit', onExit);
        done();
      };
      const late = setTimeout(() => settle(() => reject(new Error('the attacker did not answer'))), withinMs);
      const onMessage = ({ to, answer }: Answer): void => {
        if (to === command) settle(() => resolve(answer));
      };
      const onExit = (code: number | null): void =>
        settle(() => reject(new Error(`the attacker ended with ${code}`)));
      this.child.on('message', onMessage);
      this.child.on('exit', onExit);
    });
  }
}
