/** How values go to SQL and come back, and the type of a connection or pool. */
import pg, { type ClientBase, type Pool } from 'pg';

/** A session, or any session of a pool. */
export type Db = ClientBase | Pool;

/** A text that is not a UUID is treated as an unknown id. */
export function isUuid(text: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);
}

export function bytes(hex: string): Buffer {
  return Buffer.from(hex, 'hex');
}

export function bytesOrNull(hex: string | undefined): Buffer | null {
  return hex === undefined ? null : bytes(hex);
}

// ── What comes back ────────────────────────────────────────────────────────────────────────────────────────

const TEXT_ARRAY = 1009;
/** Without quoted elements, nested arrays and NULL. */
const PLAIN_ARRAY = /^\{[^"\\{}N]+\}$/;
const parserOf = pg.types.getTypeParser as (oid: number, format?: string) => (text: string) => unknown;
const parseTextArray = parserOf(TEXT_ARRAY);

export const types = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') => {
    if (format !== 'binary') {
      // Offsets and times stay far below 2^53, so an int8 is a plain number here.
      if (oid === pg.types.builtins.INT8) return Number;
      if (oid === TEXT_ARRAY) return textArray;
    }
    return parserOf(oid, format);
  }) as typeof pg.types.getTypeParser,
};

/** The topics of changes are such arrays. The parser of `pg` reads them character by character. */
const textArray = (text: string): unknown =>
  PLAIN_ARRAY.test(text) ? text.slice(1, -1).split(',') : parseTextArray(text);
