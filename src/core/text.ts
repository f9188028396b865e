/** Texts: which the database can keep (a NUL and a lone surrogate are none that PostgreSQL takes), which a content holds, and how one stands in a page. */

export function isStorable(value: unknown): boolean {
  if (typeof value === 'string') return value.isWellFormed() && !value.includes('\u0000');
  if (typeof value !== 'object' || value === null) return true;
  return Object.entries(value).every(([key, inner]) => isStorable(key) && isStorable(inner));
}

/** The content; and where it is JSON, as a profile is, each text in it, without the escapes that could hide a word. */
export function textsIn(content: string): string[] {
  const texts = [content];
  if (!/^\s*[[{]/.test(content)) return texts;
  try {
    const waiting: unknown[] = [JSON.parse(content)];
    for (const value of waiting) {
      if (typeof value === 'string') texts.push(value);
      else if (typeof value === 'object' && value !== null)
        waiting.push(...Object.keys(value), ...Object.values(value));
    }
  } catch {
    // It only looked like it.
  }
  return texts;
}

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
