/** Reads public keys from text (NIP-19): `npub1…` and `nprofile1…`, which are bech32. Pure. */

const ALPHABET = 'qpzry9x8gf2tvdw0s3jn54khce6mua7l';
const GENERATOR = [0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3];
const CHECKSUM_LENGTH = 6;
const KEY_BYTES = 32;
/** In an nprofile: the entry that holds the key. */
const TLV_KEY = 0;

/** The key in hex; undefined when the text is not a key. */
export function pubkeyOf(text: string): string | undefined {
  const separator = text.lastIndexOf('1');
  const prefix = text.slice(0, separator);
  if (prefix !== 'npub' && prefix !== 'nprofile') return undefined;
  const values = [...text.slice(separator + 1)].map((letter) => ALPHABET.indexOf(letter));
  if (values.includes(-1) || !holdsChecksum(prefix, values)) return undefined;
  const bytes = toBytes(values.slice(0, -CHECKSUM_LENGTH));
  const key = prefix === 'npub' ? bytes : entryOf(bytes, TLV_KEY);
  return key?.length === KEY_BYTES
    ? key.map((byte) => byte.toString(16).padStart(2, '0')).join('')
    : undefined;
}

function holdsChecksum(prefix: string, values: readonly number[]): boolean {
  const codes = [...prefix].map((letter) => letter.charCodeAt(0));
  let sum = 1;
  for (const value of [...codes.map((code) => code >> 5), 0, ...codes.map((code) => code & 31), ...values]) {
    const top = sum >>> 25;
    sum = ((sum & 0x1ffffff) << 5) ^ value;
    for (let bit = 0; bit < 5; bit += 1) if ((top >> bit) & 1) sum ^= GENERATOR[bit]!;
  }
  return sum === 1;
}

/** Converts five-bit values to bytes. The bits that are left over are padding. */
function toBytes(values: readonly number[]): number[] {
  const bytes: number[] = [];
  let held = 0;
  let bits = 0;
  for (const value of values) {
    held = ((held << 5) | value) & 0xfff;
    bits += 5;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push((held >> bits) & 0xff);
  }
  return bytes;
}

function entryOf(bytes: readonly number[], type: number): number[] | undefined {
  for (let at = 0; at + 2 <= bytes.length; at += 2 + bytes[at + 1]!)
    if (bytes[at] === type) return bytes.slice(at + 2, at + 2 + bytes[at + 1]!);
  return undefined;
}
