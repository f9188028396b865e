/** The address of a client: the node believes trusted proxies only. Tested over real connections. */
import { once } from 'node:events';
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type AddressOptions,
  type ClientAddress,
  createAddresses,
  forwardedFor,
} from '../../src/port/client-address.js';

let server: Server;
let addressOf = createAddresses({ trustedProxies: [] }).of;
beforeAll(async () => {
  server = createServer((asked, answer) => answer.end(JSON.stringify(addressOf(asked))));
  server.listen(0);
  await once(server, 'listening');
});
afterAll(() => server.close());

interface From extends Omit<AddressOptions, 'trustedProxies'> {
  readonly trusted?: readonly string[];
  readonly headers?: Record<string, string | string[]>;
  readonly host?: string;
}

async function ask({
  trusted = ['loopback'],
  headers = {},
  host = '127.0.0.1',
  ...options
}: From): Promise<ClientAddress> {
  addressOf = createAddresses({ trustedProxies: trusted, ...options }).of;
  const { port } = server.address() as AddressInfo;
  const asking = request({ host, port, headers, agent: false }).end();
  const [answer] = await once(asking, 'response');
  let text = '';
  for await (const part of answer) text += part;
  return JSON.parse(text) as ClientAddress;
}
const forwarded = (list: string | string[]) => ({ 'x-forwarded-for': list });
const HERE = { address: '127.0.0.1', rateKey: '127.0.0.1', networkKey: '127.0.0.1', isLoopback: true };
const client = (address: string, rateKey = address, networkKey = rateKey) => ({
  address,
  rateKey,
  networkKey,
  isLoopback: false,
});

describe('a client', () => {
  it('without a proxy has the address of its connection, on this machine too', async () => {
    expect(await ask({})).toEqual(HERE);
    expect(await ask({ trusted: [] })).toEqual(HERE);
    expect(await ask({ host: '::1' })).toEqual({
      ...client('::1', '0:0:0:0::/64', '0:0:0::/48'),
      isLoopback: true,
    });
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
    'behind proxies that send "%s" is %s: from the right, as far as each is trusted',
    async (list, address) => {
      const trusted = ['loopback', '10.0.0.0/8'];
      expect(await ask({ trusted, headers: forwarded(list) })).toEqual(client(address));
    },
  );

  it('is the same when the header has several lines', async () => {
    expect(await ask({ headers: forwarded(['198.51.100.1', '203.0.113.9']) })).toEqual(client('203.0.113.9'));
  });

  it('of IPv6 counts as its /64 network, in every notation', async () => {
    const rateKey = '2001:db8:0:7::/64';
    for (const text of ['2001:db8:0:7::1', '2001:DB8::7:a:b:c:d', '[2001:db8:0:7:ffff::]:443']) {
      expect((await ask({ headers: forwarded(text) })).rateKey).toBe(rateKey);
    }
    expect((await ask({ headers: forwarded('2001:db8:0:8::1') })).rateKey).not.toBe(rateKey);
    expect(await ask({ headers: forwarded('2001:DB8:0:0::1') })).toEqual(
      client('2001:db8::1', '2001:db8:0:0::/64', '2001:db8:0::/48'),
    );
  });

  it('that the proxy names in X-Real-IP counts, if X-Forwarded-For agrees', async () => {
    expect(await ask({ headers: { 'x-real-ip': '203.0.113.9' } })).toEqual(client('203.0.113.9'));
    const agreeing = { ...forwarded('198.51.100.1, 203.0.113.9'), 'x-real-ip': '203.0.113.9' };
    expect(await ask({ headers: agreeing })).toEqual(client('203.0.113.9'));
    // nginx behind a load balancer: it names the load balancer in X-Real-IP and appends it to
    // X-Forwarded-For.
    const trusted = ['loopback', '10.0.0.0/8'];
    const two = { ...forwarded('203.0.113.9, 10.0.0.3'), 'x-real-ip': '10.0.0.3' };
    expect(await ask({ trusted, headers: two })).toEqual(client('203.0.113.9'));
    const real = { ...forwarded('203.0.113.9, 10.0.0.3'), 'x-real-ip': '203.0.113.9' };
    expect(await ask({ trusted, headers: real })).toEqual(client('203.0.113.9'));
  });

  it.each(['127.0.0.1', '::1', '198.51.100.7', '10.0.0.1, 127.0.0.1', 'nonsense'])(
    'whose X-Forwarded-For "%s" contradicts X-Real-IP counts as the proxy',
    async (list) => {
      const { alsoNamed, ...answer } = await ask({
        headers: { ...forwarded(list), 'x-real-ip': '203.0.113.9' },
      });
      expect(answer).toEqual(client('127.0.0.1'));
      expect(alsoNamed).toContain('203.0.113.9');
    },
  );

  it.each([
    ['x-forwarded-for', '198.51.100.7'],
    ['x-real-ip', '203.0.113.9'],
    ['forwarded', '192.0.2.5'],
    ['cf-connecting-ip', '192.0.2.6'],
    ['true-client-ip', '192.0.2.7'],
    ['fly-client-ip', '192.0.2.8'],
  ] as const)('is read from %s alone where the operator says so', async (header, address) => {
    const headers = {
      ...forwarded('198.51.100.7'),
      'x-real-ip': '203.0.113.9',
      forwarded: 'for=127.0.0.1, for="192.0.2.5:4711";proto=https',
      'cf-connecting-ip': '192.0.2.6',
      'true-client-ip': '192.0.2.7',
      'fly-client-ip': '192.0.2.8',
    };
    expect(await ask({ header, headers })).toEqual(client(address));
    const { [header]: _, ...others } = headers;
    expect(await ask({ header, headers: others }), 'the others are not read').toEqual(client('127.0.0.1'));
  });

  it.each([
    'x-forwarded-for',
    'x-real-ip',
    'forwarded',
    'via',
    'x-forwarded-proto',
    'x-forwarded-host',
    'cf-connecting-ip',
    'true-client-ip',
    'fly-client-ip',
    'cdn-loop',
  ])('that was forwarded, as %s shows, is not on this machine whatever is said', async (name) => {
    for (const value of ['127.0.0.1', '::1', 'for=127.0.0.1', '', '1.1 localhost'])
      expect((await ask({ headers: { [name]: value } })).isLoopback, value).toBe(false);
  });

  it.each(['127.0.0.1:7447', 'localhost', 'LOCALHOST:1', 'relay.localhost', '[::1]:7447', '127.8.8.8'])(
    'on this machine with the host "%s" is a local client',
    async (name) => {
      expect((await ask({ headers: { host: name } })).isLoopback).toBe(true);
    },
  );

  it.each([
    'evil.example',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    '0.0.0.0',
    'relay.example:7447',
  ])('with the host "%s" is not local: DNS rebinding, or a proxy without headers', async (name) => {
    const hosts: (string | undefined)[] = [];
    const answer = await ask({ headers: { host: name }, onUnnamed: (host) => hosts.push(host) });
    expect(answer).toEqual(client('127.0.0.1'));
    expect(hosts).toEqual([name]);
  });

  it('of a foreign web page in a browser on this machine is not a local client', async () => {
    for (const origin of ['http://localhost:5173', 'https://127.0.0.1', 'http://[::1]:80'])
      expect((await ask({ headers: { origin } })).isLoopback, origin).toBe(true);
    for (const origin of ['https://evil.example', 'https://localhost.evil.example', 'null', ''])
      expect(await ask({ headers: { origin } }), origin).toEqual(client('127.0.0.1'));
  });

  it('on this machine is like any other where the operator does not trust loopback', async () => {
    expect(await ask({ trustsLoopback: () => false })).toEqual(client('127.0.0.1'));
  });
});

describe('the header Forwarded', () => {
  it('gives the client of each element, with any other parameters', () => {
    expect(forwardedFor('for=192.0.2.1;by=203.0.113.43, For="[2001:db8::1]:4711";proto=http')).toEqual([
      '192.0.2.1',
      '[2001:db8::1]:4711',
    ]);
    expect(forwardedFor('by="a,for=1.1.1.1", for=_hidden')).toEqual(['', '_hidden']);
  });

  it('reads every quoted value that a proxy can send', () => {
    const text = fc.string({
      unit: fc.constantFrom('"', '\\', ',', ';', '=', 'f', 'o', 'r', '1', ':'),
      maxLength: 20,
    });
    fc.assert(
      fc.property(fc.array(text, { minLength: 1, maxLength: 8 }), (clients) => {
        const quoted = clients.map((each) => `for="${each.replace(/["\\]/g, '\\$&')}"`);
        expect(forwardedFor(quoted.join(', '))).toEqual(clients);
      }),
    );
  });
});

describe('a header', () => {
  it.each([
    ['x-forwarded-for', '203.0.113.9'],
    ['x-real-ip', '203.0.113.9'],
  ])(
    '%s of an untrusted client is ignored, but ends its exemption as a local client',
    async (name, value) => {
      const answer = await ask({ trusted: ['10.0.0.0/8'], headers: { [name]: value } });
      expect(answer).toEqual(client('127.0.0.1'));
    },
  );

  it.each(['nonsense', '203.0.113.999', 'unix:', '127.1', '0x7f000001', '203.0.113.9, nonsense', '<script>'])(
    'with "%s" is invalid: the client counts as the proxy, without its exemption',
    async (list) => {
      expect(await ask({ headers: forwarded(list) })).toEqual(client('127.0.0.1'));
      expect(await ask({ headers: { 'x-real-ip': list } })).toEqual(client('127.0.0.1'));
    },
  );

  it('before an invalid part still counts', async () => {
    const trusted = ['loopback', '10.0.0.0/8'];
    expect(await ask({ trusted, headers: forwarded('nonsense, 10.0.0.3') })).toEqual(client('10.0.0.3'));
  });

  it('with an unknown form makes nobody a local client', async () => {
    expect(await ask({ headers: { forwarded: 'for=203.0.113.9' } })).toEqual(client('127.0.0.1'));
  });

  it('of a remote proxy never makes a client a local one', async () => {
    const trusted = ['loopback', '10.0.0.0/8'];
    const answer = await ask({ trusted, headers: forwarded('127.0.0.1, 10.0.0.3') });
    expect(answer.isLoopback).toBe(false);
  });
});
