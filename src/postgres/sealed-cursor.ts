/**
 * The encrypted cursor of a search. Clients can neither read nor make one: it contains the last offset of the
 * node, which is not public. It is valid for one community (I13).
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { z } from 'zod';

export interface Place {
  /** Seconds: the time at which the age of events is computed. */
  readonly asOf: number;
  /** The offset of the last change that the search sees. */
  readonly cut: number;
  readonly score: number;
  readonly createdAt: number;
  readonly id: string;
}

export interface Seal {
  /** 32 bytes as hex, the same on every instance. */
  readonly secret: string;
  readonly community: number;
}

const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

const number = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const schema = z.tuple([number, number, z.number().min(0), number, z.string().regex(/^[0-9a-f]{64}$/)]);

export function sealPlace({ secret, community }: Seal, { asOf, cut, score, createdAt, id }: Place): string {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, Buffer.from(secret, 'hex'), nonce).setAAD(
    Buffer.from(`${community}`),
  );
  const sealed = cipher.update(JSON.stringify([asOf, cut, score, createdAt, id]), 'utf8');
  return Buffer.concat([nonce, sealed, cipher.final(), cipher.getAuthTag()]).toString('base64url');
}

/** Undefined if it is not a cursor of this node and community. */
export function openPlace({ secret, community }: Seal, cursor: string): Place | undefined {
  const bytes = Buffer.from(cursor, 'base64url');
  if (bytes.length <= NONCE_BYTES + TAG_BYTES) return undefined;
  const nonce = bytes.subarray(0, NONCE_BYTES);
  try {
    const decipher = createDecipheriv(CIPHER, Buffer.from(secret, 'hex'), nonce, { authTagLength: TAG_BYTES })
      .setAAD(Buffer.from(`${community}`))
      .setAuthTag(bytes.subarray(-TAG_BYTES));
    const text = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES), undefined, 'utf8');
    const [asOf, cut, score, createdAt, id] = schema.parse(JSON.parse(text + decipher.final('utf8')));
    return { asOf, cut, score, createdAt, id };
  } catch {
    return undefined;
  }
}
