import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { NoAnswer } from '../limits/in-time.js';
import { runProgram } from './system-user.js';

const MS_MAX = 500;
/** Less than the programs below would take. */
const LATE_MS = 20_000;

/** Of processes that have this in their environment. */
const pidsWith = (mark: string): string[] =>
  readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && environmentOf(pid).includes(mark));

function environmentOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8');
  } catch {
    // It has ended, or belongs to another user.
    return '';
  }
}

describe('a program that hangs is ended at its deadline', () => {
  it.each([
    ['ignores SIGTERM', 'trap "" TERM; exec sleep 60'],
    ['is stopped', 'kill -STOP $$'],
  ])('%s', async (_how, script) => {
    const began = performance.now();
    const MARK = `minato-test-${process.pid}-${began}`;
    const env = { ...process.env, MARK };
    const failure = await runProgram('sh', ['-c', script], { msMax: MS_MAX, env }).catch((error) => error);
    expect(failure).toBeInstanceOf(NoAnswer);
    expect(failure.message).toBe('sh did not end within 500 ms');
    expect(performance.now() - began).toBeLessThan(LATE_MS);
    expect(pidsWith(MARK)).toEqual([]);
  });

  it('another failure keeps its output', async () => {
    const failing = runProgram('sh', ['-c', 'echo closed; exit 3']);
    await expect(failing).rejects.toMatchObject({ code: 3, stdout: 'closed\n' });
  });
});
