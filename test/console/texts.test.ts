/**
 * The texts of the pages: every text that is used exists in both languages, every text that exists is used,
 * and the Japanese ones are Japanese. A key is used as a literal, or as a template whose fixed part names a
 * group.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { declaredTexts, PAGES, type TextGroup } from '../support/texts.js';

const KEY = /['"`]([a-z][A-Za-z]*):([A-Za-z][\w.]*)(\$\{)?/g;
/** Words and signs that are the same in Japanese. */
const SAME_IN_BOTH = /^[\x20-\x7e–—…→·×✓°%{}]*$/;

const names = (await readdir(PAGES, { recursive: true })).filter((name) => /\.tsx?$/.test(name));
const sources = await Promise.all(
  names
    .filter((name) => !name.endsWith('schema.d.ts'))
    .map(async (name) => ({ name, text: await readFile(join(PAGES, name), 'utf8') })),
);
const declared = declaredTexts();

function keysOf(group: TextGroup, before = ''): string[] {
  return Object.entries(group).flatMap(([key, value]) =>
    typeof value === 'string' ? [before + key] : keysOf(value, `${before}${key}.`),
  );
}

/** i18next chooses among the plural forms of a key by its ending. */
const withoutForm = (key: string) => key.replace(/_(zero|one|two|few|many|other)$/, '');

function textAt(group: TextGroup, key: string): string {
  const found = key.split('.').reduce<string | TextGroup>((at, part) => (at as TextGroup)[part]!, group);
  return found as string;
}

const used = new Map<string, Set<string>>();
const prefixes = new Map<string, Set<string>>();
for (const { text } of sources)
  for (const [, space, key, opens] of text.matchAll(KEY)) {
    const kept = opens === undefined ? used : prefixes;
    kept.set(space!, (kept.get(space!) ?? new Set()).add(key!));
  }

describe.each([...declared].map(([space, texts]) => ({ space, ...texts })))(
  'texts of $space',
  ({ space, en, ja }) => {
    const keys = keysOf(en);
    const isUsed = (key: string) =>
      used.get(space)?.has(withoutForm(key)) ||
      [...(prefixes.get(space) ?? [])].some((prefix) => key.startsWith(prefix));

    it('exist in both languages, and none is empty', () => {
      expect(keysOf(ja).map(withoutForm).sort()).toEqual(
        expect.arrayContaining(keys.map(withoutForm).sort()),
      );
      for (const key of keys) expect(textAt(en, key).trim(), key).not.toBe('');
    });

    it('are all used', () => {
      expect(keys.filter((key) => !isUsed(key))).toEqual([]);
    });

    it('exist where they are used', () => {
      const known = new Set(keys.map(withoutForm));
      expect([...(used.get(space) ?? [])].filter((key) => !known.has(key))).toEqual([]);
    });

    it('have the same values to fill in, and are translated', () => {
      for (const key of keysOf(ja)) {
        const [own, other] = [textAt(ja, key), textAt(en, key) ?? ''];
        const holes = (text: string) => [...new Set(text.match(/\{\{\w+\}\}/g) ?? [])].sort();
        if (other !== '') expect(holes(own), key).toEqual(holes(other));
        const isTranslated = /[\u3040-\u30ff\u4e00-\u9fff]/.test(own) || SAME_IN_BOTH.test(own);
        expect(isTranslated, `${key}: ${own}`).toBe(true);
      }
    });
  },
);
