/** The check of the whole suite for secrets in logs and answers finds them; what is allowed passes. */
import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { newAuthor } from '../support/events.js';
import { SecretLedger } from '../support/secrets/ledger.js';

const hex = (author = newAuthor()) => Buffer.from(author.secret).toString('hex');

describe('a secret', () => {
  it.each(['log', 'answer', 'frame', 'command'] as const)('is found in: %s', (place) => {
    const ledger = new SecretLedger();
    const secret = hex();
    ledger.keep('secret key', secret);
    ledger.note(place, `{"error":"cannot sign with ${secret}, sorry"}`);
    expect(ledger.takeLeaks()).toEqual([`secret key ${secret.slice(0, 6)}… in: ${place}`]);
    expect(ledger.takeLeaks()).toEqual([]);
  });

  it('is found when it is known only afterwards', () => {
    const ledger = new SecretLedger();
    const secret = hex();
    ledger.note('log', secret);
    ledger.keep('key of the node', secret);
    expect(ledger.takeLeaks()).toHaveLength(1);
  });

  it('may be in the answer that issues it, and in no other', () => {
    const ledger = new SecretLedger();
    const token = `aaaaaaaaaaaaaaaaaaaa.bbbbbbbbbbbbbbbbbbbbbbbb.${hex()}`;
    ledger.keep('access token', token);
    ledger.note('answer', JSON.stringify({ access_token: token }), [token]);
    expect(ledger.takeLeaks()).toEqual([]);
    ledger.keep('access token', token);
    ledger.note('answer', JSON.stringify({ items: [token] }));
    expect(ledger.takeLeaks()).toHaveLength(1);
  });

  it('of a sign-in link may be in the output that prints the link, and in no other place', () => {
    const ledger = new SecretLedger();
    const code = randomBytes(32).toString('base64url');
    ledger.keep('sign-in link', code);
    ledger.note('command', `https://relay.test/admin/#link=${code}`, [code]);
    expect(ledger.takeLeaks()).toEqual([]);
    for (const place of ['log', 'answer', 'frame', 'command'] as const) {
      ledger.keep('sign-in link', code);
      ledger.note(place, `{"code":"${code}"}`);
      expect(ledger.takeLeaks()).toHaveLength(1);
    }
  });

  it('that is shown to those who may have it is never in the log', () => {
    const ledger = new SecretLedger();
    ledger.keep('shown once', 'an-invite-code-of-a-test');
    ledger.note('answer', 'an-invite-code-of-a-test');
    expect(ledger.takeLeaks()).toEqual([]);
    ledger.keep('shown once', 'an-invite-code-of-a-test');
    ledger.note('log', '{"url":"/v1/invites/an-invite-code-of-a-test"}');
    expect(ledger.takeLeaks()).toHaveLength(1);
  });
});
