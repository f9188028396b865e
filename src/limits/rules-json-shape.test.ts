import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { jsonShape } from './rules-json-shape.js';

const ANY_DEPTH = Number.POSITIVE_INFINITY;

/** The expected depth, from the parsed value. */
function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}

function keysOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  const own = Array.isArray(value) ? 0 : Object.keys(value).length;
  return Object.values(value).reduce<number>((sum, member) => sum + keysOf(member), own);
}

function valuesOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  const members = Object.values(value);
  return members.reduce<number>((sum, member) => sum + valuesOf(member), Math.max(1, members.length));
}

/** Strings with characters that could mislead the scan. */
const trickyText = fc
  .array(
    fc.oneof(
      fc.constantFrom('[', ']', '{', '}', '"', '\\', ',', ':', '\\"', '\\\\', '\n', '\u2028', '港', '😀'),
      fc.constantFrom('\ud800', '\udfff'),
      fc.string({ unit: 'binary', maxLength: 5 }),
      fc.integer({ min: 0, max: 200 }).map((length) => 'x'.repeat(length)),
      fc.integer({ min: 0, max: 140 }).map((length) => '\\'.repeat(length)),
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join(''));

const { json } = fc.letrec<{ json: unknown }>((tie) => ({
  json: fc.oneof(
    { depthSize: 'medium' },
    trickyText,
    fc.constantFrom(null, true, 0, -1.5e-7, ''),
    fc.array(tie('json'), { maxLength: 4 }),
    fc.dictionary(
      trickyText.filter((key) => key !== '__proto__'),
      tie('json'),
      { maxKeys: 4 },
    ),
  ),
}));

describe('the shape of a JSON text', () => {
  it('is that of its parsed value, for any characters in its strings', () => {
    fc.assert(
      fc.property(json, fc.constantFrom(undefined, 1, '\t'), (value, space) => {
        const text = JSON.stringify(value, null, space);
        const parsed: unknown = JSON.parse(text);
        expect(jsonShape(Buffer.from(text), ANY_DEPTH)).toEqual({
          depth: depthOf(parsed),
          values: valuesOf(parsed),
          keys: keysOf(parsed),
        });
      }),
      { numRuns: 2_000 },
    );
  });

  it('is the same for every length of a string and every run of backslashes in it', () => {
    for (let length = 0; length < 200; length += 1) {
      for (let slashes = 0; slashes < 6; slashes += 1) {
        const value = [[`${'x'.repeat(length)}${'\\'.repeat(slashes)}"[{`], '[['];
        const text = Buffer.from(JSON.stringify(value));
        expect(jsonShape(text, ANY_DEPTH), text.toString()).toEqual({ depth: 2, values: 3, keys: 0 });
      }
    }
  });

  it('is not computed beyond the allowed depth', () => {
    const text = Buffer.from('['.repeat(100_000));
    expect(jsonShape(text, 16)).toEqual({ depth: 17, values: 17, keys: 0 });
    expect(jsonShape(Buffer.from(`${'['.repeat(16)}${']'.repeat(16)}`), 16).depth).toBe(16);
  });

  it('is computed for a megabyte of escaped quotes', () => {
    const text = Buffer.from(JSON.stringify([`${'x'.repeat(70)}"`.repeat(14_000)]));
    expect(jsonShape(text, ANY_DEPTH)).toEqual({ depth: 1, values: 1, keys: 0 });
  });

  it('is computed for any bytes without an error', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
        expect(jsonShape(Buffer.from(bytes), ANY_DEPTH).depth).toBeGreaterThanOrEqual(0);
      }),
    );
  });
});
