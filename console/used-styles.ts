/**
 * The styles of the component library, without those of components that the pages do not use. `styles.css` of
 * the library is the styles of every component one after the other; those that are kept stay in that order.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Plugin } from 'vite';

const FROM_LIBRARY = /import \{([^}]*)\} from ['"]@mantine\/core['"]/g;
const FROM_FILE = /^import ([^"]+) from "(\.[^"]+)"/gm;
const NAME = /\w+/g;
/** A class of a component, in its code and in its styles. */
const CLASS = /\bm_[0-9a-f]+\b/g;

/** `folders` have the code that uses the library. */
export function usedStyles(folders: readonly string[]): Plugin {
  return {
    name: 'used-styles',
    enforce: 'pre',
    transform(css, id) {
      if (!id.endsWith('@mantine/core/styles.css')) return null;
      const library = dirname(id);
      const used = classesOf(library, new Set(folders.flatMap(namesIn)));
      const styles = join(library, 'styles');
      const unused = readdirSync(styles)
        .map((name) => readFileSync(join(styles, name), 'utf8').trim())
        .filter((text) => text.match(CLASS)?.every((name) => !used.has(name)));
      return { code: unused.reduce((kept, text) => kept.replace(text, ''), css), map: null };
    },
  };
}

/** The names that the files of a folder import from the library. */
function namesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(tsx?|mjs)$/.test(name))
    .flatMap((name) => [...readFileSync(join(folder, name), 'utf8').matchAll(FROM_LIBRARY)])
    .flatMap(([, names]) => names!.match(NAME) ?? []);
}

/** The classes in the code of these components, and of the components that they are made of. */
function classesOf(library: string, names: ReadonlySet<string>): ReadonlySet<string> {
  const index = join(library, 'esm/index.mjs');
  const importsOf = (path: string, isWanted: (name: string) => boolean) =>
    [...readFileSync(path, 'utf8').matchAll(FROM_FILE)]
      .filter(([, imported]) => imported!.match(NAME)?.some(isWanted))
      .map(([, , from]) => join(dirname(path), from!));
  const found = new Set(importsOf(index, (name) => names.has(name)));
  for (const path of found) for (const other of importsOf(path, () => true)) found.add(other);
  return new Set([...found].flatMap((path) => readFileSync(path, 'utf8').match(CLASS) ?? []));
}
