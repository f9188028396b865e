/** Copies a folder into another one, with owners and modes, which `fs.cp` does not keep. */
import { execFile } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { promisify } from 'node:util';

export async function copyFolder(from: string, into: string): Promise<void> {
  await mkdir(into, { recursive: true });
  await promisify(execFile)('cp', ['-a', from, into]);
}
