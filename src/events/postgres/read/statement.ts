/** Builds a statement and runs it. Statements of a known shape are prepared under a name. */
import type { ClientBase, Pool } from 'pg';

/** Collects parameters while the text is written. */
export class Parameters {
  readonly values: unknown[] = [];
  add(value: unknown, type: string): string {
    this.values.push(value);
    return `$${this.values.length}::${type}`;
  }
}

export interface Statement {
  readonly text: string;
  readonly values: unknown[];
}

/**
 * Statements are prepared once per shape and connection. The shape is the text; names are numbered within
 * this process.
 */
const names = new Map<string, string>();
const NAMES_MAX = 200;

export function run<T extends unknown[]>(
  pool: Pool | ClientBase,
  { text, values }: Statement,
  prepared = true,
) {
  let name = prepared ? names.get(text) : undefined;
  if (prepared && name === undefined && names.size < NAMES_MAX) {
    name = `q${names.size}`;
    names.set(text, name);
  }
  // Further shapes are planned each time, so that prepared statements do not fill the server's memory.
  return pool.query<T>({ ...(name === undefined ? {} : { name }), text, values, rowMode: 'array' });
}
