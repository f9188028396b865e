/** Statements whose parameters have names: `:pubkey` stands for the same value wherever it stands. */

export interface Named {
  /** With its type, as PostgreSQL calls it. */
  readonly [name: string]: readonly [type: string, value: unknown];
}

/** Puts something in the place of each name. */
export function replaceNames(text: string, by: (name: string) => string | undefined): string {
  return text.replace(/(?<!:):([a-z]+)\b/g, (_, name: string) => {
    const put = by(name);
    if (put === undefined) throw new Error(`a statement asks for :${name}, which it is not given`);
    return put;
  });
}

/** Only what a statement names is handed over: PostgreSQL does not know the type of a parameter that nothing uses. */
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
