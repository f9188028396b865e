/** How the text of a column becomes a value. */
import pg from 'pg';

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
