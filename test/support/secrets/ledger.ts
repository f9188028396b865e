/**
 * The secrets that a test file makes, and every text that leaves the node: log lines of all levels, HTTP
 * answers, frames, output of commands. A secret in a place where it must not be is found at the end of the
 * file (watch.ts).
 *
 * Cheap: a text is kept as the set of its long words, frames only where they have a known secret, and each
 * secret is one lookup.
 */

/** Where a text left the node. */
export type Place = 'log' | 'answer' | 'frame' | 'command';

const WORD = /[A-Za-z0-9_-]{16,}/g;
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

export class SecretLedger {
  private readonly secrets = new Map<string, SecretKind>();
  private readonly seen = new Map<string, Set<Place>>();

  /** Short ones are words that a text may have by chance. A JWT is known by its signature. */
  keep(kind: SecretKind, secret: string): void {
    const word = secret.split('.').at(-1)!.match(WORD)?.[0];
    if (word !== undefined) this.secrets.set(word, kind);
  }

  /** `issued`: secrets that this very answer gives to the client. */
  note(place: Place, text: string, issued: readonly string[] = []): void {
    const own = new Set(issued.map((secret) => secret.split('.').at(-1)));
    for (const [word] of text.matchAll(WORD)) {
      if (own.has(word)) continue;
      // Frames are many: only those with a secret that is known by now are remembered.
      if (place === 'frame' && !this.secrets.has(word)) continue;
      const places = this.seen.get(word);
      if (places === undefined) this.seen.set(word, new Set([place]));
      else places.add(place);
    }
  }

  /** What was where it must not be. Afterwards the ledger is empty. */
  takeLeaks(): string[] {
    const leaks: string[] = [];
    for (const [secret, kind] of this.secrets) {
      const places = this.seen.get(secret);
      const wrong = FORBIDDEN[kind].filter((place: Place) => places?.has(place));
      if (wrong.length > 0) leaks.push(`${kind} ${secret.slice(0, 6)}… in: ${wrong.join(', ')}`);
    }
    this.secrets.clear();
    this.seen.clear();
    return leaks;
  }
}

/** The ledger of this process. */
export const ledger = new SecretLedger();
