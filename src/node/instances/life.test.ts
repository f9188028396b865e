import cluster from 'node:cluster';
import { afterEach, describe, expect, it } from 'vitest';
import { Life } from './life.js';

/** Never sent: no process starts here. */
const START = { name: '1', instances: 1, roles: [], port: 0, database: undefined, isFirst: true };
const EVENTS = { onLine: () => undefined, onMessage: () => undefined, onReturned: () => undefined };

describe('a process that the system refuses is one that has ended', () => {
  afterEach(() => cluster.setupPrimary({ cwd: undefined, gid: undefined } as object));

  it.each([
    ['emits an error, as without a place for a process', { cwd: '/nowhere/at-all' }, 'ENOENT'],
    ['throws, as without memory', { gid: -1 }, 'EINVAL'],
  ])('if Node.js %s', async (_how, settings, code) => {
    cluster.setupPrimary({ silent: true, ...settings });
    const life = new Life(START, EVENTS);
    await expect(life.ready).rejects.toThrow(code);
    expect(await life.ended).toContain(code);
    await life.stop(false, 1_000);
    expect(cluster.workers).toEqual({});
  });
});
