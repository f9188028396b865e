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

/** Of a refusal. */
const ERROR_CODE = /^[A-Z_]+$/;
/** Of a stream: a secret may be cut by the end of a chunk. */
const CARRIED_LENGTH = 300;

function noteAnswer(text: string): void {
  const issued: string[] = [];
  for (const [, field, value] of text.matchAll(/"(access_token|csrf_token|secret|code)":"([^"]{16,})"/g)) {
    if (ERROR_CODE.test(value!)) continue;
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

/** The head of an answer, which may issue a session. */
function noteHead({ headers }: Response): void {
  const sessions = headers.getSetCookie().flatMap((cookie) => SESSION.exec(cookie)?.[1] || []);
  for (const session of sessions) ledger.keep('session cookie', session);
  ledger.note('answer', [...headers].map(([name, value]) => `${name}: ${value}`).join('\n'), sessions);
}

/** What a test reads from the body as a stream, chunk by chunk. Streams issue no secrets. */
function watchStream(body: ReadableStream<Uint8Array>): void {
  const read = body[Symbol.asyncIterator].bind(body);
  const watched = async function* (): AsyncGenerator<Uint8Array> {
    let before = '';
    for await (const chunk of { [Symbol.asyncIterator]: () => read() }) {
      const text = before + Buffer.from(chunk).toString('latin1');
      ledger.note('answer', text);
      before = text.slice(-CARRIED_LENGTH);
      yield chunk;
    }
  };
  Object.defineProperty(body, Symbol.asyncIterator, { value: watched });
}

function watchFetch(): void {
  const fetchOf = globalThis.fetch;
  if (WATCHED in fetchOf) return;
  const watched: typeof fetch = async (...args) => {
    noteRequest(...args);
    const response = await fetchOf(...args);
    noteHead(response);
    if (response.body !== null) watchStream(response.body);
    const [readText, readBytes] = [response.text.bind(response), response.arrayBuffer.bind(response)];
    const text = async () => {
      const body = await readText();
      noteAnswer(body);
      return body;
    };
    const arrayBuffer = async () => {
      const body = await readBytes();
      noteAnswer(Buffer.from(body).toString('latin1'));
      return body;
    };
    return Object.assign(response, { text, arrayBuffer, json: async () => JSON.parse(await text()) });
  };
  globalThis.fetch = Object.assign(watched, { [WATCHED]: true });
}

watchFetch();
afterAll(() => expect(ledger.takeLeaks(), 'secrets where they must not be').toEqual([]));
