/**
 * Computes the shape of a JSON text in one pass over its bytes: its depth, its number of values and keys. The
 * cost of `JSON.parse` depends on these far more than on the bytes, so a text is measured, charged (I18) and
 * perhaps refused before it is parsed.
 *
 * For a text that is not JSON the numbers only say that parsing it costs no more than they imply.
 */
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
/** Strings longer than this are skipped by a native search. */
const SHORT_STRING_BYTES = 64;

export interface JsonShape {
  /** 0 for a text without arrays and objects. */
  readonly depth: number;
  /** Members of arrays and objects, counted by their commas and brackets. */
  readonly values: number;
  readonly keys: number;
}

/** Stops if the text nests deeper than `depthMax`; `depth` is then `depthMax + 1`. */
export function jsonShape(text: Uint8Array, depthMax: number): JsonShape {
  let level = 0;
  let depth = 0;
  let values = 0;
  let keys = 0;
  for (let at = 0; at < text.length; at += 1) {
    switch (text[at]) {
      case QUOTE:
        at = endOfString(text, at + 1);
        break;
      case COMMA:
        values += 1;
        break;
      case COLON:
        keys += 1;
        break;
      case OPEN_ARRAY:
      case OPEN_OBJECT:
        values += 1;
        level += 1;
        if (level > depth) depth = level;
        if (depth > depthMax) return { depth, values, keys };
        break;
      case CLOSE_ARRAY:
      case CLOSE_OBJECT:
        level -= 1;
        break;
    }
  }
  return { depth, values, keys };
}

/** The index of the closing quote, or the end of the text. */
function endOfString(text: Uint8Array, start: number): number {
  let at = start;
  while (at < text.length) {
    const near = at + SHORT_STRING_BYTES;
    while (at < near) {
      const byte = text[at];
      if (byte === QUOTE || byte === undefined) return at;
      at += byte === BACKSLASH ? 2 : 1;
    }
    // Byte `at` is not escaped. An odd number of backslashes before the next quote escapes that quote.
    const quote = text.indexOf(QUOTE, at);
    if (quote === -1) break;
    let before = quote;
    while (before > at && text[before - 1] === BACKSLASH) before -= 1;
    if ((quote - before) % 2 === 0) return quote;
    at = quote + 1;
  }
  return text.length;
}
