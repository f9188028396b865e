/** Which of the types that a route can answer in a client would rather have, by its Accept header (RFC 9110). */

interface Range {
  readonly type: string;
  readonly quality: number;
}

/** The first is the usual one: it answers whoever does not care, and whoever asks for what there is not. */
export function preferredType(accept: string | undefined, types: readonly string[]): string {
  const ranges = (accept ?? '').split(',').map(rangeOf);
  const wanted = ranges.filter(({ quality }) => quality > 0).sort((a, b) => b.quality - a.quality);
  for (const { type } of wanted) {
    const found = types.find((candidate) => candidate === type || matchesAny(type, candidate));
    if (found !== undefined) return found;
  }
  return types[0]!;
}

function rangeOf(text: string): Range {
  const [type = '', ...parameters] = text.split(';').map((part) => part.trim().toLowerCase());
  const quality = parameters.find((parameter) => parameter.startsWith('q='))?.slice(2);
  return { type, quality: quality === undefined ? 1 : Number(quality) || 0 };
}

function matchesAny(range: string, type: string): boolean {
  return range === '*/*' || (range.endsWith('/*') && type.startsWith(range.slice(0, -1)));
}
