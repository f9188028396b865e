import type { FastifyError } from 'fastify';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { NoAnswer } from '../limits/in-time.js';
import type { Log } from '../node/log.js';
import { denialOf } from './answer.js';

describe('requests that fail while the database does not answer', () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  it('get UNAVAILABLE, and one line a second counts them', () => {
    vi.useFakeTimers();
    const lines: unknown[] = [];
    const nothing = () => undefined;
    const warn = (about: unknown) => lines.push(about);
    const log = { debug: nothing, info: nothing, warn, error: nothing } as unknown as Log;
    const fail = (request: number) =>
      denialOf(new NoAnswer(`no answer to ${request}`) as unknown as FastifyError, log).denied;

    for (let request = 1; request <= 500; request += 1) expect(fail(request)).toBe('UNAVAILABLE');
    expect(lines).toEqual([{ error: 'NoAnswer: no answer to 1', others: 0 }]);
    vi.advanceTimersByTime(1_000);
    // One stands for 498 others.
    expect(lines.slice(1)).toEqual([{ error: 'NoAnswer: no answer to 500', others: 498 }]);
    vi.advanceTimersByTime(10_000);
    expect(lines).toHaveLength(2);
    fail(501);
    expect(lines.slice(2)).toEqual([{ error: 'NoAnswer: no answer to 501', others: 0 }]);
  });
});
