import { describe, expect, it } from 'vitest';
import { elementsOf } from './list-header.js';

describe('a header that is a list', () => {
  it('is split at its commas', () => {
    expect(elementsOf('gzip, br;q=0.5')).toEqual(['gzip', ' br;q=0.5']);
    expect(elementsOf(undefined)).toEqual(['']);
  });

  it('is read up to its 32nd element', () => {
    const all = Array.from({ length: 100 }, (_, number) => `${number}`);
    expect(elementsOf(all.join(','))).toEqual(all.slice(0, 32));
  });

  it('is read up to 1,024 characters, without an element that is cut off there', () => {
    expect(elementsOf(`gzip,${'x'.repeat(1_019)}`)).toHaveLength(2);
    expect(elementsOf(`gzip,${'x'.repeat(1_020)}`)).toEqual(['gzip']);
    expect(elementsOf('x'.repeat(1_025))).toEqual(['']);
  });
});
