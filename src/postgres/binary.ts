/**
 * Encodes arrays in PostgreSQL's binary format. A batch of hundreds of rows is sent as a few arrays: nothing
 * is quoted here or parsed there, and a value may contain any byte.
 */

const OID = { bytea: 17, int8: 20, int2: 21, int4: 23, text: 25 } as const;
const HEADER_BYTES = 20;

function header(buffer: Buffer, oid: number, length: number, hasNull: boolean): number {
  buffer.writeInt32BE(1, 0); // one dimension
  buffer.writeInt32BE(hasNull ? 1 : 0, 4);
  buffer.writeInt32BE(oid, 8);
  buffer.writeInt32BE(length, 12);
  buffer.writeInt32BE(1, 16); // lower bound
  return HEADER_BYTES;
}

/**
 * A DataView writes numbers without an object for each. `writeBigInt64BE` needs one: 4 kB for an event with 9
 * tags.
 */
function numbers(oid: number, count: number, width: number): { buffer: Buffer; view: DataView } {
  const buffer = Buffer.allocUnsafe(HEADER_BYTES + count * (4 + width));
  header(buffer, oid, count, false);
  return { buffer, view: new DataView(buffer.buffer, buffer.byteOffset, buffer.length) };
}

export function int8Array(values: readonly (number | bigint)[]): Buffer {
  const { buffer, view } = numbers(OID.int8, values.length, 8);
  let at = HEADER_BYTES;
  for (const value of values) {
    view.setInt32(at, 8);
    if (typeof value === 'bigint') view.setBigInt64(at + 4, value);
    else {
      view.setInt32(at + 4, Math.floor(value / 2 ** 32));
      view.setInt32(at + 8, value | 0);
    }
    at += 12;
  }
  return buffer;
}

export function int4Array(values: readonly number[]): Buffer {
  const { buffer, view } = numbers(OID.int4, values.length, 4);
  let at = HEADER_BYTES;
  for (const value of values) {
    view.setInt32(at, 4);
    view.setInt32(at + 4, value);
    at += 8;
  }
  return buffer;
}

export function int2Array(values: readonly number[]): Buffer {
  const { buffer, view } = numbers(OID.int2, values.length, 2);
  let at = HEADER_BYTES;
  for (const value of values) {
    view.setInt32(at, 2);
    view.setInt16(at + 4, value);
    at += 6;
  }
  return buffer;
}

/** Hex strings of any even length as bytea[]. */
export function hexArray(values: readonly string[]): Buffer {
  const size = values.reduce((sum, value) => sum + 4 + value.length / 2, HEADER_BYTES);
  const buffer = Buffer.allocUnsafe(size);
  let at = header(buffer, OID.bytea, values.length, false);
  for (const value of values) {
    at = buffer.writeInt32BE(value.length / 2, at);
    at += buffer.write(value, at, 'hex');
  }
  return buffer;
}

export function textArray(values: readonly (string | undefined)[]): Buffer {
  let size = HEADER_BYTES;
  for (const value of values) size += 4 + (value === undefined ? 0 : Buffer.byteLength(value));
  const buffer = Buffer.allocUnsafe(size);
  let at = header(buffer, OID.text, values.length, values.includes(undefined));
  for (const value of values) {
    if (value === undefined) {
      at = buffer.writeInt32BE(-1, at);
      continue;
    }
    const bytes = buffer.write(value, at + 4);
    buffer.writeInt32BE(bytes, at);
    at += 4 + bytes;
  }
  return buffer;
}
