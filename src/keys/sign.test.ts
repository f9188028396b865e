/** Whichever library signs, noble accepts the signature (BIP-340), and the event id is the same. */
import { randomBytes } from 'node:crypto';
import { getPublicKey, verifyEvent } from 'nostr-tools/pure';
import { describe, expect, it } from 'vitest';
import { isTrustworthy, nativeSigner, type Sign, signByNoble, signEvent } from './sign.js';

const TEXTS = ['', 'plain', '"quoted" \\ and \n lines', '港 é \u2028 \u0000 🚢'];

const signers: readonly (readonly [name: string, sign: Sign])[] = [
  ['noble', signByNoble],
  ['the chosen one', signEvent],
  ...(nativeSigner() === undefined ? [] : [['native', nativeSigner()!] as const]),
];

describe.each(signers)('signed by %s', (_name, sign) => {
  it('an event is accepted by noble, with any key and any text', () => {
    for (let at = 0; at < 20; at += 1) {
      const secret = new Uint8Array(randomBytes(32));
      const pubkey = getPublicKey(secret);
      const content = TEXTS[at % TEXTS.length]!;
      const template = { kind: 30_382, created_at: 1_700_000_000 + at, tags: [['d', content]], content };
      const event = sign(template, secret, pubkey);
      expect(verifyEvent({ ...event, tags: event.tags.map((tag) => [...tag]) })).toBe(true);
      expect(event).toMatchObject({ ...template, pubkey, id: signByNoble(template, secret, pubkey).id });
    }
  });

  it('isTrustworthy accepts it', () => expect(isTrustworthy(sign)).toBe(true));
});

it('a signer with wrong signatures is not trusted', () => {
  const wrong: Sign = (template, secret, pubkey) => {
    const event = signByNoble(template, secret, pubkey);
    const last = event.sig.endsWith('0') ? '1' : '0';
    return { ...event, sig: event.sig.slice(0, -1) + last };
  };
  expect(isTrustworthy(wrong)).toBe(false);
});
