/**
 * A gossip message, version 1: one event, or one numbered part of a large event. Pure.
 *
 *   whole:  1, 0, the event as JSON
 *   part:   1, 1, the id (32 bytes), index and count (16 bits each, big-endian), bytes of that JSON
 *
 * The bytes depend only on the event. So iroh-gossip, which knows a message by its hash, delivers an event
 * that two nodes send into a topic only once.
 */
import { bytesToHex, hexToBytes } from '@noble/hashes/utils.js';

/**
 * iroh-gossip carries 4,096 bytes with its own header. A message of 4,024 bytes passed and one of 4,028 did
 * not; the sender gets no error, and its connection carries nothing after it. So we stay below.
 */
export const MESSAGE_BYTES_MAX = 4_000;
const VERSION = 1;
const WHOLE = 0;
const PART = 1;
const WHOLE_HEADER_BYTES = 2;
const ID_BYTES = 32;
const PART_HEADER_BYTES = WHOLE_HEADER_BYTES + ID_BYTES + 4;
const PART_BYTES_MAX = MESSAGE_BYTES_MAX - PART_HEADER_BYTES;
/** An event has at most 1 MiB (node.limits.eventBytesMax). */
export const PARTS_MAX = Math.ceil(1_048_576 / PART_BYTES_MAX);

export interface Part {
  readonly type: 'part';
  readonly id: string;
  readonly index: number;
  readonly count: number;
  readonly bytes: Uint8Array;
}

export type Message = { readonly type: 'whole'; readonly payload: string } | Part;

/** The messages of an event; none if it is too large. `payload`: the event as it is stored. */
export function messagesOf(id: string, payload: string): Uint8Array[] {
  const bytes = new TextEncoder().encode(payload);
  if (bytes.length + WHOLE_HEADER_BYTES <= MESSAGE_BYTES_MAX) return [joined([VERSION, WHOLE], bytes)];
  const count = Math.ceil(bytes.length / PART_BYTES_MAX);
  if (count > PARTS_MAX) return [];
  return Array.from({ length: count }, (_, index) => {
    const head = [VERSION, PART, ...hexToBytes(id), index >> 8, index & 255, count >> 8, count & 255];
    return joined(head, bytes.subarray(index * PART_BYTES_MAX, (index + 1) * PART_BYTES_MAX));
  });
}

/** Undefined if it is not a message of this version. */
export function parseMessage(content: Uint8Array): Message | undefined {
  if (content.length > MESSAGE_BYTES_MAX || content[0] !== VERSION) return undefined;
  if (content[1] === WHOLE) {
    const payload = textOf(content.subarray(WHOLE_HEADER_BYTES));
    return payload === undefined ? undefined : { type: 'whole', payload };
  }
  if (content[1] !== PART || content.length <= PART_HEADER_BYTES) return undefined;
  const numbers = content.subarray(WHOLE_HEADER_BYTES + ID_BYTES, PART_HEADER_BYTES) as Uint8Array;
  const index = numbers[0]! * 256 + numbers[1]!;
  const count = numbers[2]! * 256 + numbers[3]!;
  const bytes = content.subarray(PART_HEADER_BYTES);
  // Every part but the last is full, so that the sizes of the parts follow from their number.
  const isFull = bytes.length === PART_BYTES_MAX;
  if (count < 2 || count > PARTS_MAX || index >= count || (index < count - 1 && !isFull)) return undefined;
  const id = bytesToHex(content.subarray(WHOLE_HEADER_BYTES, WHOLE_HEADER_BYTES + ID_BYTES));
  return { type: 'part', id, index, count, bytes };
}

/** Undefined if the bytes are not UTF-8. */
export function textOf(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

function joined(head: readonly number[], bytes: Uint8Array): Uint8Array {
  const message = new Uint8Array(head.length + bytes.length);
  message.set(head);
  message.set(bytes, head.length);
  return message;
}
