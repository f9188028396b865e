/**
 * The names of the files of PostgreSQL's write-ahead log: timeline, upper and lower half of the position, 8
 * hex digits each. A segment has 16 MB, so that the lower half counts to FF.
 */

const SEGMENT = /^[0-9A-F]{24}$/;
/** Segments, their partial ends, the history of timelines and the marks of backups. */
const LOG_FILE = /^[0-9A-F]{8}(\.history|[0-9A-F]{16}(\.partial|\.[0-9A-F]{8}\.backup)?)$/;

export const isSegment = (name: string) => SEGMENT.test(name);
export const isLogFile = (name: string) => LOG_FILE.test(name);

const numberOf = (name: string) =>
  Number.parseInt(name.slice(8, 16), 16) * 256 + Number.parseInt(name.slice(16), 16);

/** The segment after this one on the same timeline. */
export function nextSegment(name: string): string {
  const next = numberOf(name) + 1;
  const hex = (value: number) => value.toString(16).toUpperCase().padStart(8, '0');
  return `${name.slice(0, 8)}${hex(Math.floor(next / 256))}${hex(next % 256)}`;
}

/**
 * The first segment that is missing between the others, from `first` on: a recovery would end there without
 * an error. Each timeline is looked at by itself, because a new one begins within a segment of the old one.
 */
export function missingSegment(names: Iterable<string>, first: string): string | undefined {
  const segments = [...new Set(names)].filter((name) => isSegment(name) && numberOf(name) >= numberOf(first));
  const here = new Set(segments);
  const newest = new Map<string, string>();
  for (const name of segments.sort()) newest.set(name.slice(0, 8), name);
  for (const [timeline, last] of newest) {
    let name = timeline === first.slice(0, 8) ? first : segments.find((one) => one.startsWith(timeline))!;
    for (; name < last; name = nextSegment(name)) if (!here.has(name)) return name;
  }
  return undefined;
}

/** Segments that a recovery from `first` on does not need. History files are kept. */
export const olderSegments = (names: readonly string[], first: string) =>
  names.filter((name) => /^[0-9A-F]{24}/.test(name) && numberOf(name.slice(0, 24)) < numberOf(first));
