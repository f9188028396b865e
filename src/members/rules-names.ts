/** The name that people see for a key, from its profile (kind 0). Pure. */

const NAME_MAX = 64;
/** Control characters, and those that change the direction of the text around them. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is removed
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** `display_name` or `name` of a profile, in one line; undefined if there is none. */
export function nameInProfile(content: string): string | undefined {
  try {
    const profile: unknown = JSON.parse(content);
    if (typeof profile !== 'object' || profile === null) return undefined;
    const { display_name, name } = profile as Record<string, unknown>;
    return [display_name, name].map(readable).find((one) => one !== '');
  } catch {
    return undefined;
  }
}

function readable(given: unknown): string {
  if (typeof given !== 'string') return '';
  return [
    ...given
      .slice(0, 4 * NAME_MAX)
      .replace(UNSEEN, '')
      .trim(),
  ]
    .slice(0, NAME_MAX)
    .join('')
    .trim();
}
