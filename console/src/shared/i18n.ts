/**
 * Texts in English and Japanese. Each folder of pages declares its texts beside them (`texts.ts`), so that
 * they load with the page. The types require the same keys in both languages.
 */
import i18next from 'i18next';
import { initReactI18next, useTranslation } from 'react-i18next';

export const LANGUAGES = ['en', 'ja'] as const;
export type Language = (typeof LANGUAGES)[number];
export type Label = Readonly<Record<Language, string>>;

/** Texts by key; a group of texts is one level deeper. */
export interface Texts {
  readonly [key: string]: string | Texts;
}
type Same<T> = { readonly [K in keyof T]: T[K] extends string ? string : Same<T[K]> };

const KEPT = 'minato.language';

function preferred(): Language {
  const wanted = [localStorage.getItem(KEPT) ?? '', ...navigator.languages];
  const known = wanted.map((tag) => LANGUAGES.find((language) => tag.startsWith(language)));
  return known.find((language) => language !== undefined) ?? 'en';
}

await i18next.use(initReactI18next).init({
  lng: preferred(),
  fallbackLng: 'en',
  resources: {},
  interpolation: { escapeValue: false },
  react: { useSuspense: false },
});
document.documentElement.lang = i18next.language;

export function defineTexts<const T extends Texts>(name: string, texts: { en: T; ja: Same<T> }): void {
  for (const language of LANGUAGES) i18next.addResourceBundle(language, name, texts[language], true, true);
}

export async function chooseLanguage(language: Language): Promise<void> {
  localStorage.setItem(KEPT, language);
  document.documentElement.lang = language;
  await i18next.changeLanguage(language);
}

export const currentLanguage = (): Language => (i18next.language === 'ja' ? 'ja' : 'en');

/** The translation function; `t('topics:create')`. The component is rendered again in another language. */
export function useT() {
  return useTranslation().t;
}

/** For a label that is declared in both languages. */
export function useLabel(): (label: Label) => string {
  useTranslation();
  return (label) => label[currentLanguage()];
}
