/**
 * Which keys were counted already: while its table grows or shrinks, SCAN may return keys a second time.
 * Bounded (I14): at least the last 20,000 are remembered.
 */
const KEYS_MAX = 20_000;

export class SeenKeys {
  private now = new Set<string>();
  private before = new Set<string>();

  constructor(private readonly keysMax = KEYS_MAX) {}

  /** False when it was seen. */
  add(key: string): boolean {
    if (this.now.has(key) || this.before.has(key)) return false;
    if (this.now.size >= this.keysMax) {
      this.before = this.now;
      this.now = new Set();
    }
    this.now.add(key);
    return true;
  }
}
