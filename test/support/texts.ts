/** The texts of the pages as they are declared (`console/src/**\/texts.ts`), in both languages. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export const PAGES = 'console/src';

export interface TextGroup {
  readonly [key: string]: string | TextGroup;
}
export interface DeclaredTexts {
  readonly file: string;
  readonly en: TextGroup;
  readonly ja: TextGroup;
}
export type Language = 'en' | 'ja';

/** By their name, such as `topics`. */
export function declaredTexts(): ReadonlyMap<string, DeclaredTexts> {
  const files = readdirSync(PAGES, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('texts.ts'),
  );
  return new Map(
    files.map((file) => {
      const source = readFileSync(join(PAGES, file), 'utf8');
      const [, space, literal] = /defineTexts\('([A-Za-z]+)', (\{[\s\S]*\})\);/.exec(source) ?? [];
      if (space === undefined) throw new Error(`${file} declares no texts`);
      // The declaration is a plain object literal of strings.
      const { en, ja } = new Function(`return (${literal});`)() as { en: TextGroup; ja: TextGroup };
      return [space, { file, en, ja }] as const;
    }),
  );
}

export type Translate = (key: string, values?: Readonly<Record<string, string | number>>) => string;

/** `t('topics:create')`, as the pages write it. */
export function textsIn(language: Language): Translate {
  const all = declaredTexts();
  return (key, values = {}) => {
    const [space, path] = key.split(':') as [string, string];
    const found = path
      .split('.')
      .reduce<string | TextGroup | undefined>(
        (at, part) => (at as TextGroup)[part],
        all.get(space)?.[language],
      );
    if (typeof found !== 'string') throw new Error(`there is no text ${key}`);
    return found.replaceAll(/\{\{(\w+)\}\}/g, (_hole, name: string) => String(values[name]));
  };
}
