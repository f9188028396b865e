/**
 * The texts of an event that people read: its content, strings inside a JSON content, and tags that carry
 * text. Blocked words and rules are matched against these, after the signature is verified. Each text is cut
 * to a maximum length, so that the time is limited too (I14).
 */
import { type Compared, compareText, type WordMatcher } from '../blocks/rules-words.js';
import type { Settings } from '../communities/rules-settings.js';
import { parseEmbedded } from '../events/rules/embedded-json.js';
import type { NostrEvent } from '../events/rules/event.js';
import { isAmong } from '../events/rules/kinds.js';

/** Maximum characters: of the content, of the strings inside a JSON content, and of the tags. */
export const TEXT_LENGTH_MAX = 131_072;
/** Work between two yields. */
const VALUES_PER_STEP = 512;
const CHARACTERS_PER_STEP = 4_096;

/** Tags whose values are shown to people. Identifiers, addresses and numbers hold no words. */
const TEXT_TAGS: ReadonlySet<string> = new Set([
  'alt',
  'comment',
  'content-warning',
  'description',
  'imeta',
  'location',
  'name',
  'option',
  'poll_option',
  'subject',
  'summary',
  't',
  'title',
]);

/** Does one of the texts match the pattern? It may take too long for one step of the event loop. */
export interface PatternQuestion {
  readonly pattern: string;
  readonly texts: readonly string[];
}

/**
 * A computation that yields between steps, so that the caller can let the event loop run. Where it yields a
 * question, it expects the reply.
 */
export type Stepwise<T> = Generator<PatternQuestion | undefined, T, boolean | undefined>;

/** Invisible characters before the JSON, such as a byte order mark, must not hide that it is JSON. */
const JSON_LIKE = /^[\s\p{Default_Ignorable_Code_Point}]*(?=[[{])/u;

/**
 * The texts of one event, computed once for all rules. An encrypted event has no texts: its letters only look
 * like words.
 */
export class Texts {
  private found: readonly string[] | undefined;
  private compared: readonly Compared[] | undefined;

  constructor(
    private readonly event: Pick<NostrEvent, 'kind' | 'content' | 'tags'>,
    private readonly settings: Pick<Settings, 'auth.privateKinds'>,
  ) {}

  /**
   * Upper limit of the characters to read, and whether the text is cut. One that grows beyond the limit when
   * it is spelled in one way is known as cut once it was compared.
   */
  get extent(): { readonly characters: number; readonly isCut: boolean } {
    if (this.isSealed) return { characters: 0, isCut: false };
    const { content, tags } = this.event;
    const isCut = this.compared?.some((text) => text.isCut) ?? false;
    let tagged = 0;
    for (const tag of tags)
      if (TEXT_TAGS.has(tag[0]!)) for (const value of tag.slice(1)) tagged += value.length;
    // Strings inside a JSON content are read in addition to the content.
    const characters = 2 * Math.min(content.length, TEXT_LENGTH_MAX) + Math.min(tagged, TEXT_LENGTH_MAX);
    return { characters, isCut: isCut || content.length > TEXT_LENGTH_MAX || tagged > TEXT_LENGTH_MAX };
  }

  private get isSealed(): boolean {
    return isAmong(this.event.kind, this.settings['auth.privateKinds']);
  }

  /** Texts of the content. */
  *all(): Stepwise<readonly string[]> {
    this.found ??= this.isSealed
      ? []
      : [this.event.content.slice(0, TEXT_LENGTH_MAX), ...(yield* this.within())];
    return this.found;
  }

  /** Whether the content or the tags have one of the words. */
  *have(words: Pick<WordMatcher, 'matchesCompared'>): Stepwise<boolean> {
    let length = 0;
    for (const compared of yield* this.folded()) {
      if (yield* words.matchesCompared(compared)) return true;
      length += compared.text.length;
      if (length < CHARACTERS_PER_STEP) continue;
      length = 0;
      yield;
    }
    return false;
  }

  /** The texts in the form in which words are compared. */
  private *folded(): Stepwise<readonly Compared[]> {
    if (this.compared !== undefined) return this.compared;
    const compared: Compared[] = [];
    let length = 0;
    for (const text of [...(yield* this.all()), ...this.tagged()]) {
      compared.push(yield* compareText(text, TEXT_LENGTH_MAX));
      length += text.length;
      if (length < CHARACTERS_PER_STEP) continue;
      length = 0;
      yield;
    }
    this.compared = compared;
    return compared;
  }

  /** Each string inside a JSON content, such as a profile, without escapes that could hide a word. */
  private *within(): Stepwise<string[]> {
    const { content } = this.event;
    const texts: string[] = [];
    const json = content.length > TEXT_LENGTH_MAX ? undefined : jsonIn(content);
    if (json === undefined) return texts;
    const waiting: unknown[] = [json];
    let looked = 0;
    for (const value of waiting) {
      looked += 1;
      if (looked % VALUES_PER_STEP === 0) yield;
      if (typeof value === 'string') texts.push(value);
      else if (Array.isArray(value)) for (const item of value) waiting.push(item);
      else if (typeof value === 'object' && value !== null)
        for (const [key, inner] of Object.entries(value)) waiting.push(key, inner);
    }
    return texts;
  }

  private tagged(): string[] {
    const texts: string[] = [];
    if (this.isSealed) return texts;
    let left = TEXT_LENGTH_MAX;
    for (const tag of this.event.tags) {
      if (!TEXT_TAGS.has(tag[0]!)) continue;
      for (const value of tag.slice(1)) {
        if (left <= 0) return texts;
        texts.push(value.slice(0, left));
        left -= value.length;
      }
    }
    return texts;
  }
}

/** Undefined when the content is not JSON. */
function jsonIn(content: string): unknown {
  const start = JSON_LIKE.exec(content)?.[0].length;
  if (start === undefined) return undefined;
  const end = Math.max(content.lastIndexOf(']'), content.lastIndexOf('}')) + 1;
  const embedded = parseEmbedded(content.slice(start, end));
  return typeof embedded === 'string' ? undefined : embedded.json;
}
