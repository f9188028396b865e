/** One process of an instance, as its primary sees it: start, first answer, end. */
import cluster, { type Worker } from 'node:cluster';
import type { Socket } from 'node:net';
import type { InstanceStart, ToInstance, ToPrimary } from './messages.js';

export class Life {
  readonly startedAt = Date.now();
  isServing = false;
  /** It serves those who are connected to the end, and gets no new clients. */
  isStopping = false;
  /** When it last answered. */
  heardAt = Date.now();
  /** Rejects with its own words if it could not start. */
  readonly ready: Promise<void>;
  /** How it ended. */
  readonly ended: Promise<string>;
  private readonly worker: Worker;

  constructor(start: InstanceStart, onMessage: (message: ToPrimary, life: Life) => void) {
    this.worker = cluster.fork();
    this.worker.on('error', () => undefined);
    let failure: string | undefined;
    this.ended = new Promise((resolve) => {
      this.worker.once('exit', (code, signal) => {
        this.isServing = false;
        resolve(failure ?? signal ?? `exit code ${code}`);
      });
    });
    this.ready = new Promise((resolve, reject) => {
      this.worker.on('message', (message: ToPrimary) => {
        this.heardAt = Date.now();
        if (message.kind === 'hello') this.send({ kind: 'start', start });
        else if (message.kind === 'failed') failure = message.why;
        else if (message.kind === 'ready') {
          this.isServing = !this.isStopping;
          resolve();
        } else onMessage(message, this);
      });
      void this.ended.then((how) => reject(new Error(how)));
    });
    // Whoever does not wait for it reads `ended`.
    this.ready.catch(() => undefined);
  }

  /** False: it cannot take the socket, which stays as it was. */
  send(message: ToInstance, socket?: Socket): boolean {
    if (!this.worker.isConnected() || socket?.destroyed) return false;
    this.worker.send(message, socket, (error) => {
      if (error !== null) socket?.destroy();
    });
    return true;
  }

  /** It is killed if it takes longer than this (I15). */
  async stop(drains: boolean, msMax: number): Promise<void> {
    this.isServing = false;
    this.isStopping = true;
    this.send({ kind: 'stop', drains });
    const late = setTimeout(() => this.kill(), msMax);
    await this.ended;
    clearTimeout(late);
  }

  kill(): void {
    this.worker.process.kill('SIGKILL');
  }
}
