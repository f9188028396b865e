/** Which texts the database can keep: a NUL character and a lone surrogate are none that PostgreSQL takes, in text or JSON. */

export function isStorable(value: unknown): boolean {
  if (typeof value === 'string') return value.isWellFormed() && !value.includes('\u0000');
  if (typeof value !== 'object' || value === null) return true;
  return Object.entries(value).every(([key, inner]) => isStorable(key) && isStorable(inner));
}
