/** The check of the whole suite for secrets in logs and answers finds them; what is allowed passes. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { nsecEncode } from 'nostr-tools/nip19';
import { describe, expect, it } from 'vitest';
import { startCli } from '../support/cli.js';
import { newAuthor } from '../support/events.js';
import { ledger, SecretLedger } from '../support/secrets/ledger.js';

async function readAll({ body }: Response): Promise<void> {
  for await (const chunk of body!) expect(chunk.length).toBeGreaterThan(0);
}
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

  const bytes = randomBytes(32);
  const key = bytes.toString('hex');
  it.each([
    ['after an escaped newline', JSON.stringify({ msg: `line\n${key}` })],
    ['after one that is escaped twice', JSON.stringify(JSON.stringify(`line\n${key}`))],
    ['as bytea in an error of PostgreSQL', `Key (code)=(\\x${key}) already exists.`],
    ['with 0x', `the key is 0x${key}.`],
    ['in a longer word', `key_${key}_of_the_node`],
    ['within more hex digits', `${'0a'.repeat(40)}${key}ff`],
    ['in a word of megabytes', `${'0a'.repeat(10_000_000)}${key}${'0a'.repeat(10_000_000)}`],
    ['where long words are cut', 'a'.repeat(9_970) + key],
    ['in upper case', key.toUpperCase()],
    ['as base64', bytes.toString('base64')],
    ['as base64url', `"${bytes.toString('base64url')}"`],
    ['as a Buffer in JSON', JSON.stringify({ secret: bytes })],
    ['as a Uint8Array in JSON', JSON.stringify({ secret: new Uint8Array(bytes) })],
    ['as a Uint8Array in JSON in JSON', JSON.stringify(JSON.stringify({ secret: new Uint8Array(bytes) }))],
  ])('is found %s, also if it is known only afterwards', (_how, text) => {
    const ledger = new SecretLedger();
    ledger.note('log', text);
    ledger.keep('key of the node', key);
    expect(ledger.takeLeaks()).toEqual([`key of the node ${key.slice(0, 6)}… in: log`]);
    ledger.keep('secret key', key);
    ledger.note('frame', text);
    expect(ledger.takeLeaks()).toEqual([`secret key ${key.slice(0, 6)}… in: frame`]);
  });

  it('of nsec is found after an escaped newline and in upper case', () => {
    const ledger = new SecretLedger();
    const nsec = nsecEncode(bytes);
    ledger.note('log', JSON.stringify(`line\n${nsec}`));
    ledger.note('answer', nsec.toUpperCase());
    ledger.keep('secret key', nsec);
    expect(ledger.takeLeaks()).toEqual([`secret key ${nsec.slice(0, 6)}… in: log, answer`]);
  });

  it('with blanks and quotes is found, as itself, in JSON and in a URL', () => {
    const phrase = 'correct "horse" battery staple';
    for (const text of [phrase, JSON.stringify({ phrase }), `/x?q=${encodeURIComponent(phrase)}`]) {
      const ledger = new SecretLedger();
      ledger.keep('passphrase', phrase);
      ledger.note('command', `it is ${text}`);
      expect(ledger.takeLeaks()).toEqual(['passphrase correc… in: command']);
    }
  });

  it('that is not there is not found: other keys, parts of it, lists of numbers', () => {
    const ledger = new SecretLedger();
    ledger.keep('secret key', key);
    for (const place of ['log', 'frame'] as const) {
      ledger.note(place, `${hex()} ${key.slice(0, 63)} ${key.slice(1)} ${[...bytes, 0].slice(1)} ${bytes}`);
      ledger.note(place, JSON.stringify(Array.from({ length: 100 }, (_, at) => at * 7)));
    }
    expect(ledger.takeLeaks()).toEqual([]);
  });

  it('is looked for in little time, also in long texts and among many secrets', () => {
    const ledger = new SecretLedger();
    for (let at = 0; at < 2_000; at += 1) ledger.keep('secret key', randomBytes(32).toString('hex'));
    const line = () => JSON.stringify({ msg: 'an event was stored', id: randomBytes(32).toString('hex') });
    const text = Array.from({ length: 20_000 }, line).join('\n');
    const before = process.cpuUsage();
    ledger.note('log', text);
    ledger.note('frame', text);
    expect(ledger.takeLeaks()).toEqual([]);
    const { user, system } = process.cpuUsage(before);
    // Of 2 MB. It took 0.12 s.
    expect((user + system) / 1_000_000).toBeLessThan(5);
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

describe('what the tests read', () => {
  const secret = hex();
  const leaks = () => ledger.takeLeaks().map((leak) => leak.replace(/.* in: /, ''));

  it.each([
    ['text', (response: Response) => response.text()],
    ['JSON', (response: Response) => response.json()],
    ['bytes', (response: Response) => response.arrayBuffer()],
    ['a stream', readAll],
  ])('is searched in an answer: %s, and its headers', async (_what, read) => {
    const server = createServer((request, response) => {
      const inHead = request.url === '/head';
      response.setHeader('x-told', inHead ? secret : 'nothing');
      // In two chunks.
      response.write(`{"a":"${inHead ? '' : secret.slice(0, 20)}`);
      setTimeout(() => response.end(`${inHead ? '' : secret.slice(20)}"}`), 20);
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    for (const path of ['/body', '/head', '/body']) {
      ledger.keep('secret key', secret);
      await read(await fetch(base + path));
      expect(leaks()).toEqual(['answer']);
    }
    server.close();
  });

  it.each([
    [[`of-${secret}`], 'command'],
    [['serve', '--roles', `of-${secret}`], 'log'],
  ])('is searched in what a real process prints: %j', async (args, place) => {
    ledger.keep('secret key', secret);
    await startCli(args, {}).ended;
    expect(leaks()).toEqual([place]);
  });
});
