/** A pipe whose reader hangs until the test reads it, and a process that writes to it. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const PROGRAM = fileURLToPath(new URL('../../bin/minato.js', import.meta.url));

export class UnreadPipe {
  text = '';
  private filled = 0;
  private readonly folder = mkdtempSync(join(tmpdir(), 'minato-pipe-'));
  private readonly reading: number;
  private reader: Socket | undefined;
  /** For the process that writes. */
  readonly writing: number;

  constructor() {
    const path = join(this.folder, 'pipe');
    execFileSync('mkfifo', [path]);
    this.reading = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    this.writing = openSync(path, 'w');
  }

  /** Nothing more has room. */
  fill(): void {
    const fd = openSync(join(this.folder, 'pipe'), constants.O_WRONLY | constants.O_NONBLOCK);
    for (const piece of [4_096, 1]) {
      try {
        for (;;) this.filled += writeSync(fd, ' '.repeat(piece));
      } catch {
        // There is no room for another piece.
      }
    }
    closeSync(fd);
  }

  /** From now on. */
  read(): void {
    this.reader = new Socket({ fd: this.reading, writable: false });
    this.reader.setEncoding('utf8').on('data', (text: string) => {
      this.text += text;
    });
  }

  /** What processes have written to it, when all of them have ended. */
  async whole(): Promise<string> {
    const closed = once(this.reader!, 'close');
    closeSync(this.writing);
    await closed;
    return this.text.slice(this.filled);
  }

  /** The reader ends without having read. */
  close(): void {
    if (this.reader === undefined) closeSync(this.reading);
    else this.reader.destroy();
    rmSync(this.folder, { recursive: true });
  }
}

/** With exactly this environment and these descriptors. */
export function startOn(
  args: readonly string[],
  env: Record<string, string>,
  [stdout, stderr]: readonly [number | 'pipe' | 'ignore', number | 'pipe' | 'ignore'],
): ChildProcess {
  return spawn(process.execPath, [PROGRAM, ...args], {
    env: { PATH: process.env.PATH ?? '', ...env },
    stdio: ['ignore', stdout, stderr],
  });
}

const IDLE_MS = 300;

/** Resolves when it has ended, or has used no CPU time for a moment: it waits. */
export async function untilIdle({ pid, exitCode }: ChildProcess): Promise<void> {
  if (exitCode !== null) return;
  for (let last = ''; ; ) {
    const now = cpuTimeOf(pid!);
    if (now === last) return;
    last = now;
    await delay(IDLE_MS);
  }
}

/** User and system. */
function cpuTimeOf(pid: number): string {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text
      .slice(text.lastIndexOf(')') + 2)
      .split(' ')
      .slice(11, 13)
      .join(' ');
  } catch {
    return 'ended';
  }
}
