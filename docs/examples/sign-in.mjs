// Signs in for a token, asks with it what the member has used, and revokes it.
//   node docs/examples/sign-in.mjs [http://127.0.0.1:7447]
import { finalizeEvent, generateSecretKey } from 'nostr-tools/pure';

const [base = 'http://127.0.0.1:7447'] = process.argv.slice(2);
const secret = generateSecretKey();

async function ask(method, path, { token, body } = {}) {
  const response = await fetch(base + path, {
    method,
    headers: {
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const answer = await response.json();
  console.log(`${method} ${path}\n→ ${response.status}\n${JSON.stringify(answer, null, 2)}\n`);
  return answer;
}

const { challenge, relay } = await ask('POST', '/v1/auth/challenge');
const event = finalizeEvent(
  {
    kind: 22242,
    created_at: Math.floor(Date.now() / 1000),
    tags: [
      ['relay', relay],
      ['challenge', challenge],
    ],
    content: '',
  },
  secret,
);
const { token } = await ask('POST', '/v1/auth/verify', { body: { event } });
await ask('GET', '/v1/usage', { token });
await ask('POST', '/v1/auth/revoke', { token, body: {} });
await ask('GET', '/v1/usage', { token });
