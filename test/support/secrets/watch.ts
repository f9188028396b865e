/**
 * Runs in every test file: notes the HTTP answers, and fails the file if a secret was where it must not be.
 * docs/security.md says what is allowed.
 */
import { afterAll, expect } from 'vitest';
import { ledger, type SecretKind } from './ledger.js';

/** Fields of answers that issue a secret. */
const ISSUING: Readonly<Record<string, SecretKind>> = {
  access_token: 'access token',
  csrf_token: 'shown once',
  secret: 'shown once',
  code: 'shown once',
};
const SESSION = /minato_session=([^;]+)/;
/** A request that signs in with the code of a link. */
const LINK = /\/v1\/sessions\/link$/;
const WATCHED = Symbol.for('minato answers are noted');

function noteAnswer(text: string): void {
  const issued: string[] = [];
  for (const [, field, value] of text.matchAll(/"(access_token|csrf_token|secret|code)":"([^"]{16,})"/g)) {
    ledger.keep(ISSUING[field!]!, value!);
    issued.push(value!);
  }
  ledger.note('answer', text, issued);
}

function noteRequest(...[url, init]: Parameters<typeof fetch>): void {
  if (!LINK.test(String(url)) || typeof init?.body !== 'string') return;
  const [, code] = /"code":"([^"]{16,})"/.exec(init.body) ?? [];
  if (code !== undefined) ledger.keep('sign-in link', code);
}

function watchFetch(): void {
  const fetchOf = globalThis.fetch;
  if (WATCHED in fetchOf) return;
  const watched: typeof fetch = async (...args) => {
    noteRequest(...args);
    const response = await fetchOf(...args);
    for (const cookie of response.headers.getSetCookie()) {
      const [, value] = SESSION.exec(cookie) ?? [];
      if (value !== undefined && value !== '') ledger.keep('session cookie', value);
    }
    const read = response.text.bind(response);
    const text = async () => {
      const body = await read();
      noteAnswer(body);
      return body;
    };
    return Object.assign(response, { text, json: async () => JSON.parse(await text()) });
  };
  globalThis.fetch = Object.assign(watched, { [WATCHED]: true });
}

watchFetch();
afterAll(() => expect(ledger.takeLeaks(), 'secrets where they must not be').toEqual([]));
