/**
 * Reads the header in which a proxy names its client at the start of a connection (PROXY protocol, versions 1
 * and 2). A connection of a trusted proxy without it is closed; on other connections it is not read.
 */
import type { Socket } from 'node:net';
import { addressIn, namePeer } from './client-address.js';

/** A proxy sends it with its first packet. */
const HEADER_MS_MAX = 5_000;
/** "PROXY UNKNOWN" with two long addresses, by the specification. */
const V1_BYTES_MAX = 107;
/** Addresses of Unix sockets take 216 bytes; extra fields of proxies a few hundred. */
const V2_REST_BYTES_MAX = 4_096;
const SIGNATURE = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
const V1_START = Buffer.from('PROXY ', 'latin1');
const V2_HEAD_BYTES = 16;

export type ProxyHeader =
  | 'partial'
  | 'invalid'
  /**
   * `source` is undefined for connections of the proxy itself, as in health checks, and for clients without
   * an address.
   */
  | { readonly bytes: number; readonly source: string | undefined };

/** The header at the start of these bytes. */
export function readProxyHeader(bytes: Buffer): ProxyHeader {
  if (startsLike(bytes, SIGNATURE)) return bytes.length < V2_HEAD_BYTES ? 'partial' : readV2(bytes);
  return startsLike(bytes, V1_START) ? readV1(bytes) : 'invalid';
}

function startsLike(bytes: Buffer, start: Buffer): boolean {
  const length = Math.min(bytes.length, start.length);
  return bytes.subarray(0, length).equals(start.subarray(0, length));
}

function readV1(bytes: Buffer): ProxyHeader {
  const end = bytes.subarray(0, V1_BYTES_MAX).indexOf('\r\n');
  if (end === -1) return bytes.length < V1_BYTES_MAX ? 'partial' : 'invalid';
  const line = bytes.toString('latin1', 0, end);
  if (/^PROXY UNKNOWN( |$)/.test(line)) return { bytes: end + 2, source: undefined };
  const [, family, from, to, ...ports] = /^PROXY TCP([46]) (\S+) (\S+) (\d{1,5}) (\d{1,5})$/.exec(line) ?? [];
  const isOfFamily = (text: string | undefined) =>
    text !== undefined && text.includes(':') === (family === '6') && addressIn(text) !== undefined;
  if (!isOfFamily(from) || !isOfFamily(to) || ports.some((port) => Number(port) > 65_535)) return 'invalid';
  return { bytes: end + 2, source: addressIn(from) };
}

const LOCAL = 0x20;
const PROXY = 0x21;
/**
 * The length of the two addresses with their ports, by family and transport.
 */
const ADDRESS_BYTES: Readonly<Record<number, number>> = { 0: 0, 17: 12, 33: 36, 49: 216 };

function readV2(bytes: Buffer): ProxyHeader {
  const [command, family] = [bytes[12], bytes[13] ?? 0];
  const rest = bytes.readUInt16BE(14);
  const addressBytes = ADDRESS_BYTES[family];
  if ((command !== LOCAL && command !== PROXY) || rest > V2_REST_BYTES_MAX) return 'invalid';
  if (command === PROXY && (addressBytes === undefined || rest < addressBytes)) return 'invalid';
  const end = V2_HEAD_BYTES + rest;
  if (bytes.length < end) return 'partial';
  if (command === LOCAL) return { bytes: end, source: undefined };
  return { bytes: end, source: sourceOf(family, bytes.subarray(V2_HEAD_BYTES, end)) };
}

function sourceOf(family: number, addresses: Buffer): string | undefined {
  if (family === 0x11) return [...addresses.subarray(0, 4)].join('.');
  if (family !== 0x21) return undefined;
  const groups = Array.from({ length: 8 }, (_, at) => addresses.readUInt16BE(at * 2).toString(16));
  return addressIn(groups.join(':'));
}

/**
 * Reads the header, then passes the connection on with the bytes after it, or closes it. Nothing is written
 * to it before.
 */
export function readProxied(
  socket: Socket,
  goOn: (socket: Socket) => void,
  headerMsMax = HEADER_MS_MAX,
): void {
  let read = Buffer.alloc(0);
  const late = setTimeout(() => socket.destroy(), headerMsMax);
  const onError = () => undefined;
  const look = (): void => {
    for (let part: Buffer | null = socket.read(); part !== null; part = socket.read()) {
      read = Buffer.concat([read, part]);
      const header = readProxyHeader(read);
      if (header === 'partial') continue;
      stop();
      if (header === 'invalid') socket.destroy();
      else {
        if (header.source !== undefined) namePeer(socket, header.source);
        else if (socket.remoteAddress !== undefined) namePeer(socket, socket.remoteAddress);
        if (read.length > header.bytes) socket.unshift(read.subarray(header.bytes));
        goOn(socket);
      }
      return;
    }
  };
  const stop = (): void => {
    clearTimeout(late);
    socket.off('readable', look).off('close', stop).off('end', onEnd).off('error', onError);
  };
  const onEnd = () => socket.destroy();
  socket.on('readable', look).on('close', stop).on('end', onEnd).on('error', onError);
}
