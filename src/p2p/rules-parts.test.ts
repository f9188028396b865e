import { describe, expect, it } from 'vitest';
import { messagesOf, type Part, parseMessage } from './rules-envelope.js';
import { Parts } from './rules-parts.js';

const ID = 'ab'.repeat(32);
const partsOf = (text: string, id = ID) => messagesOf(id, text).map((m) => parseMessage(m) as Part);
const TEXT = Array.from({ length: 3_000 }, (_, at) => `${at}`).join(' ');

const asText = (added: ReturnType<Parts['add']>) =>
  typeof added === 'string' ? added : added.map(({ bytes }) => Buffer.from(bytes).toString());

describe('parts of an event', () => {
  it('are put together in any order, from several peers', () => {
    const all = partsOf(TEXT);
    const parts = new Parts();
    const results = [...all].reverse().map((part, at) => parts.add(`peer ${at % 2}`, part, 0));
    expect(results.slice(0, -1).every((result) => result === 'waiting')).toBe(true);
    expect(asText(results.at(-1)!)).toEqual([TEXT]);
    parts.done(all[0]!);
    expect(parts.bytes).toBe(0);
  });

  it('of a liar come beside the right ones, whichever came first', () => {
    const all = partsOf(TEXT);
    const lie = { ...all[1]!, bytes: Uint8Array.from(all[1]!.bytes).fill(7) };
    for (const order of [
      [lie, ...all],
      [...all.slice(0, -1), lie, all.at(-1)!],
    ]) {
      const parts = new Parts();
      const results = order.map((part) => parts.add(part === lie ? 'liar' : 'honest', part, 0));
      expect(asText(results.at(-1)!)).toContain(TEXT);
    }
  });

  it('are bounded in bytes and events per peer, in bytes of all, and in time', () => {
    const bounds = { bytesPerPeerMax: 10_000, eventsPerPeerMax: 2, bytesMax: 15_000, keptMs: 1_000 };
    const parts = new Parts(bounds);
    const one = (peer: string, place: number, event: number) =>
      parts.add(peer, partsOf(TEXT, event.toString(16).padStart(64, '0'))[place]!, 0);
    expect(one('a', 0, 1)).toBe('waiting');
    expect(one('a', 0, 2)).toBe('waiting');
    expect(one('a', 0, 3)).toBe('refused');
    expect(one('a', 1, 2)).toBe('refused');
    expect(one('b', 0, 3)).toBe('waiting');
    expect(one('b', 1, 3)).toBe('refused');
    expect(parts.expire(999)).toBe(0);
    expect(parts.expire(1_000)).toBe(3);
    expect(parts.bytes).toBe(0);
    expect(one('a', 0, 3)).toBe('waiting');
  });

  it('that come twice cost once, and only a few variants of a place are kept', () => {
    const [first] = partsOf(TEXT);
    const parts = new Parts();
    parts.add('a', first!, 0);
    const { bytes } = parts;
    expect(parts.add('b', first!, 0)).toBe('waiting');
    expect(parts.bytes).toBe(bytes);
    const results = [1, 2, 3, 4].map((value) =>
      parts.add('b', { ...first!, bytes: Uint8Array.from(first!.bytes).fill(value) }, 0),
    );
    expect(results).toEqual(['waiting', 'waiting', 'refused', 'refused']);
  });
});
