/**
 * Encrypts backups: scrypt makes a key from the passphrase, HKDF makes the key of each file from it, and
 * AES-256-GCM seals parts of 64 kB in order. The construction is that of age (STREAM): a part that was
 * changed, moved, added or cut off is found. A sealed file is:
 *
 *   magic 16 │ salt of scrypt 16 │ salt of the file 16 │ check of the key 16 │ sealed parts …
 */
import {
  createCipheriv,
  createDecipheriv,
  hkdfSync,
  randomBytes,
  scrypt,
  timingSafeEqual,
} from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { Transform, type TransformCallback } from 'node:stream';

const MAGIC = Buffer.from('minato sealed 1\n');
const SALT_BYTES = 16;
export const HEADER_BYTES = MAGIC.length + 3 * SALT_BYTES;
const PART_BYTES = 65_536;
const TAG_BYTES = 16;
/** 128 MB of memory and about half a second, once for each process: N × r × 128 bytes. */
const SCRYPT = { N: 2 ** 17, r: 8, p: 1, maxmem: 2 ** 28 };
const PASSPHRASE_LENGTH_MIN = 16;

/** The key of a folder of backups: from the passphrase and the salt, which is no secret. */
export interface FolderKey {
  readonly salt: Buffer;
  readonly key: Buffer;
}

export interface SealedHeader {
  readonly salt: Buffer;
  readonly fileSalt: Buffer;
  readonly check: Buffer;
}

export class WrongPassphrase extends Error {
  constructor(path: string) {
    super(`the passphrase is not the one with which ${path} was encrypted`);
    this.name = 'WrongPassphrase';
  }
}

export class Damaged extends Error {
  constructor(why: string) {
    super(why);
    this.name = 'Damaged';
  }
}

export async function readPassphrase(path: string): Promise<string> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new Error(`MINATO_BACKUP_PASSPHRASE_FILE: ${path} cannot be read (${error.code})`);
  });
  const passphrase = text.replace(/\r?\n$/, '');
  if (passphrase.length < PASSPHRASE_LENGTH_MIN)
    throw new Error(
      `MINATO_BACKUP_PASSPHRASE_FILE: the passphrase in ${path} is shorter than ` +
        `${PASSPHRASE_LENGTH_MIN} characters; a good one: openssl rand -base64 32`,
    );
  return passphrase;
}

export function keyOf(passphrase: string, salt: Buffer): Promise<FolderKey> {
  return new Promise((resolve, reject) =>
    scrypt(passphrase.normalize('NFC'), salt, 32, SCRYPT, (error, key) =>
      error === null ? resolve({ salt, key }) : reject(error),
    ),
  );
}

export const newSalt = () => randomBytes(SALT_BYTES);

/** Undefined: the file is not encrypted. */
export function readHeader(start: Buffer): SealedHeader | undefined {
  if (start.length < HEADER_BYTES || !start.subarray(0, MAGIC.length).equals(MAGIC)) return undefined;
  const at = (place: number) =>
    start.subarray(MAGIC.length + place * SALT_BYTES, MAGIC.length + (place + 1) * SALT_BYTES);
  return { salt: at(0), fileSalt: at(1), check: at(2) };
}

const derive = ({ key }: FolderKey, fileSalt: Buffer, use: string, bytes: number) =>
  Buffer.from(hkdfSync('sha256', key, fileSalt, `minato backup ${use}`, bytes));

/** A counter of 11 bytes and the mark of the last part, so that no part fits elsewhere. */
function nonceOf(part: number, isLast: boolean): Buffer {
  const nonce = Buffer.alloc(12);
  nonce.writeUIntBE(part, 5, 6);
  nonce[11] = isLast ? 1 : 0;
  return nonce;
}

/** Cuts a stream into parts of one size; only the last one, which may be empty, is shorter. */
abstract class Parts extends Transform {
  #pending: Buffer = Buffer.alloc(0);
  #part = 0;

  protected constructor(private readonly bytes: number) {
    super();
  }

  protected abstract turn(part: Buffer, number: number, isLast: boolean): Buffer;

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    try {
      this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
      let at = 0;
      for (; this.#pending.length - at > this.bytes; at += this.bytes)
        this.push(this.turn(this.#pending.subarray(at, at + this.bytes), this.#part++, false));
      this.#pending = this.#pending.subarray(at);
      done();
    } catch (error) {
      done(error as Error);
    }
  }

  override _flush(done: TransformCallback): void {
    try {
      done(null, this.turn(this.#pending, this.#part, true));
    } catch (error) {
      done(error as Error);
    }
  }
}

export class Seal extends Parts {
  readonly #key: Buffer;

  constructor(folder: FolderKey) {
    super(PART_BYTES);
    const fileSalt = randomBytes(SALT_BYTES);
    this.#key = derive(folder, fileSalt, 'file', 32);
    this.push(Buffer.concat([MAGIC, folder.salt, fileSalt, derive(folder, fileSalt, 'check', SALT_BYTES)]));
  }

  protected override turn(part: Buffer, number: number, isLast: boolean): Buffer {
    const cipher = createCipheriv('aes-256-gcm', this.#key, nonceOf(number, isLast));
    return Buffer.concat([cipher.update(part), cipher.final(), cipher.getAuthTag()]);
  }
}

/** Reads what follows the header. Nothing is passed on that was not checked. */
export class Unseal extends Parts {
  readonly #key: Buffer;

  constructor(folder: FolderKey, header: SealedHeader, path: string) {
    super(PART_BYTES + TAG_BYTES);
    const check = derive(folder, header.fileSalt, 'check', SALT_BYTES);
    if (!timingSafeEqual(check, header.check)) throw new WrongPassphrase(path);
    this.#key = derive(folder, header.fileSalt, 'file', 32);
  }

  protected override turn(part: Buffer, number: number, isLast: boolean): Buffer {
    const end = part.length - TAG_BYTES;
    if (end < 0) throw new Damaged('the encrypted file was cut off');
    const decipher = createDecipheriv('aes-256-gcm', this.#key, nonceOf(number, isLast));
    decipher.setAuthTag(part.subarray(end));
    try {
      return Buffer.concat([decipher.update(part.subarray(0, end)), decipher.final()]);
    } catch {
      throw new Damaged('the encrypted file was changed or cut off');
    }
  }
}
