/**
 * The secrets that a test file makes, and every text that leaves the node: log lines of all levels, HTTP
 * answers, frames, output of commands. A secret in a place where it must not be is found at the end of the
 * file (watch.ts).
 *
 * A secret is found at any place of a word, in either case: after an escaped newline (`\n`), as `\x…`,
 * `0x…` or `key_…`. A key of 32 bytes is also found as base64, and as a list of numbers.
 *
 * Cheap: a text is kept as the set of its long words, frames only where they have a known secret, and all
 * secrets are looked for in one pass. Cutting the words takes most of the time; test/security/secrets.test.ts
 * holds a bound.
 */
import { Finder, FOUND_LENGTH_MIN } from './finder.js';

/** Where a text left the node. */
export type Place = 'log' | 'answer' | 'frame' | 'command';

/** Of text in lower case. With all letters of base64 and base64url, so that a secret in them is one word. */
const WORD_LENGTH_MAX = 10_000;
const WORD = new RegExp(`[a-z0-9_+/-]{${FOUND_LENGTH_MIN},${WORD_LENGTH_MAX}}`, 'g');
/** A longer run of letters becomes words that overlap, so that a secret is in one of them. */
const OVERLAP_LENGTH = 500;
/** A shorter phrase, a passphrase with blanks for example, may be in a text by chance. */
const PHRASE_LENGTH_MIN = 12;
const KEY_HEX = /^[0-9a-f]{64}$/;
/** Bytes as JSON of a Buffer has them, or of a Uint8Array, at least 32. */
const BYTES = /(?:(?:\\*"\d+\\*":)?\d{1,3},\s*){31,1000}(?:\\*"\d+\\*":)?\d{1,3}/g;
const EVERYWHERE: readonly Place[] = ['log', 'answer', 'frame', 'command'];

/**
 * Where a kind of secret must not be. A token is in the answer that issues it, and in no other. Invites,
 * links and CSRF tokens are shown to those who may have them, so for these only the log counts.
 */
const FORBIDDEN = {
  'secret key': EVERYWHERE,
  'key of the node': EVERYWHERE,
  password: EVERYWHERE,
  'metrics token': EVERYWHERE,
  passphrase: EVERYWHERE,
  'access token': EVERYWHERE,
  'session cookie': EVERYWHERE,
  // In the output of the command that makes it, and in no other.
  'sign-in link': EVERYWHERE,
  'shown once': ['log'],
} as const satisfies Record<string, readonly Place[]>;
export type SecretKind = keyof typeof FORBIDDEN;

interface Secret {
  kind: SecretKind;
  readonly shown: string;
  readonly foundIn: Set<Place>;
}

export class SecretLedger {
  /** By each text that shows it, in lower case. */
  private readonly words = new Map<string, Secret>();
  private readonly phrases = new Map<string, Secret>();
  private finder = new Finder();
  private readonly seen = new Map<string, Set<Place>>();

  /** Short ones are words that a text may have by chance. A token (JWT) is known by its signature. */
  keep(kind: SecretKind, text: string): void {
    const secret = kind === 'access token' ? text.split('.').at(-1)! : text;
    const kept = { kind, shown: secret.slice(0, 6), foundIn: new Set<Place>() };
    for (const form of formsOf(secret).map((one) => one.toLowerCase())) {
      const isWord = form.length >= FOUND_LENGTH_MIN && form.match(WORD)?.[0] === form;
      const known = (isWord ? this.words : this.phrases).get(form);
      if (known !== undefined) known.kind = kind;
      else if (isWord) {
        this.words.set(form, kept);
        this.finder.add(form);
      } else if (form.length >= PHRASE_LENGTH_MIN) this.phrases.set(form, kept);
    }
  }

  /**
   * `issued`: secrets that this very answer gives to the client. Phrases are looked for only if they are
   * known by now.
   */
  note(place: Place, text: string, issued: readonly string[] = []): void {
    const rest = issued.reduce((all, own) => all.replaceAll(own, ' '), text);
    const lower = rest.replace(BYTES, hexOf).toLowerCase();
    for (const [phrase, secret] of this.phrases) if (lower.includes(phrase)) secret.foundIn.add(place);
    // Frames are many: only those with a secret that is known by now are remembered.
    if (place === 'frame') this.look(lower, [place]);
    else
      for (const word of wordsOf(lower)) {
        const places = this.seen.get(word);
        if (places === undefined) this.seen.set(word, new Set([place]));
        else places.add(place);
      }
  }

  /** What was where it must not be. Afterwards the ledger is empty. */
  takeLeaks(): string[] {
    for (const [word, places] of this.seen) this.look(word, places);
    const leaks: string[] = [];
    for (const { kind, shown, foundIn } of new Set([...this.words.values(), ...this.phrases.values()])) {
      const wrong = FORBIDDEN[kind].filter((place: Place) => foundIn.has(place));
      if (wrong.length > 0) leaks.push(`${kind} ${shown}… in: ${wrong.join(', ')}`);
    }
    this.words.clear();
    this.phrases.clear();
    this.seen.clear();
    this.finder = new Finder();
    return leaks;
  }

  private look(text: string, places: Iterable<Place>): void {
    this.finder.findIn(text, (form) => {
      for (const place of places) this.words.get(form)!.foundIn.add(place);
    });
  }
}

/** As itself, as JSON and URLs have it, and the base64 of a key. */
function formsOf(secret: string): string[] {
  const quoted = JSON.stringify(secret).slice(1, -1);
  const plain = [
    secret,
    quoted,
    encodeURIComponent(secret),
    encodeURIComponent(secret).replaceAll('%20', '+'),
  ];
  if (!KEY_HEX.test(secret.toLowerCase())) return [...new Set(plain)];
  const bytes = Buffer.from(secret, 'hex');
  return [secret, bytes.toString('base64').replace(/=+$/, ''), bytes.toString('base64url')];
}

function* wordsOf(text: string): Generator<string> {
  WORD.lastIndex = 0;
  for (let found = WORD.exec(text); found !== null; found = WORD.exec(text)) {
    yield found[0];
    if (found[0].length === WORD_LENGTH_MAX) WORD.lastIndex -= OVERLAP_LENGTH;
  }
}

function hexOf(list: string): string {
  const bytes = list
    .replace(/\\*"\d+\\*":/g, '')
    .split(',')
    .map(Number);
  return bytes.every((byte) => byte < 256) ? ` ${Buffer.from(bytes).toString('hex')} ` : list;
}

/** The ledger of this process. */
export const ledger = new SecretLedger();
