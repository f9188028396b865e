/** A test that is run once more, as CI does with one that failed, has the same random inputs. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { seedOf } from './run-seed.js';

const tries: string[] = [];

it('a test that is tried again gets the same seed and the same inputs', { retry: 1 }, ({ task }) => {
  const inputs: number[] = [];
  fc.assert(fc.property(fc.integer(), (input) => void inputs.push(input)));
  tries.push(`${seedOf(task)}: ${inputs}`);
  // The first try fails here.
  expect(tries).toHaveLength(2);
  expect(tries[1]).toBe(tries[0]);
});
