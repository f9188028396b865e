import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MESSAGE_BYTES_MAX, messagesOf, PARTS_MAX, parseMessage } from './rules-envelope.js';

const ID = 'ab'.repeat(32);

describe('a message', () => {
  it('carries a small event whole, and a large one in full parts', () => {
    expect(messagesOf(ID, '{}')).toHaveLength(1);
    expect(messagesOf(ID, 'x'.repeat(MESSAGE_BYTES_MAX - 2))).toHaveLength(1);
    expect(messagesOf(ID, 'x'.repeat(MESSAGE_BYTES_MAX - 1))).toHaveLength(2);
    expect(messagesOf(ID, 'x'.repeat(90_000))).toHaveLength(23);
    expect(messagesOf(ID, 'x'.repeat(1_048_576))).toHaveLength(PARTS_MAX);
    expect(messagesOf(ID, 'x'.repeat(1_100_000))).toEqual([]);
  });

  it('is read as it was written, whatever the text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 12_000 }), (text) => {
        const payload = text.toWellFormed();
        const messages = messagesOf(ID, payload).map((message) => parseMessage(message));
        for (const message of messages) expect(message).toBeDefined();
        const bytes = messages.map((message) =>
          message?.type === 'part' ? Buffer.from(message.bytes) : Buffer.from(message!.payload),
        );
        expect(Buffer.concat(bytes).toString()).toBe(payload);
        messages.forEach((message, index) => {
          if (message?.type === 'part')
            expect(message).toMatchObject({ id: ID, index, count: messages.length });
        });
      }),
    );
  });

  it('that is anything else is refused, and never throws', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 4_200 }), (bytes) => {
        const message = parseMessage(bytes);
        if (bytes[0] !== 1 || bytes.length > MESSAGE_BYTES_MAX) expect(message).toBeUndefined();
      }),
    );
    const part = messagesOf(ID, 'x'.repeat(9_000))[0]!;
    const changed = (at: number, byte: number) => part.map((value, place) => (place === at ? byte : value));
    expect(parseMessage(part)).toBeDefined();
    // Its version, its type, an index beyond the count, a count of 1, too large a count, too short a part.
    for (const bad of [
      changed(0, 2),
      changed(1, 2),
      changed(35, 9),
      changed(37, 1),
      changed(36, 255),
      part.slice(0, 3_000),
    ])
      expect(parseMessage(bad)).toBeUndefined();
  });
});
