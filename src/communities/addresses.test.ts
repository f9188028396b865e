/** The addresses of a community. */
import { describe, expect, it } from 'vitest';
import { addressesOf, basesOf, normalizeRelayUrl, toHttp } from './addresses.js';
import { settingsFrom } from './rules-settings.js';

const community = (slug: string, host?: string, urls: string[] = []) => ({
  slug,
  host,
  settings: settingsFrom(new Map([['relay.urls', urls]])),
});

describe('addresses', () => {
  it('of the node: the configured address, else where it listens', () => {
    expect(basesOf('https://node.example/x', '0.0.0.0', 7447)).toEqual(['https://node.example/x']);
    expect(basesOf(undefined, '0.0.0.0', 7447)).toEqual([
      'ws://127.0.0.1:7447',
      'ws://localhost:7447',
      'ws://[::1]:7447',
      'ws://0.0.0.0:7447',
    ]);
    expect(basesOf(undefined, '::', 1)).toContain('ws://[::]:1');
    expect(basesOf(undefined, '127.0.0.1', 1)).toHaveLength(3);
  });

  it('of the default community are at the root, of others under their slug', () => {
    const bases = ['https://node.example/'];
    expect(addressesOf(community('default'), bases)).toEqual([
      'wss://node.example',
      'wss://node.example/c/default',
    ]);
    expect(addressesOf(community('art'), bases)).toEqual(['wss://node.example/c/art']);
    expect(addressesOf(community('art'), ['http://node.example:81/x'])).toEqual([
      'ws://node.example:81/x/c/art',
    ]);
  });

  it('of a community with a host name include that host, at the same port', () => {
    expect(addressesOf(community('art', 'art.example'), ['wss://node.example/x'])).toEqual([
      'wss://art.example',
      'wss://node.example/x/c/art',
    ]);
    expect(addressesOf(community('art', 'art.example'), ['ws://127.0.0.1:81'])[0]).toBe(
      'ws://art.example:81',
    );
  });

  it('set by the community come first, without duplicates', () => {
    const urls = ['wss://own.example', 'wss://node.example'];
    expect(addressesOf(community('default', undefined, urls), ['wss://node.example'])).toEqual([
      'wss://own.example',
      'wss://node.example',
      'wss://node.example/c/default',
    ]);
  });

  it('of two communities are never the same', () => {
    const bases = ['wss://node.example', 'ws://127.0.0.1:81'];
    const all = [community('default'), community('art'), community('music', 'music.example')];
    const addresses = all.flatMap((each) => addressesOf(each, bases).map(normalizeRelayUrl));
    expect(new Set(addresses).size).toBe(addresses.length);
  });
});

describe('relay addresses', () => {
  it('are compared without case of scheme and host, default port and trailing slash', () => {
    for (const url of ['WSS://Node.Example', 'wss://node.example:443/', 'https://node.example'])
      expect(normalizeRelayUrl(url)).toBe('https://node.example');
    expect(normalizeRelayUrl('wss://node.example/C/art/')).toBe('https://node.example/C/art');
    expect(normalizeRelayUrl('wss://node.example/C/art//'), 'stable').toBe('https://node.example/C/art');
    expect(normalizeRelayUrl('ws://node.example')).not.toBe(normalizeRelayUrl('wss://node.example'));
    expect(normalizeRelayUrl('node')).toBeUndefined();
  });

  it('convert to the same place over HTTP', () => {
    expect(toHttp('wss://node.example/x')).toBe('https://node.example/x');
    expect(toHttp('ws://node.example')).toBe('http://node.example');
  });
});
