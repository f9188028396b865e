/**
 * Texts of the demo: templates with slots, by language and theme. Pure. A conversation never repeats a
 * sentence; over all conversations a text repeats only when the templates have no other.
 */
import type { Dice } from './rules-dice.js';
import type { Language } from './rules-people.js';
import { ENGLISH } from './rules-texts-en.js';
import { JAPANESE } from './rules-texts-ja.js';

export const THEMES = [
  'harbour',
  'fishing',
  'ferry',
  'coffee',
  'garden',
  'photos',
  'nostr',
  'festival',
] as const;
export type Theme = (typeof THEMES)[number];

/** `{name}` in a template is replaced by one of the values of the slot with this name. */
export interface Grammar {
  readonly slots: Readonly<Record<string, readonly string[]>>;
  readonly openings: Readonly<Record<Theme, readonly string[]>>;
  /** A second sentence of an opening. */
  readonly details: Readonly<Record<Theme, readonly string[]>>;
  readonly replies: Readonly<Record<Theme, readonly string[]>>;
  /** Replies for any theme. */
  readonly anyReplies: readonly string[];
  /** Between two sentences. */
  readonly space: string;
}

const GRAMMARS: Record<Language, Grammar> = { en: ENGLISH, ja: JAPANESE };
const TRIES_MAX = 40;
const DETAIL_SHARE = 0.6;
const OWN_SHARE = 0.65;
const SECOND_SHARE = 0.3;

/** Sentences of a text, for comparison. */
export function sentencesOf(text: string): string[] {
  return text
    .split(/(?<=[.!?。！？])\s*/u)
    .map((sentence) => sentence.trim())
    .filter((sentence) => sentence !== '');
}

/** What was said in one conversation. */
export class Said {
  readonly sentences = new Set<string>();
  readonly templates = new Set<string>();
  /** The values of the slots that stay the same in a conversation. */
  readonly values = new Map<string, string>();
}

/** What a conversation is about: whoever answers means the same one. */
const LASTING: ReadonlySet<string> = new Set([
  ...['fish', 'island', 'weather', 'rough', 'bean', 'pest', 'subject', 'nip', 'tool', 'part'],
]);

export class Texts {
  /** Of all conversations. */
  private readonly used = new Set<string>();

  constructor(private readonly dice: Dice) {}

  opening(language: Language, theme: Theme, said: Said): string | undefined {
    const { openings, details } = GRAMMARS[language];
    return this.find(language, said, () => {
      const first = this.dice.pick(openings[theme]);
      return this.dice.chance(DETAIL_SHARE) ? [first, this.dice.pick(details[theme])] : [first];
    });
  }

  /** Undefined when nothing is left to say. */
  reply(language: Language, theme: Theme, said: Said): string | undefined {
    const { replies, anyReplies } = GRAMMARS[language];
    return this.find(language, said, () => {
      const one = this.dice.pick(this.dice.chance(OWN_SHARE) ? replies[theme] : anyReplies);
      return this.dice.chance(SECOND_SHARE) ? [one, this.dice.pick(replies[theme])] : [one];
    });
  }

  /** A text with nothing that was said here, preferably one that was not used anywhere. */
  private find(language: Language, said: Said, make: () => string[]): string | undefined {
    let best:
      | { readonly text: string; readonly templates: string[]; readonly values: Map<string, string> }
      | undefined;
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const templates = make();
      if (new Set(templates).size < templates.length || templates.some((one) => said.templates.has(one)))
        continue;
      const values = new Map(said.values);
      const sentences = templates.map((template) => this.filled(template, GRAMMARS[language], values));
      const text = sentences.join(GRAMMARS[language].space);
      if (sentencesOf(text).some((one) => said.sentences.has(one))) continue;
      best ??= { text, templates, values };
      if (this.used.has(text)) continue;
      best = { text, templates, values };
      break;
    }
    if (best === undefined) return undefined;
    this.used.add(best.text);
    for (const sentence of sentencesOf(best.text)) said.sentences.add(sentence);
    for (const template of best.templates) said.templates.add(template);
    for (const [slot, value] of best.values) said.values.set(slot, value);
    return best.text;
  }

  private filled(template: string, { slots }: Grammar, values: Map<string, string>): string {
    const text = template.replace(/\{(\w+)\}/g, (_, slot: string) => {
      const value = values.get(slot) ?? this.dice.pick(slots[slot]!);
      if (LASTING.has(slot)) values.set(slot, value);
      return value;
    });
    return text.replace(/^[a-z]/, (first) => first.toUpperCase());
  }
}
