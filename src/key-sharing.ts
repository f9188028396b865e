/**
 * How instances on several machines come to the same key of the erased without its ever lying in the database: who lacks it leaves a
 * public key (X25519) there, and whoever has it answers with the key, sealed for that one alone. A dump that is taken in
 * between holds nothing that could be opened, because the secret half never leaves the memory of the one who asked.
 */
import {
  createCipheriv,
  createDecipheriv,
  createPublicKey,
  diffieHellman,
  generateKeyPairSync,
  hkdfSync,
  type KeyObject,
  randomBytes,
  randomUUID,
} from 'node:crypto';
import type { Pool } from 'pg';
import {
  answerKeyRequest,
  askForKey,
  dropKeyRequest,
  openKeyRequests,
  readAnswer,
} from './store/key-requests.js';
import type { SubjectKey } from './subject-key.js';

export class KeySharing {
  private asked: { readonly requestId: string; readonly secret: KeyObject } | undefined;

  constructor(
    private readonly pool: Pool,
    private readonly subjectKey: SubjectKey,
    private readonly now: () => number,
  ) {}

  /** Again and again: answers those who ask, or asks, as long as the key of this print is not here. */
  async tend(print: string | undefined): Promise<void> {
    if (print === undefined) return;
    if (await this.subjectKey.load(print)) return this.answer();
    // Another key that was set by hand is the operator's mistake, and told at the start.
    if (this.subjectKey.print !== undefined) return;
    if (this.asked === undefined) return this.ask();
    const sealed = await readAnswer(this.pool, this.asked.requestId);
    if (sealed === undefined) this.asked = undefined;
    if (sealed === undefined || sealed === null || this.asked === undefined) return;
    await this.subjectKey.adopt(unseal(sealed, this.asked.secret));
    await this.withdraw();
  }

  /** Nobody needs the answer any more. */
  async withdraw(): Promise<void> {
    if (this.asked !== undefined) await dropKeyRequest(this.pool, this.asked.requestId);
    this.asked = undefined;
  }

  private async ask(): Promise<void> {
    const { publicKey, privateKey: secret } = generateKeyPairSync('x25519');
    const requestId = randomUUID();
    await askForKey(this.pool, requestId, rawOf(publicKey), this.now());
    this.asked = { requestId, secret };
  }

  private async answer(): Promise<void> {
    const key = this.subjectKey.secret()!;
    for (const { requestId, askedWith } of await openKeyRequests(this.pool, this.now()))
      await answerKeyRequest(this.pool, requestId, seal(key, askedWith));
  }
}

const rawOf = (key: KeyObject) => Buffer.from(key.export({ format: 'jwk' }).x!, 'base64url');
const publicOf = (raw: Buffer) =>
  createPublicKey({ key: { kty: 'OKP', crv: 'X25519', x: raw.toString('base64url') }, format: 'jwk' });
const PUBLIC_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const cipherKey = (shared: Buffer, nonce: Buffer) =>
  Buffer.from(hkdfSync('sha256', shared, nonce, 'minato key of the erased', 32));

/** A public key of this one message, a nonce, what is sealed, and the tag. */
function seal(text: Buffer, recipient: Buffer): Buffer {
  const { publicKey, privateKey } = generateKeyPairSync('x25519');
  const nonce = randomBytes(NONCE_BYTES);
  const shared = diffieHellman({ privateKey, publicKey: publicOf(recipient) });
  const cipher = createCipheriv('aes-256-gcm', cipherKey(shared, nonce), nonce);
  return Buffer.concat([rawOf(publicKey), nonce, cipher.update(text), cipher.final(), cipher.getAuthTag()]);
}

function unseal(sealed: Buffer, secret: KeyObject): Buffer {
  const nonce = sealed.subarray(PUBLIC_BYTES, PUBLIC_BYTES + NONCE_BYTES);
  const shared = diffieHellman({
    privateKey: secret,
    publicKey: publicOf(sealed.subarray(0, PUBLIC_BYTES)),
  });
  const decipher = createDecipheriv('aes-256-gcm', cipherKey(shared, nonce), nonce);
  decipher.setAuthTag(sealed.subarray(-TAG_BYTES));
  const text = sealed.subarray(PUBLIC_BYTES + NONCE_BYTES, -TAG_BYTES);
  return Buffer.concat([decipher.update(text), decipher.final()]);
}
