/** A real server of a test file, in a process and a folder of its own: it can stop, hang and start again. */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';

type Spawn = (folder: string, port: number) => Promise<ChildProcess>;

export abstract class ServerProcess {
  protected constructor(
    private child: ChildProcess,
    private readonly folder: string,
    readonly port: number,
    private readonly spawn: Spawn,
  ) {}

  /** Kills the server. Whether its data stays is a matter of the server. */
  async goDown(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await ended;
  }

  /** Starts it again in the same folder, on the same port. */
  async comeBack(): Promise<void> {
    this.child = await this.spawn(this.folder, this.port);
  }

  /** The server accepts connections but answers nothing until `thaw`. */
  freeze(): void {
    this.child.kill('SIGSTOP');
  }
  thaw(): void {
    this.child.kill('SIGCONT');
  }

  async stop(): Promise<void> {
    await this.goDown();
    await rm(this.folder, { recursive: true, force: true });
  }
}
