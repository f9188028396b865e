import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { NoAnswer } from '../limits/in-time.js';
import { runProgram } from './system-user.js';

const MS_MAX = 500;
/** Less than the programs below would take. */
const LATE_MS = 20_000;

describe('a program that hangs is ended at its deadline', () => {
  it.each([
    ['ignores SIGTERM', 'trap "" TERM; for i in 1 2 3 4 5 6; do sleep 10; done'],
    ['is stopped', 'kill -STOP $$'],
  ])('%s', async (_how, script) => {
    const began = performance.now();
    const mark = `minato-test-${process.pid}-${began}`;
    const failure = await runProgram('sh', ['-c', script, mark], { msMax: MS_MAX }).catch((error) => error);
    expect(failure).toBeInstanceOf(NoAnswer);
    expect(failure.message).toBe('sh did not end within 500 ms');
    expect(performance.now() - began).toBeLessThan(LATE_MS);
    expect(execFileSync('ps', ['-eo', 'args'], { encoding: 'utf8' })).not.toContain(mark);
  });

  it('another failure keeps its output', async () => {
    const failing = runProgram('sh', ['-c', 'echo closed; exit 3']);
    await expect(failing).rejects.toMatchObject({ code: 3, stdout: 'closed\n' });
  });
});
