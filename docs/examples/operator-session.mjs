// An operator signs in with a browser, reads a setting, writes it as it is, and signs out.
//   node docs/examples/operator-session.mjs <secret key in hex> [http://127.0.0.1:7447]
// A page has no cookie to handle: the browser keeps it and sends it along. Here it is shown.
import { finalizeEvent } from 'nostr-tools/pure';

const [secret = '', base = 'http://127.0.0.1:7447'] = process.argv.slice(2);
const PATH = '/v1/admin/session';
let cookie;

async function ask(method, path, { headers = {}, body } = {}) {
  const response = await fetch(base + path, {
    method,
    headers: {
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(cookie === undefined ? {} : { cookie }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const given = response.headers.get('set-cookie');
  const answer = await response.json();
  console.log(`${method} ${path}\n→ ${response.status}${given === null ? '' : `\nSet-Cookie: ${given}`}`);
  console.log(`${JSON.stringify(answer)}\n`);
  if (given !== null) cookie = given.split(';')[0];
  return answer;
}

// A page asks the operator's signer for this one event (window.nostr.signEvent).
const event = finalizeEvent(
  {
    kind: 27235,
    created_at: Math.floor(Date.now() / 1000),
    tags: [
      ['u', base + PATH],
      ['method', 'POST'],
    ],
    content: '',
  },
  Uint8Array.from(Buffer.from(secret, 'hex')),
);
const authorization = `Nostr ${Buffer.from(JSON.stringify(event)).toString('base64')}`;
const { csrf_token } = await ask('POST', PATH, { headers: { authorization } });
const headers = { 'x-csrf-token': csrf_token };

const SETTING = '/v1/admin/settings/relay.name';
const { value, version } = await ask('GET', SETTING);
await ask('PUT', SETTING, { body: { value, version } });
await ask('PUT', SETTING, { body: { value, version }, headers });

const old = cookie;
await ask('DELETE', PATH, { headers });
cookie = old;
await ask('GET', PATH);
