/** Whose request it is: what trusted proxies say is believed, and nobody else. Asked over real connections. */
import { once } from 'node:events';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ClientAddress, createAddressOf } from '../src/client-address.js';

let server: Server;
let addressOf = createAddressOf([]);
beforeAll(async () => {
  server = createServer((asked, answer) => answer.end(JSON.stringify(addressOf(asked))));
  server.listen(0);
  await once(server, 'listening');
});
afterAll(() => server.close());

interface From {
  readonly trusted?: readonly string[];
  readonly headers?: Record<string, string | string[]>;
  readonly host?: string;
}

async function ask({
  trusted = ['loopback'],
  headers = {},
  host = '127.0.0.1',
}: From): Promise<ClientAddress> {
  addressOf = createAddressOf(trusted);
  const { port } = server.address() as AddressInfo;
  const asking = request({ host, port, headers, agent: false }).end();
  const [answer] = await once(asking, 'response');
  let text = '';
  for await (const part of answer) text += part;
  return JSON.parse(text) as ClientAddress;
}
const forwarded = (list: string | string[]) => ({ 'x-forwarded-for': list });
const HERE = { address: '127.0.0.1', rateKey: '127.0.0.1', isLoopback: true };
const client = (address: string, rateKey = address) => ({ address, rateKey, isLoopback: false });

describe('a client', () => {
  it('without a proxy is its own address, on this machine too', async () => {
    expect(await ask({})).toEqual(HERE);
    expect(await ask({ trusted: [] })).toEqual(HERE);
    expect(await ask({ host: '::1' })).toEqual({ address: '::1', rateKey: '0:0:0:0::/64', isLoopback: true });
  });

  it.each([
    ['203.0.113.9', '203.0.113.9'],
    ['198.51.100.1, 203.0.113.9', '203.0.113.9'],
    ['127.0.0.1, 203.0.113.9', '203.0.113.9'],
    ['nonsense, 203.0.113.9', '203.0.113.9'],
    ['203.0.113.9, 10.0.0.3', '203.0.113.9'],
    ['198.51.100.1, 203.0.113.9, 10.0.0.3, 10.0.0.2', '203.0.113.9'],
    ['10.0.0.4, 10.0.0.3', '10.0.0.4'],
    ['203.0.113.9:40123', '203.0.113.9'],
    ['::ffff:203.0.113.9', '203.0.113.9'],
    ['::FFFF:cb00:7109', '203.0.113.9'],
  ])(
    'behind proxies that say "%s" is %s: from the right, as far as each is trusted',
    async (list, address) => {
      const trusted = ['loopback', '10.0.0.0/8'];
      expect(await ask({ trusted, headers: forwarded(list) })).toEqual(client(address));
    },
  );

  it('is the same when the header comes in several lines', async () => {
    expect(await ask({ headers: forwarded(['198.51.100.1', '203.0.113.9']) })).toEqual(client('203.0.113.9'));
  });

  it('of IPv6 counts as its network of 64 bits, however it is written', async () => {
    const rateKey = '2001:db8:0:7::/64';
    for (const text of ['2001:db8:0:7::1', '2001:DB8::7:a:b:c:d', '[2001:db8:0:7:ffff::]:443']) {
      expect((await ask({ headers: forwarded(text) })).rateKey).toBe(rateKey);
    }
    expect((await ask({ headers: forwarded('2001:db8:0:8::1') })).rateKey).not.toBe(rateKey);
    expect(await ask({ headers: forwarded('2001:DB8:0:0::1') })).toEqual(
      client('2001:db8::1', '2001:db8:0:0::/64'),
    );
  });

  it('that the proxy names in X-Real-IP is taken, unless X-Forwarded-For says more', async () => {
    expect(await ask({ headers: { 'x-real-ip': '203.0.113.9' } })).toEqual(client('203.0.113.9'));
    const both = { ...forwarded('203.0.113.8'), 'x-real-ip': '203.0.113.9' };
    expect(await ask({ headers: both })).toEqual(client('203.0.113.8'));
  });

  it('on this machine stays so behind a proxy that says so', async () => {
    expect(await ask({ headers: forwarded('127.0.0.1') })).toEqual(HERE);
  });
});

describe('what is said', () => {
  it.each([
    ['x-forwarded-for', '203.0.113.9'],
    ['x-real-ip', '203.0.113.9'],
  ])(
    'in %s by one who is not trusted counts for nothing, but takes the exemption away',
    async (name, value) => {
      const answer = await ask({ trusted: ['10.0.0.0/8'], headers: { [name]: value } });
      expect(answer).toEqual(client('127.0.0.1'));
    },
  );

  it.each(['nonsense', '203.0.113.999', 'unix:', '127.1', '0x7f000001', '203.0.113.9, nonsense', '<script>'])(
    'as "%s" cannot be read: then it is the proxy itself, without its exemption',
    async (list) => {
      expect(await ask({ headers: forwarded(list) })).toEqual(client('127.0.0.1'));
      expect(await ask({ headers: { 'x-real-ip': list } })).toEqual(client('127.0.0.1'));
    },
  );

  it('before what cannot be read still holds', async () => {
    const trusted = ['loopback', '10.0.0.0/8'];
    expect(await ask({ trusted, headers: forwarded('nonsense, 10.0.0.3') })).toEqual(client('10.0.0.3'));
  });

  it('in words that are not known here makes nobody a client of this machine', async () => {
    expect(await ask({ headers: { forwarded: 'for=203.0.113.9' } })).toEqual(client('127.0.0.1'));
  });

  it('by a proxy elsewhere never makes a client one of this machine', async () => {
    const trusted = ['loopback', '10.0.0.0/8'];
    const answer = await ask({ trusted, headers: forwarded('127.0.0.1, 10.0.0.3') });
    expect(answer.isLoopback).toBe(false);
  });
});
