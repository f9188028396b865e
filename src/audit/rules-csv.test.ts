import { describe, expect, it } from 'vitest';
import { csvLine } from './rules-csv.js';

describe('a line of CSV', () => {
  it('quotes what would end a field or a line, and doubles quotes', () => {
    expect(csvLine([1, 'a', 'b,c', 'say "so"', 'two\nlines', null])).toBe(
      '1,a,"b,c","say ""so""","two\nlines",\r\n',
    );
  });

  it('is never a formula of a spreadsheet', () => {
    for (const text of ['=1+1', '+1', '-1', '@SUM(A1)']) expect(csvLine([text])).toBe(`'${text}\r\n`);
    expect(csvLine([-1])).toBe('-1\r\n');
  });
});
