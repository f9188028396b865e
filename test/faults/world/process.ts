/** A process of a world: it can be killed, frozen and started again, any number of times, in any order. */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

const LINES_KEPT = 60;
const END_MS_MAX = 30_000;

/** Processes that this run has started and that live: killed when the run ends, whatever ends it. */
const alive = new Set<number>();
process.on('exit', () => {
  for (const pid of alive) signal(pid, 'SIGKILL');
});

export abstract class WorldProcess {
  private child: ChildProcess | undefined;
  private readonly lines: string[] = [];
  private isFrozen = false;
  /** How often it was started. */
  starts = 0;

  constructor(readonly name: string) {}

  protected abstract spawn(): ChildProcess;
  /** Resolves when it serves; rejects when it ended before. */
  protected abstract untilReady(hasEnded: () => boolean): Promise<void>;

  get pid(): number | undefined {
    return this.child?.pid;
  }

  get isAlive(): boolean {
    return this.child !== undefined && this.child.exitCode === null && this.child.signalCode === null;
  }

  /** Neither killed nor frozen. */
  get runs(): boolean {
    return this.isAlive && !this.isFrozen;
  }

  /** Its last lines. */
  get said(): string {
    return this.lines.join('\n');
  }

  /** Starts it, without waiting until it serves. */
  launch(): void {
    if (this.isAlive) return;
    const child = this.spawn();
    this.child = child;
    this.isFrozen = false;
    this.starts += 1;
    const { pid } = child;
    if (pid !== undefined) alive.add(pid);
    child.once('exit', () => pid !== undefined && alive.delete(pid));
    child.on('error', (error) => this.keep(error.message));
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (chunk: Buffer) => this.keep(String(chunk).trimEnd()));
  }

  /** Starts it if it does not run. One that ends while it starts is started again, until the deadline. */
  async ensure(deadlineMs: number): Promise<void> {
    const until = Date.now() + deadlineMs;
    for (;;) {
      this.thaw();
      this.launch();
      const { child } = this;
      try {
        await this.untilReady(() => child !== this.child || !this.isAlive || Date.now() > until);
        return;
      } catch (error) {
        if (Date.now() > until)
          throw new Error(`${this.name} does not run: ${(error as Error).message}\n${this.said}`);
        await delay(300);
      }
    }
  }

  async kill(): Promise<void> {
    const { child } = this;
    if (child === undefined || !this.isAlive) return;
    const ended = once(child, 'exit');
    for (const pid of [child.pid!, ...this.descendants()]) signal(pid, 'SIGKILL');
    await ended;
  }

  /** It accepts connections and answers nothing. */
  freeze(): void {
    if (!this.isAlive) return;
    this.isFrozen = true;
    for (const pid of [this.child!.pid!, ...this.descendants()]) signal(pid, 'SIGSTOP');
  }

  thaw(): void {
    if (!this.isAlive) return;
    for (const pid of [...this.descendants(), this.child!.pid!]) signal(pid, 'SIGCONT');
    this.isFrozen = false;
  }

  /** Ends it in order. False: it had to be killed. */
  async end(): Promise<boolean> {
    const { child } = this;
    if (child === undefined || !this.isAlive) return true;
    this.thaw();
    const ended = once(child, 'exit').then(() => true);
    child.kill('SIGTERM');
    const inTime = await Promise.race([ended, delay(END_MS_MAX, false, { ref: false })]);
    if (!inTime) await this.kill();
    return inTime;
  }

  private keep(text: string): void {
    this.lines.push(...text.split('\n'));
    this.lines.splice(0, Math.max(0, this.lines.length - LINES_KEPT));
  }

  private descendants(): number[] {
    return childrenOf(this.child!.pid!);
  }
}

export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has ended.
  }
}

/** Those below it too. */
export function childrenOf(parent: number): number[] {
  const direct = readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && parentOf(pid) === parent);
  return direct.flatMap((pid) => [pid, ...childrenOf(pid)]);
}

/** Field 4 of /proc/PID/stat, after the name in parentheses. */
function parentOf(pid: number): number | undefined {
  try {
    const line = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return Number(line.slice(line.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return undefined;
  }
}
