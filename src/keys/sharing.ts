/**
 * Shares keys between instances on several machines, although no key is ever in the database. An instance
 * that lacks a key writes a request with a fresh public key. An instance that has the key answers with it,
 * encrypted for that public key (NIP-44). A dump of the database cannot be decrypted: the secret half stays
 * in the memory of the requesting instance. A request is a row in the database, so only who can write there
 * can get a key.
 */
import { randomUUID } from 'node:crypto';
import { decrypt, encrypt, getConversationKey } from 'nostr-tools/nip44';
import { generateSecretKey, getPublicKey } from 'nostr-tools/pure';
import type { Pool } from 'pg';
import {
  answerKeyRequest,
  dropKeyRequest,
  insertKeyRequest,
  openKeyRequests,
  readAnswer,
} from './requests.sql.js';

/** Keys of one kind, by name. No two kinds share a name. */
export interface SharedKeys {
  /** The keys that this instance needs and does not have. */
  lacking(): Promise<readonly string[]>;
  /** The secret, if this instance has it. */
  secretOf(name: string): Promise<Buffer | undefined>;
  /** Stores a received key. False when it is not the key of this name. */
  adopt(name: string, secret: Buffer): Promise<boolean>;
}

interface OpenRequest {
  readonly requestId: string;
  readonly secret: Uint8Array;
}

/** Open requests of one instance at a time. */
const REQUESTS_MAX = 20;
/** Delay after an answer that could not be used. */
const RETRY_MS = 30_000;

export class KeySharing {
  private readonly requests = new Map<string, OpenRequest>();
  /** By a clock that does not jump. */
  private readonly notBefore = new Map<string, number>();

  constructor(
    private readonly pool: Pool,
    private readonly sorts: readonly SharedKeys[],
    private readonly now: () => number,
  ) {}

  /** Called periodically: answers the requests of others, and requests what is missing here. */
  async tend(): Promise<void> {
    await this.answer();
    const lacking = new Set<string>();
    for (const keys of this.sorts)
      for (const name of await keys.lacking()) {
        lacking.add(name);
        if (this.requests.has(name)) await this.receive(keys, name);
        else if (this.requests.size < REQUESTS_MAX && performance.now() >= (this.notBefore.get(name) ?? 0))
          await this.request(name);
      }
    for (const name of this.requests.keys()) if (!lacking.has(name)) await this.drop(name);
  }

  /** Drops all requests of this instance. */
  async withdraw(): Promise<void> {
    for (const name of this.requests.keys()) await this.drop(name);
  }

  private async request(wanted: string): Promise<void> {
    const secret = generateSecretKey();
    const requestId = randomUUID();
    const recipient = Buffer.from(getPublicKey(secret), 'hex');
    await insertKeyRequest(this.pool, { requestId, wanted, recipient }, this.now());
    this.requests.set(wanted, { requestId, secret });
  }

  private async receive(keys: SharedKeys, name: string): Promise<void> {
    const { requestId, secret } = this.requests.get(name)!;
    const sealed = await readAnswer(this.pool, requestId);
    // Null: nobody has answered yet. Undefined: the request was too old and was deleted, so it is made again.
    if (sealed === null) return;
    if (sealed === undefined) {
      this.requests.delete(name);
      return;
    }
    this.notBefore.set(name, performance.now() + RETRY_MS);
    await this.drop(name);
    const key = unseal(sealed, secret);
    if (key !== undefined) await keys.adopt(name, key);
  }

  private async drop(name: string): Promise<void> {
    await dropKeyRequest(this.pool, this.requests.get(name)!.requestId);
    this.requests.delete(name);
  }

  private async answer(): Promise<void> {
    for (const { requestId, wanted, recipient } of await openKeyRequests(this.pool, this.now())) {
      const key = await this.find(wanted);
      if (key !== undefined) await answerKeyRequest(this.pool, requestId, seal(key, recipient));
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

const PUBLIC_BYTES = 32;

/** A public key made for this message, then the secret encrypted by NIP-44. */
function seal(secret: Buffer, recipient: Buffer): Buffer {
  const own = generateSecretKey();
  const key = getConversationKey(own, recipient.toString('hex'));
  const text = encrypt(secret.toString('hex'), key);
  return Buffer.concat([Buffer.from(getPublicKey(own), 'hex'), Buffer.from(text)]);
}

/** Undefined when it was not encrypted for this key, for example by another version of this program. */
function unseal(sealed: Buffer, own: Uint8Array): Buffer | undefined {
  const sender = sealed.subarray(0, PUBLIC_BYTES).toString('hex');
  try {
    const text = decrypt(sealed.subarray(PUBLIC_BYTES).toString(), getConversationKey(own, sender));
    return Buffer.from(text, 'hex');
  } catch {
    return undefined;
  }
}
