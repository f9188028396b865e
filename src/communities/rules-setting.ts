/**
 * The definition of a setting: a schema, a default and a description. Settings of communities and of the node
 * use it alike.
 */
import { z } from 'zod';
import { isStorable } from '../events/rules/text.js';

export interface Definition<T> {
  readonly schema: z.ZodType<T>;
  readonly default: T;
  readonly about: string;
}

export function define<T>(schema: z.ZodType<T>, defaultValue: T, about: string): Definition<T> {
  return { schema, default: defaultValue, about };
}

export const count = (min: number, max: number) => z.number().int().min(min).max(max);

/** Checks one value. The problem is a sentence for the operator. */
export function checkValue(
  key: string,
  { schema }: Definition<unknown>,
  value: unknown,
): { value: unknown } | { problem: string } {
  const result = schema.safeParse(value);
  if (!isStorable(value)) return { problem: `${key}: a text must not contain NUL or lone surrogates` };
  if (result.success) return { value: result.data };
  return { problem: `${key}: ${result.error.issues.map((issue) => issue.message).join('; ')}` };
}

/**
 * The defaults, overwritten by the stored values. A stored value that no longer fits its schema is ignored.
 */
export function valuesFrom(
  definitions: Readonly<Record<string, Definition<unknown>>>,
  stored: ReadonlyMap<string, unknown>,
): Record<string, unknown> {
  const entries = Object.entries(definitions).map(([key, definition]) => {
    const checked = stored.has(key) ? checkValue(key, definition, stored.get(key)) : undefined;
    return [key, checked && 'value' in checked ? checked.value : definition.default];
  });
  return Object.fromEntries(entries);
}
