/**
 * Which keys were counted already: SCAN may tell a key again while its table grows or shrinks. Bounded: the last hundred thousand at
 * least are remembered, so that of more keys one that is told again much later could be counted twice; what is deleted never is.
 */
const KEYS_MAX = 100_000;

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
