/** A small disk that can be filled: a tmpfs, where this user may mount one; otherwise a plain folder. */
import { execFile, execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, statfs, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const SIZE = '640m';
/** What is left when the disk is full. */
const LEFT_BYTES = 65_536;

/** Unmounted when the run ends, whatever ends it. */
const mounted = new Set<string>();
process.on('exit', () => {
  for (const folder of mounted) execFileSync('umount', ['-l', folder]);
});

export class SmallDisk {
  private constructor(
    readonly folder: string,
    /** For what is on another machine, and for the run itself: this folder is never full. */
    readonly beside: string,
    /** It can be filled. */
    readonly isSmall: boolean,
  ) {}

  static async open(): Promise<SmallDisk> {
    const beside = await mkdtemp(join(tmpdir(), 'minato-faults-'));
    const folder = join(beside, 'disk');
    await chmod(beside, 0o755);
    await mkdir(folder);
    const isRoot = process.getuid?.() === 0 && process.platform === 'linux';
    const isSmall =
      isRoot &&
      (await run('mount', ['-t', 'tmpfs', '-o', `size=${SIZE},mode=0755`, 'tmpfs', folder]).then(
        () => true,
        () => false,
      ));
    if (isSmall) mounted.add(folder);
    return new SmallDisk(folder, beside, isSmall);
  }

  async fill(): Promise<void> {
    if (!this.isSmall) return;
    const { bavail, bsize } = await statfs(this.folder);
    await writeFile(this.filler, Buffer.alloc(Math.max(0, bavail * bsize - LEFT_BYTES))).catch(
      () => undefined,
    );
  }

  free(): Promise<void> {
    return rm(this.filler, { force: true });
  }

  async close(): Promise<void> {
    if (this.isSmall) await run('umount', ['-l', this.folder]);
    mounted.delete(this.folder);
    await rm(this.beside, { recursive: true, force: true });
  }

  private get filler(): string {
    return join(this.folder, 'filler');
  }
}
