/** What was found wrong: the invariant, and what was seen. A run goes on to the end of its round. */
export interface Violation {
  readonly invariant: string;
  readonly what: string;
}

export class Violations {
  readonly found: Violation[] = [];

  add(invariant: string, what: string): void {
    const isKnown = this.found.some((one) => one.invariant === invariant && one.what === what);
    if (!isKnown) this.found.push({ invariant, what });
  }

  /** Reports the members of one set that are not in the other, both ways. */
  same(
    invariant: string,
    what: string,
    { expected, seen }: { readonly expected: ReadonlySet<string>; readonly seen: ReadonlySet<string> },
    name: (id: string) => string = (id) => id,
  ): void {
    const missing = [...expected].filter((id) => !seen.has(id));
    const surplus = [...seen].filter((id) => !expected.has(id));
    const list = (ids: string[]) => ids.slice(0, 3).map(name).join('; ');
    if (missing.length > 0) this.add(invariant, `${what}: ${missing.length} missing: ${list(missing)}`);
    if (surplus.length > 0) this.add(invariant, `${what}: ${surplus.length} too many: ${list(surplus)}`);
  }
}
