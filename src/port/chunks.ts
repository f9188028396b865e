/**
 * Bounds the chunks of a body of unknown length (I14). Each chunk is an object of its own until the body is
 * read: single bytes would take a hundred times their size of memory, and as many steps of the event loop.
 */
import type { IncomingMessage } from 'node:http';

/** So many chunks may have any size. */
const CHUNKS_FREE = 64;
/** Beyond them a chunk has at least this many bytes on average. */
const BYTES_PER_CHUNK_MIN = 64;

/** Calls `onTiny` once if the chunks are too small; then nothing more of the body is kept. */
export function boundChunks(request: IncomingMessage, onTiny: () => void): void {
  const push = request.push.bind(request);
  let chunks = 0;
  let bytes = 0;
  let isOver = false;
  // The parser of Node.js passes each chunk here, also while nobody reads the body.
  request.push = (chunk: Buffer | null, encoding?: BufferEncoding): boolean => {
    if (isOver) return false;
    chunks += 1;
    bytes += chunk?.length ?? 0;
    if (chunks <= CHUNKS_FREE || bytes >= (chunks - CHUNKS_FREE) * BYTES_PER_CHUNK_MIN)
      return push(chunk, encoding);
    isOver = true;
    onTiny();
    return false;
  };
}
