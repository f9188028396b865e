/** Selects the media type of an answer by the Accept header of the client (RFC 9110). */
import { elementsOf } from '../port/list-header.js';

interface Range {
  readonly type: string;
  readonly quality: number;
}

/** The first type is the default: for a client without preference, and if no accepted type is available. */
export function preferredType(accept: string | undefined, types: readonly string[]): string {
  const ranges = elementsOf(accept).map(rangeOf);
  const accepted = types.filter((type) => qualityOf(type, ranges) > 0);
  const wanted = ranges.filter(({ quality }) => quality > 0).sort((a, b) => b.quality - a.quality);
  for (const { type } of wanted) {
    const found = accepted.find((candidate) => matches(type, candidate));
    if (found !== undefined) return found;
  }
  return types[0]!;
}

function rangeOf(text: string): Range {
  const [type = '', ...parameters] = text.split(';').map((part) => part.trim().toLowerCase());
  const quality = parameters.find((parameter) => parameter.startsWith('q='))?.slice(2);
  return { type, quality: quality === undefined ? 1 : Number(quality) || 0 };
}

// The most specific range counts: `text/html;q=0, */*` refuses HTML, although the second range matches it
// too.
function qualityOf(type: string, ranges: readonly Range[]): number {
  const matching = ranges.filter((range) => matches(range.type, type));
  return matching.sort((a, b) => b.type.length - a.type.length)[0]?.quality ?? 0;
}

function matches(range: string, type: string): boolean {
  return range === type || range === '*/*' || (range.endsWith('/*') && type.startsWith(range.slice(0, -1)));
}
