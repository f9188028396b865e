import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { addressIn } from './client-address.js';
import { readProxyHeader } from './proxy-protocol.js';

const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex');
const port = fc.integer({ min: 0, max: 65_535 });
const pair = (address: fc.Arbitrary<string>) => fc.tuple(address, address, port, port);

const v1 = fc.oneof(
  pair(fc.ipV4()).map(([from, to, ...ports]) => ({
    from,
    line: `PROXY TCP4 ${from} ${to} ${ports.join(' ')}`,
  })),
  pair(fc.ipV6()).map(([from, to, ...ports]) => ({
    from,
    line: `PROXY TCP6 ${from} ${to} ${ports.join(' ')}`,
  })),
);

function v2(command: number, family: number, rest: Buffer): Buffer {
  const head = Buffer.alloc(4);
  head[0] = command;
  head[1] = family;
  head.writeUInt16BE(rest.length, 2);
  return Buffer.concat([SIGNATURE, head, rest]);
}
const bytes = (length: number) =>
  fc.uint8Array({ minLength: length, maxLength: length }).map((each) => Buffer.from(each));
const extras = fc.uint8Array({ maxLength: 200 }).map((each) => Buffer.from(each));

/** Every proper prefix is partial, and bytes after the header are not consumed. */
function expectRead(header: Buffer, source: string | undefined): void {
  for (let length = 0; length < header.length; length++)
    expect(readProxyHeader(header.subarray(0, length))).toBe('partial');
  for (const rest of ['', 'GET / HTTP/1.1\r\n'])
    expect(readProxyHeader(Buffer.concat([header, Buffer.from(rest)]))).toEqual({
      bytes: header.length,
      source,
    });
}

describe('the header of the PROXY protocol', () => {
  it('in version 1 gives the address of the client', () => {
    fc.assert(
      fc.property(v1, ({ from, line }) => expectRead(Buffer.from(`${line}\r\n`), addressIn(from))),
      { numRuns: 50 },
    );
  });

  it('in version 2 gives the address of the client, also with extra fields', () => {
    fc.assert(
      fc.property(bytes(12), extras, (addresses, extra) => {
        const source = [...addresses.subarray(0, 4)].join('.');
        expectRead(v2(0x21, 0x11, Buffer.concat([addresses, extra])), source);
      }),
      { numRuns: 50 },
    );
    fc.assert(
      fc.property(bytes(36), extras, (addresses, extra) => {
        const groups = addresses.subarray(0, 16).toString('hex').match(/.{4}/g)!;
        expectRead(v2(0x21, 0x21, Buffer.concat([addresses, extra])), addressIn(groups.join(':')));
      }),
      { numRuns: 50 },
    );
  });

  it('of the proxy itself, or of a client without an address, has no source', () => {
    for (const line of ['PROXY UNKNOWN', 'PROXY UNKNOWN ffff:f::1 ffff:f::2 1 2'])
      expectRead(Buffer.from(`${line}\r\n`), undefined);
    expectRead(v2(0x20, 0x00, Buffer.alloc(0)), undefined);
    expectRead(v2(0x20, 0x11, Buffer.alloc(12)), undefined);
    expectRead(v2(0x21, 0x00, Buffer.alloc(0)), undefined);
    expectRead(v2(0x21, 0x31, Buffer.alloc(216)), undefined);
  });

  it.each([
    'GET / HTTP/1.1\r\n',
    'PROXY\r\n',
    'PROXY TCP4\r\n',
    'PROXY TCP4 203.0.113.9 198.51.100.1 1\r\n',
    'PROXY TCP4 203.0.113.999 198.51.100.1 1 2\r\n',
    'PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n',
    'PROXY TCP6 203.0.113.9 198.51.100.1 1 2\r\n',
    'PROXY TCP4 203.0.113.9 198.51.100.1 1 65536\r\n',
    'PROXY TCP4 203.0.113.9  198.51.100.1 1 2\r\n',
    'PROXY UNKNOWNX\r\n',
    'proxy TCP4 203.0.113.9 198.51.100.1 1 2\r\n',
    `PROXY UNKNOWN ${'x'.repeat(100)}`,
  ])('is not "%s"', (text) => {
    expect(readProxyHeader(Buffer.from(text))).toBe('invalid');
  });

  it('with another command, a datagram, a short address or an excessive length is invalid', () => {
    for (const [command, family, length] of [
      [0x22, 0x11, 12],
      [0x11, 0x11, 12],
      [0x21, 0x12, 12],
      [0x21, 0x22, 36],
      [0x21, 0x11, 11],
      [0x21, 0x21, 35],
      [0x21, 0x11, 5_000],
    ] as const)
      expect(readProxyHeader(v2(command, family, Buffer.alloc(length)))).toBe('invalid');
  });

  it('reading any bytes never throws', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 400 }), fc.boolean(), (given, isSigned) => {
        const read = readProxyHeader(Buffer.from(isSigned ? [...SIGNATURE, ...given] : given));
        if (typeof read === 'object') expect(read.bytes).toBeLessThanOrEqual(given.length + SIGNATURE.length);
      }),
      { numRuns: 2_000 },
    );
  });
});
