/**
 * One process of an instance, as its primary sees it: start, first answer, log, end. Its log goes through the
 * primary: processes that share a pipe could block each other on it.
 */
import type { ChildProcess } from 'node:child_process';
import cluster, { type Worker } from 'node:cluster';
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { InstanceStart, ToInstance, ToPrimary } from './messages.js';

/** After its end: what it has printed is read. */
const LAST_LINES_MS_MAX = 1_000;
/** Of stderr, that nobody has read yet. */
const UNREAD_BYTES_MAX = 65_536;

export interface LifeEvents {
  /** A line of its log, with its end. */
  readonly onLine: (line: string) => void;
  readonly onMessage: (message: ToPrimary, life: Life) => void;
  /** It has ended before it could take this socket. */
  readonly onReturned: (socket: Socket) => void;
}

export class Life {
  readonly startedAt = Date.now();
  isServing = false;
  /** It serves those who are connected to the end, and gets no new clients. */
  isStopping = false;
  /** When it last answered. */
  heardAt = Date.now();
  /** Rejects with its own words if it could not start. */
  readonly ready: Promise<void>;
  /** How it ended, or why it could not be started. */
  readonly ended: Promise<string>;
  private readonly worker: Worker | undefined;
  /** In its own words. */
  private failure: string | undefined;

  /** Sockets that it has not said to have taken, by their number. They stay open here until then. */
  private readonly given = new Map<number, Socket>();
  private lastGiven = 0;

  constructor(start: InstanceStart, { onLine, onMessage, onReturned }: LifeEvents) {
    const worker = fork();
    if (worker instanceof Error) this.ended = Promise.resolve(worker.message);
    else {
      this.worker = worker;
      this.ended = this.untilEnd(worker, onLine, onReturned);
    }
    this.ready = new Promise((resolve, reject) => {
      this.worker?.on('message', (message: ToPrimary) => {
        this.heardAt = Date.now();
        if (message.kind === 'hello') this.send({ kind: 'start', start });
        else if (message.kind === 'taken') this.close(message.number);
        else if (message.kind === 'failed') this.failure = message.why;
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

  private untilEnd(
    worker: Worker,
    onLine: LifeEvents['onLine'],
    onReturned: LifeEvents['onReturned'],
  ): Promise<string> {
    const read = readOutput(worker.process, onLine);
    return new Promise((resolve) => {
      worker.on('error', ({ message }) => {
        // With a pid it runs, and a message could not be sent.
        if (worker.process.pid !== undefined) return;
        // Node.js keeps it otherwise.
        delete cluster.workers?.[worker.id];
        resolve(message);
      });
      worker.once('exit', (code, signal) => {
        this.isServing = false;
        for (const socket of this.given.values()) onReturned(socket);
        this.given.clear();
        const how = this.failure ?? signal ?? `exit code ${code}`;
        void Promise.race([read, delay(LAST_LINES_MS_MAX)]).then(() => resolve(how));
      });
    });
  }

  send(message: ToInstance): void {
    if (this.worker?.isConnected()) this.worker.send(message, () => undefined);
  }

  /** False: it cannot take the socket, which stays as it was. */
  give(socket: Socket): boolean {
    if (!this.worker?.isConnected() || socket.destroyed) return false;
    const number = ++this.lastGiven;
    this.given.set(number, socket);
    const message = { kind: 'connection', number } satisfies ToInstance;
    // An error means that it ends: then it returns the socket.
    this.worker.send(message, socket, { keepOpen: true }, () => undefined);
    return true;
  }

  /** The other process has the connection now. */
  private close(number: number): void {
    this.given.get(number)?.destroy();
    this.given.delete(number);
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
    this.worker?.process.kill('SIGKILL');
  }
}

/**
 * Node.js throws if there is no memory for a process. If there is no place or descriptor for it, the worker
 * has no pid and emits `error`, never `exit`.
 */
function fork(): Worker | Error {
  try {
    return cluster.fork();
  } catch (error) {
    return error as Error;
  }
}

/**
 * Resolves when it can print nothing any more. What it prints on stderr is for people, and may be lost. A
 * process that could not be started may have no streams.
 */
function readOutput(child: ChildProcess, onLine: LifeEvents['onLine']): Promise<void> {
  const { stdout, stderr } = child;
  for (const stream of [stdout, stderr]) stream?.on('error', () => undefined);
  stderr?.on('data', (bytes: Buffer) => {
    if (process.stderr.writableLength < UNREAD_BYTES_MAX) process.stderr.write(bytes);
  });
  let rest = '';
  stdout?.setEncoding('utf8').on('data', (text: string) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop()!;
    for (const line of lines) onLine(`${line}\n`);
  });
  return new Promise((resolve) => {
    child.once('close', () => {
      // A killed process may have been in the middle of a line.
      if (rest !== '') onLine(`${rest}\n`);
      resolve();
    });
  });
}
