/** SQL statements with named parameters: each `:pubkey` is replaced by the same value. */

export interface Named {
  /** The value with its PostgreSQL type. */
  readonly [name: string]: readonly [type: string, value: unknown];
}

/** Replaces each name. */
export function replaceNames(text: string, by: (name: string) => string | undefined): string {
  return text.replace(/(?<!:):([a-z]+)\b/g, (_, name: string) => {
    const put = by(name);
    if (put === undefined) throw new Error(`a statement uses :${name}, which has no value`);
    return put;
  });
}

/**
 * Passes only the values that the statement uses: PostgreSQL cannot infer the type of an unused parameter.
 */
export function named(text: string, given: Named): { text: string; values: unknown[] } {
  const names: string[] = [];
  const numbered = replaceNames(text, (name) => {
    const entry = given[name];
    if (entry === undefined) return undefined;
    if (!names.includes(name)) names.push(name);
    return `$${names.indexOf(name) + 1}::${entry[0]}`;
  });
  return { text: numbered, values: names.map((name) => given[name]![1]) };
}
