/** What an HTTP request or a proxy sends besides its body: headers, addresses, URLs, credentials (NIP-98). */

import { isToken, readHeader } from '../../../src/api/auth.js';
import { preferredType } from '../../../src/api/media-type.js';
import { readJson } from '../../../src/api/read-json.js';
import { isDenial } from '../../../src/api/rules-errors.js';
import { findAuthProblem, normalizeHttpUrl } from '../../../src/api/rules-http-auth.js';
import type { Dice } from '../../../src/demo/rules-dice.js';
import { parseEvent } from '../../../src/events/rules/event.js';
import { normalizeRelayUrl } from '../../../src/events/rules/relay-url.js';
import { isRefusal } from '../../../src/events/rules/reply.js';
import { addressIn, forwardedFor } from '../../../src/port/client-address.js';
import { hostOf } from '../../../src/port/host.js';
import { readProxyHeader } from '../../../src/port/proxy-protocol.js';
import { peerUrl } from '../../../src/sync/rules-peers.js';
import { makeEvent } from '../make/events.js';
import { bytes, oddText } from '../make/values.js';
import { must, type PureTarget } from '../target.js';
import { NOW } from './now.js';

const TYPES = ['text/event-stream', 'application/x-ndjson'];
const V2 = '\r\n\r\n\0\r\nQUIT\n';

const V1_FAMILIES = ['4', '6', ''];
const ADDRESSES = ['192.0.2.1', '::1', 'x'];

function make(dice: Dice): string {
  switch (dice.between(0, 5)) {
    case 0:
      return `Nostr ${Buffer.from(JSON.stringify(makeEvent(dice, NOW))).toString('base64')}`;
    case 1:
      return `Bearer ${oddText(dice, 40)}`;
    case 2: {
      const head = dice.pick(['\x20', '\x21', '\x30']) + dice.pick(['\x11', '\x21', '\0']);
      return `${V2}${head}\0\x0c${bytes(dice, 40)}`;
    }
    case 3: {
      const from = `${dice.pick(V1_FAMILIES)} ${dice.pick(ADDRESSES)}`;
      return `PROXY TCP${from} 192.0.2.2 1 ${dice.between(0, 70_000)}\r\n`;
    }
    case 4: {
      const last = dice.pick(['[::1]:1', '192.0.2.1:80', '_x', '']);
      return `for="${oddText(dice, 12)}";proto=https, for=${last}`;
    }
    default:
      return oddText(dice, 60);
  }
}

function checkCredential(input: string): void {
  const read = readHeader(input);
  isToken(input);
  if (isDenial(read) || 'token' in read) return;
  const event = parseEvent(read.event);
  if (isRefusal(event)) return;
  const request = { method: 'GET', urls: ['http://x/'], bodyHash: undefined, nowSeconds: NOW };
  must(findAuthProblem(event, request) !== undefined, 'an event that nobody made for this request passes');
}

function checkProxyHeader(data: Buffer): void {
  const header = readProxyHeader(data);
  if (typeof header === 'string') return;
  must(header.bytes <= data.length, 'a header is no longer than what has arrived');
  must(header.source === undefined || addressIn(header.source) === header.source, 'an address');
}

export const requests: PureTarget = {
  name: 'requests',
  corpus: ['texts'],
  make,
  run: (input) => {
    checkCredential(input);
    checkProxyHeader(Buffer.from(input, 'latin1'));
    must(TYPES.includes(preferredType(input, TYPES)), 'a type that is offered');
    for (const one of forwardedFor(input)) addressIn(one);
    const address = addressIn(input);
    must(address === undefined || addressIn(address) === address, 'the normal form of an address is stable');
    hostOf({ host: input });
    for (const normalize of [normalizeHttpUrl, normalizeRelayUrl]) {
      // Other schemes are never compared with an address of the node.
      const url = /^(https?|wss?):/i.test(input) ? normalize(input) : undefined;
      must(url === undefined || URL.canParse(url), 'the normal form of a URL is a URL');
    }
    peerUrl(input);
    const json = readJson(Buffer.from(input), () => undefined);
    must('value' in json || json.problem !== '', 'a body that is not read has a reason');
  },
};
