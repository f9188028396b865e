/**
 * A cache of results for short texts, because people use few words often. It has two maps: when the young one
 * is full it becomes the old one. So the size is limited (I14) and entries in use stay; a new text costs one
 * entry.
 */
const ENTRIES_MAX = 10_000;

export class Known<T> {
  private young = new Map<string, T>();
  private old = new Map<string, T>();

  constructor(
    private readonly make: (text: string) => T,
    private readonly lengthMax: number,
  ) {}

  get(text: string): T {
    if (text.length > this.lengthMax) return this.make(text);
    const found = this.young.get(text);
    if (found !== undefined) return found;
    const value = this.old.get(text) ?? this.make(text);
    // A copy: a slice would keep the whole text that it was cut from in memory.
    this.young.set(Buffer.from(text).toString(), value);
    if (this.young.size >= ENTRIES_MAX) {
      this.old = this.young;
      this.young = new Map();
    }
    return value;
  }
}
