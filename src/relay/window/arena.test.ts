import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Arena } from './arena.js';

const MIB = 1_048_576;

describe('the bytes of the window', () => {
  it('come back as they were put in, whatever is freed and moved between', () => {
    const step = fc.record({
      what: fc.constantFrom('put', 'put', 'put', 'free', 'compact'),
      length: fc.oneof(fc.nat(3_000), fc.integer({ min: 20_000, max: 90_000 })),
      which: fc.nat(1_000),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200, size: 'max' }), (steps) => {
        const arena = new Arena();
        const held = new Map<number, Buffer>();
        for (const { what, length, which } of steps) {
          const piece = [...held.keys()][which % Math.max(1, held.size)];
          if (what === 'put') {
            const bytes = Buffer.alloc(length, which % 251);
            held.set(arena.put(bytes), bytes);
          } else if (what === 'free' && piece !== undefined) {
            arena.free(piece);
            held.delete(piece);
          } else if (what === 'compact') arena.compact();
        }
        for (const [piece, bytes] of held) {
          expect(arena.view(piece).equals(bytes)).toBe(true);
          expect(arena.length(piece)).toBe(bytes.length);
        }
        const live = [...held.values()].reduce((sum, bytes) => sum + bytes.length + 8, 0);
        expect(arena.live).toBe(live);
        expect(arena.bytes).toBeGreaterThanOrEqual(live);
      }),
      { numRuns: 100 },
    );
  });

  it('are overwritten at once when they are freed', () => {
    const arena = new Arena();
    const view = arena.view(arena.put(Buffer.from('what its author deleted')));
    expect(view.toString()).toContain('deleted');
    arena.free(0);
    expect(view.every((byte) => byte === 0)).toBe(true);
  });

  it('give their slabs back: after many are freed, no more than a seventh is unused', () => {
    const arena = new Arena();
    const pieces = Array.from({ length: 20_000 }, () => arena.put(Buffer.alloc(1_000)));
    // Two of three, all over the slabs.
    for (const piece of pieces) if (piece % 3 > 0) arena.free(piece);
    const before = arena.bytes;
    while (arena.compact());
    expect(arena.bytes).toBeLessThan(before / 2);
    expect(arena.bytes - MIB).toBeLessThan((arena.live * 8) / 7);
  });

  it('are not moved where that frees little: small pieces in a few slabs', () => {
    const arena = new Arena();
    const pieces = Array.from({ length: 4 * 20_000 }, () => arena.put(Buffer.alloc(37)));
    for (let at = 0; at < pieces.length; at += 10) arena.free(pieces[at]!);
    // The open one is mostly empty: half a slab more than is in use would be an eighth.
    for (let at = 0; at < 1_000; at++) arena.put(Buffer.alloc(37));
    expect(arena.compact()).toBe(false);
    for (let at = 0; at < pieces.length; at++) if (at % 10 > 5) arena.free(pieces[at]!);
    expect(arena.compact()).toBe(true);
  });

  it('give a slab back when three quarters of it are free, also when a piece of each is kept', () => {
    const arena = new Arena();
    const kept: number[] = [];
    for (let at = 0; at < 100_000; at++) {
      const piece = arena.put(Buffer.alloc(1_000, at % 251));
      if (at % 100 === 0) kept.push(piece);
      else arena.free(piece);
    }
    expect(kept.length * 1_000).toBeLessThan(MIB);
    expect(arena.bytes).toBeLessThanOrEqual(6 * MIB);
    kept.forEach((piece, at) => {
      const view = arena.view(piece);
      expect(view.length).toBe(1_000);
      expect(view.every((byte) => byte === (at * 100) % 251)).toBe(true);
    });
  });

  it('of one large event take a slab of their own, which goes with it', () => {
    const arena = new Arena();
    const piece = arena.put(Buffer.alloc(500_000, 7));
    expect(arena.bytes).toBeLessThan(500_100);
    arena.free(piece);
    expect(arena.bytes).toBe(0);
  });
});
