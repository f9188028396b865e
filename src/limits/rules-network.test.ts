import { BlockList } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkNetwork } from './rules-network.js';

describe('a network', () => {
  it.each([
    ['192.0.2.1', '192.0.2.1/32'],
    [' 192.0.2.77/24 ', '192.0.2.0/24'],
    ['10.0.0.0/8', '10.0.0.0/8'],
    // One IPv6 address means the whole /64 of its host.
    ['2001:DB8::1', '2001:db8::/64'],
    ['2001:db8:0:0:1:0:0:1', '2001:db8::/64'],
    ['2001:db8::1/128', '2001:db8::1/128'],
    ['2001:db8:ffff:1::/36', '2001:db8:f000::/36'],
    ['fe80::/10', 'fe80::/10'],
    ['::ffff:192.0.2.1', '192.0.2.1/32'],
    ['::ffff:c000:200/120', '192.0.2.0/24'],
    ['64:ff9b::192.0.2.1/128', '64:ff9b::c000:201/128'],
    ['128.0.0.0/1', '128.0.0.0/1'],
  ])('%s is kept as %s', (text, network) => {
    expect(checkNetwork(text)).toEqual({ network });
  });

  it.each([
    '',
    'example.org',
    '192.0.2',
    '192.0.2.256',
    '192.0.2.1/33',
    '192.0.2.1/-1',
    '192.0.2.0/24/24',
    '2001:db8::/129',
    '2001:db8::1::2',
    'fe80::1%eth0',
    '10.0.0.0/8 ; DROP',
  ])('is not %j', (text) => {
    expect(checkNetwork(text)).toEqual({ problem: expect.stringMatching(/^an address such as/) });
  });

  it.each([
    '127.0.0.1',
    '127.8.8.8/32',
    '127.0.0.0/8',
    '126.0.0.0/7',
    '0.0.0.0/0',
    '::1',
    '::/0',
    '::/64',
    '::ffff:127.0.0.1',
    '::ffff:0:0/96',
  ])('that contains this machine itself cannot be blocked: %s', (text) => {
    expect(checkNetwork(text)).toEqual({ problem: expect.stringMatching(/this machine itself/) });
  });

  it('contains the same addresses after it is normalised', () => {
    const bytes = fc.array(fc.nat({ max: 255 }), { minLength: 4, maxLength: 4 });
    fc.assert(
      fc.property(bytes, fc.integer({ min: 1, max: 32 }), bytes, (network, prefix, address) => {
        const checked = checkNetwork(`${network.join('.')}/${prefix}`);
        if ('problem' in checked) return;
        const [first, bits] = checked.network.split('/') as [string, string];
        const before = new BlockList();
        before.addSubnet(network.join('.'), prefix);
        const after = new BlockList();
        after.addSubnet(first, Number(bits));
        for (const one of [address, network])
          expect(after.check(one.join('.'))).toBe(before.check(one.join('.')));
      }),
    );
  });
});
