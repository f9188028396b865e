/**
 * The cost of input on the event loop, in milliseconds. `Work` charges it to the sender (I18). Each cost is
 * rounded up: a client that pays too much waits a little, one that pays too little slows everybody.
 * `docs/limits.md` says which are measured.
 */

/** One read of a socket, of any size. */
export const READ_MS = 0.015;
/** A data frame: its header, its scheduling, a reply. */
export const FRAME_MS = 0.01;
/** A ping or pong. Only the last ping of a read is answered. */
export const CONTROL_MS = 0.002;
/** A byte: unmasked, checked as UTF-8, converted to a string. */
export const BYTE_MS = 0.000_008;
/** A member of an array or object, parsed. */
export const VALUE_MS = 0.000_1;
/** A key of an object, parsed: V8 keeps each new one. */
export const KEY_MS = 0.001;
/** An event beyond its bytes, for each unit of its weight: checks, its part of a batch of the lane. */
export const EVENT_MS = 0.1;
/** A byte of an event that is matched against the word lists and rules of its community. */
export const TEXT_BYTE_MS = 0.000_1;
/** A character of a search, read as words and all their forms: 4,800 ideographs took 37 ms. */
export const SEARCH_CHARACTER_MS = 0.008;
/** A character that is matched with one step of a pattern: 0.18 s for 20,000,000 of them. */
export const PATTERN_STEP_MS = 0.000_01;
/** A character in which the words of one rule are looked for: 129,600 took 1.8 to 3.3 ms. */
export const WORD_CHARACTER_MS = 0.000_03;
/**
 * A proof of a key: its signature checked in a thread, its rights read from the database. 300 a second took
 * 0.54 of a core, 1.8 ms each.
 */
export const AUTH_MS = 2;
/** An invalid signature. Without the native library checking it takes this long. */
export const FORGED_MS = 0.5;
/** A connection: HTTP, the handshake, its memory. */
export const CONNECTION_MS = 0.5;
/**
 * A byte of the head of an HTTP request, beyond those that are part of the cost of a request. The most
 * expensive ones are cookies and parameters: 3,800 of them, in 15 kB, took 1 to 2 ms.
 */
const HEAD_BYTE_MS = 0.000_3;
const HEAD_BYTES_INCLUDED = 1_024;

/** What the head of an HTTP request costs, beyond that of a small one. */
export function headMs(bytes: number): number {
  return Math.max(0, bytes - HEAD_BYTES_INCLUDED) * HEAD_BYTE_MS;
}

/** The cost of parsing a message. */
export function parseMs({ values, keys }: { readonly values: number; readonly keys: number }): number {
  return values * VALUE_MS + keys * KEY_MS;
}
