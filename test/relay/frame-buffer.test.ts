import { describe, expect, it } from 'vitest';
import { FrameBuffer, type Frames } from '../../src/relay/frame-buffer.js';

/** Frames that fill most of a large buffer, as the answers to readers that do not read do. */
function unread(text: string): Frames {
  const frames = new FrameBuffer();
  const payload = Buffer.from(text);
  frames.add([payload], payload.length);
  const taken = frames.take();
  if (taken === undefined) throw new Error('nothing was taken');
  return taken;
}

const textOf = ({ bytes }: Frames) => bytes.subarray(10).toString();
const memoryOf = (all: readonly Frames[]) => all.reduce((sum, { bytes }) => sum + bytes.buffer.byteLength, 0);

describe('the buffers of unread frames', () => {
  const texts = Array.from({ length: 200 }, (_, n) => `${n} `.padEnd(200_000, 'x'));

  it('keep what each of many readers has not read', () => {
    const all = texts.map(unread);
    expect(all.map(textOf)).toEqual(texts);
    for (const { release } of all) release();
  });

  it('give their memory back at once when it is written, except a few that are used again', () => {
    const all = texts.map(unread);
    expect(memoryOf(all)).toBe(200 * 262_144);
    for (const { release } of all) release();
    expect(memoryOf(all)).toBe(32 * 262_144);
  });

  it('are filled again after they gave it back', () => {
    for (const { release } of texts.map(unread)) release();
    const again = texts.toReversed();
    const all = again.map(unread);
    expect(all.map(textOf)).toEqual(again);
    for (const { release } of all) release();
  });
});
