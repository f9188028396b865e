/**
 * How instances on several machines come to the same keys without their ever lying in the database: who lacks one leaves a public key
 * (X25519) there, and whoever has it answers with the key, sealed for that one alone. A dump that is taken in between holds nothing
 * that could be opened, because the secret half never leaves the memory of the one who asked. Asking is a row in the database, so
 * nobody is given a key who could not write there.
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

/** Keys of one sort, by their names; no two sorts share a name. */
export interface SharedKeys {
  /** Those that are needed here and are not here. */
  lacking(): Promise<readonly string[]>;
  /** The secret, if it is here. */
  secretOf(name: string): Promise<Buffer | undefined>;
  /** Keeps one that came. False when it is not the key of this name. */
  adopt(name: string, secret: Buffer): Promise<boolean>;
}

interface Asked {
  readonly requestId: string;
  readonly secret: KeyObject;
}

/** Requests of one instance at a time. */
const ASKED_MAX = 20;
/** After an answer that could not be used. */
const ASK_AGAIN_MS = 30_000;

export class KeySharing {
  private readonly asked = new Map<string, Asked>();
  private readonly notBefore = new Map<string, number>();

  constructor(
    private readonly pool: Pool,
    private readonly sorts: readonly SharedKeys[],
    private readonly now: () => number,
  ) {}

  /** Again and again: answers those who ask, and asks for what is lacking here. */
  async tend(): Promise<void> {
    await this.answer();
    const lacking = new Set<string>();
    for (const keys of this.sorts)
      for (const name of await keys.lacking()) {
        lacking.add(name);
        if (this.asked.has(name)) await this.receive(keys, name);
        else if (this.asked.size < ASKED_MAX && this.now() >= (this.notBefore.get(name) ?? 0))
          await this.ask(name);
      }
    for (const name of this.asked.keys()) if (!lacking.has(name)) await this.drop(name);
  }

  /** Nobody needs the answers any more. */
  async withdraw(): Promise<void> {
    for (const name of this.asked.keys()) await this.drop(name);
  }

  private async ask(wanted: string): Promise<void> {
    const { publicKey, privateKey: secret } = generateKeyPairSync('x25519');
    const requestId = randomUUID();
    await askForKey(this.pool, { requestId, wanted, askedWith: rawOf(publicKey) }, this.now());
    this.asked.set(wanted, { requestId, secret });
  }

  private async receive(keys: SharedKeys, name: string): Promise<void> {
    const { requestId, secret } = this.asked.get(name)!;
    const sealed = await readAnswer(this.pool, requestId);
    // Nobody has answered yet; or the request was too old, and is made again.
    if (sealed === null) return;
    if (sealed === undefined) {
      this.asked.delete(name);
      return;
    }
    this.notBefore.set(name, this.now() + ASK_AGAIN_MS);
    await this.drop(name);
    await keys.adopt(name, unseal(sealed, secret));
  }

  private async drop(name: string): Promise<void> {
    await dropKeyRequest(this.pool, this.asked.get(name)!.requestId);
    this.asked.delete(name);
  }

  private async answer(): Promise<void> {
    for (const { requestId, wanted, askedWith } of await openKeyRequests(this.pool, this.now())) {
      const key = await this.find(wanted);
      if (key !== undefined) await answerKeyRequest(this.pool, requestId, seal(key, askedWith));
    }
  }

  private async find(name: string): Promise<Buffer | undefined> {
    for (const keys of this.sorts) {
      const secret = await keys.secretOf(name);
      if (secret !== undefined) return secret;
    }
    return undefined;
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
