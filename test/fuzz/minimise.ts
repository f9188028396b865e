/** Shortens an input that breaks a rule: parts are removed while it still does. */

/** I14: tries, so that a slow target ends too. */
const TRIES_MAX = 2_000;

export async function minimise(input: string, breaks: (input: string) => Promise<boolean>): Promise<string> {
  let text = input;
  let tries = 0;
  for (let size = Math.ceil(text.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let at = 0; at < text.length && tries < TRIES_MAX; ) {
      tries += 1;
      const shorter = text.slice(0, at) + text.slice(at + size);
      if (await breaks(shorter)) text = shorter;
      else at += size;
    }
  }
  return text;
}
