/**
 * WebSocket frames (RFC 6455) of one socket, put together so that they go out in one write. A server's frames
 * are not masked and, without compression, a text frame is two to ten bytes and the text.
 *
 * Large buffers are reused after their write: allocating and growing them again took a quarter of the time of
 * an answer of 500 events.
 */
const TEXT_FRAME = 0x81;
const HEADER_BYTES_MAX = 10;
const SMALL_BYTES = 4_096;
const LARGE_BYTES = 262_144;
/** This many large buffers keep their memory for the next write. */
const KEPT_MAX = 32;
const kept: Buffer[] = [];
/**
 * The others, of which thousands may be in use when readers do not read, give it back at once, as a resizable
 * buffer can. Ordinary ones would keep it: V8 collects nothing while nothing happens, and the C library keeps
 * what is freed in pieces of this size (docs/decisions/0028-memory-after-slow-readers.md).
 */
const EMPTY_MAX = 1_024;
const empty: Buffer[] = [];
let inUse = 0;

export interface Frames {
  readonly bytes: Buffer;
  /** To be called once, when they are written or never will be. */
  readonly release: () => void;
}

export class FrameBuffer {
  private buffer: Buffer | undefined;
  bytes = 0;

  /** A frame of this length does not fit beside what is there already. */
  isFullFor(length: number): boolean {
    return this.bytes > 0 && this.bytes + HEADER_BYTES_MAX + length > LARGE_BYTES;
  }

  /** One text frame; its text is the parts, one after another, in UTF-8. */
  add(parts: readonly Buffer[], length: number): void {
    const buffer = this.roomFor(length + HEADER_BYTES_MAX);
    let at = writeHeader(buffer, this.bytes, length);
    for (const part of parts) {
      buffer.set(part, at);
      at += part.length;
    }
    this.bytes = at;
  }

  /** All frames since the last time, or undefined when there are none. */
  take(): Frames | undefined {
    const { buffer, bytes: length } = this;
    if (buffer === undefined) return undefined;
    this.buffer = undefined;
    this.bytes = 0;
    const bytes = buffer.subarray(0, length);
    if (buffer.length !== LARGE_BYTES) return { bytes, release: () => undefined };
    if (length > LARGE_BYTES / 4) return { bytes, release: () => recycle(buffer) };
    // A slow reader must not hold many times what it has not read.
    const copy = Buffer.from(bytes);
    recycle(buffer);
    return { bytes: copy, release: () => undefined };
  }

  private roomFor(more: number): Buffer {
    const needed = this.bytes + more;
    if (this.buffer !== undefined && this.buffer.length >= needed) return this.buffer;
    const larger = bufferFor(needed);
    this.buffer?.copy(larger, 0, 0, this.bytes);
    this.buffer = larger;
    return larger;
  }
}

function bufferFor(bytes: number): Buffer {
  if (bytes <= SMALL_BYTES / 4) return Buffer.allocUnsafe(SMALL_BYTES / 4);
  if (bytes <= SMALL_BYTES) return Buffer.allocUnsafe(SMALL_BYTES);
  if (bytes > LARGE_BYTES) return Buffer.allocUnsafe(bytes);
  inUse += 1;
  return kept.pop() ?? (inUse <= KEPT_MAX ? Buffer.allocUnsafeSlow(LARGE_BYTES) : resizable());
}

function resizable(): Buffer {
  const buffer = empty.pop();
  if (buffer === undefined)
    return Buffer.from(new ArrayBuffer(LARGE_BYTES, { maxByteLength: LARGE_BYTES }), 0, LARGE_BYTES);
  (buffer.buffer as ArrayBuffer).resize(LARGE_BYTES);
  return buffer;
}

function recycle(buffer: Buffer): void {
  inUse -= 1;
  const memory = buffer.buffer as ArrayBuffer;
  if (!memory.resizable) {
    kept.push(buffer);
    return;
  }
  memory.resize(0);
  if (empty.length < EMPTY_MAX) empty.push(buffer);
}

/** Returns the offset after the header. */
function writeHeader(buffer: Buffer, at: number, length: number): number {
  buffer[at] = TEXT_FRAME;
  if (length < 126) {
    buffer[at + 1] = length;
    return at + 2;
  }
  if (length < 65_536) {
    buffer[at + 1] = 126;
    buffer.writeUInt16BE(length, at + 2);
    return at + 4;
  }
  buffer[at + 1] = 127;
  buffer.writeBigUInt64BE(BigInt(length), at + 2);
  return at + 10;
}
