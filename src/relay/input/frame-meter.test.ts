import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FrameMeter } from './frame-meter.js';

interface Frame {
  readonly opcode: number;
  readonly fin: boolean;
  readonly length: number;
  readonly masked: boolean;
}

function encode({ opcode, fin, length, masked }: Frame): Buffer {
  const first = (fin ? 0x80 : 0) | opcode;
  const flag = masked ? 0x80 : 0;
  const head = length < 126 ? [length] : length < 65_536 ? [126, length >> 8, length & 255] : wide(length);
  // All ones, which would be read as headers if they were not skipped.
  return Buffer.concat([
    Buffer.from([first, flag | head[0]!, ...head.slice(1)]),
    Buffer.alloc((masked ? 4 : 0) + length, 0xff),
  ]);
}

function wide(length: number): number[] {
  return [127, 0, 0, 0, 0, length >>> 24, (length >>> 16) & 255, (length >>> 8) & 255, length & 255];
}

const length = fc.oneof(fc.nat(300), fc.constantFrom(0, 125, 126, 65_535, 65_536, 70_000));
const data = fc.record({ opcode: fc.constantFrom(0, 1, 2), fin: fc.boolean(), length, masked: fc.boolean() });
const control = fc.record({
  opcode: fc.constantFrom(9, 10),
  fin: fc.constant(true),
  length: fc.nat(125),
  masked: fc.boolean(),
});

describe('frames as they arrive', () => {
  it('are counted however the bytes are cut, and what is unfinished is known at every moment', () => {
    fc.assert(
      fc.property(
        fc.array(fc.oneof(data, control), { maxLength: 12 }),
        fc.array(fc.oneof(fc.integer({ min: 1, max: 20 }), fc.integer({ min: 1, max: 70_000 })), {
          minLength: 1,
        }),
        (frames, sizes) => {
          const bytes = Buffer.concat(frames.map(encode));
          const ends: { at: number; frame: Frame }[] = [];
          let end = 0;
          for (const frame of frames) {
            end += encode(frame).length;
            ends.push({ at: end, frame });
          }
          const meter = new FrameMeter();
          let [counted, controls, at] = [0, 0, 0];
          for (let turn = 0; at < bytes.length; turn += 1) {
            const chunk = bytes.subarray(at, at + sizes[turn % sizes.length]!);
            at += chunk.length;
            meter.take(chunk, turn);
            counted += meter.frames;
            controls += meter.controls;
            const done = ends.filter((one) => one.at <= at);
            const data = done.filter(({ frame }) => frame.opcode < 8);
            const inFrame = (done.at(-1)?.at ?? 0) < at;
            const inMessage = data.length > 0 && data.at(-1)!.frame.fin === false;
            const isBegun = inFrame || inMessage;
            const heldMin = inFrame ? at - (done.at(-1)?.at ?? 0) : 0;
            // A call of `expect` takes a hundred times as long as the comparison, and there are millions.
            const isRight =
              counted === data.length &&
              controls === done.length - data.length &&
              (meter.begunMs !== undefined) === isBegun &&
              meter.heldBytes > 0 === isBegun &&
              meter.heldBytes >= heldMin;
            if (!isRight) expect.fail(JSON.stringify({ counted, controls, at, isBegun, heldMin, meter }));
          }
        },
      ),
    );
  });

  it('hold the whole buffer that the beginning of a message came in, until its end', () => {
    const meter = new FrameMeter();
    const whole = encode({ opcode: 1, fin: true, length: 60_000, masked: true });
    meter.take(Buffer.concat([whole, Buffer.from([0x81])]), 5);
    expect(meter.begunMs).toBe(5);
    expect(meter.heldBytes).toBeGreaterThan(60_000);
    meter.take(Buffer.from([0x80, 0, 0, 0]), 6);
    expect(meter.begunMs).toBe(5);
    meter.take(Buffer.from([0]), 7);
    expect(meter.begunMs).toBeUndefined();
    expect(meter.heldBytes).toBe(0);
  });

  it('of a message in tiny pieces hold more than their bytes', () => {
    const meter = new FrameMeter();
    meter.take(encode({ opcode: 1, fin: false, length: 1, masked: true }), 0);
    const first = meter.heldBytes;
    for (let piece = 0; piece < 100; piece += 1)
      meter.take(encode({ opcode: 0, fin: false, length: 1, masked: true }), 1);
    expect(meter.heldBytes).toBe(101 * first);
    expect(meter.fragments).toBe(101);
  });
});
