/**
 * The clock of a process, by libfaketime: its wall clock jumps while its timers run on. Where the library is
 * not to be had, clocks do not jump.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { findProgram } from '../../support/servers/debian-package.js';

const LIBRARY = 'libfaketime.so.1';
/** How long the library may use what it has read. */
const CACHE_SECONDS = 1;

export async function findFaketime(): Promise<string | undefined> {
  if (process.platform !== 'linux') return undefined;
  try {
    const { path } = await findProgram({
      program: 'faketime',
      packages: ['faketime'],
      elsewhere: 'Fedora: dnf install libfaketime; Alpine: apk add libfaketime; Arch: pacman -S libfaketime',
    });
    const found = join(dirname(path), '../lib');
    const triplet = execFileSync('uname', ['-m'], { encoding: 'utf8' }).trim();
    const places = [join(found, `${triplet}-linux-gnu/faketime`), join(found, 'faketime')];
    return places.map((place) => join(place, LIBRARY)).find((file) => existsSync(file));
  } catch {
    return undefined;
  }
}

export class Clock {
  private seconds = 0;

  constructor(
    private readonly library: string | undefined,
    private readonly file: string,
  ) {
    this.write();
  }

  get canJump(): boolean {
    return this.library !== undefined;
  }

  get env(): Record<string, string> {
    if (this.library === undefined) return {};
    return {
      LD_PRELOAD: this.library,
      FAKETIME_TIMESTAMP_FILE: this.file,
      FAKETIME_CACHE_DURATION: `${CACHE_SECONDS}`,
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
      FAKETIME_NO_CACHE: '0',
    };
  }

  jump(seconds: number): void {
    this.seconds = seconds;
    this.write();
  }

  private write(): void {
    writeFileSync(this.file, `${this.seconds < 0 ? '' : '+'}${this.seconds}\n`);
  }
}
