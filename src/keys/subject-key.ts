/**
 * The erasure key. Of an erased member only a keyed hash of the public key is left. With the key the node
 * recognises their events when they arrive again. A dump of the database does not contain the key, so it
 * identifies nobody.
 *
 * The key is MINATO_ERASURE_KEY, or a file under the data folder that is made with the first erasure. The
 * database stores its fingerprint. An instance on another machine requests it from the others (sharing.ts).
 * While it does not have the key it refuses events, because it could not recognise erased members (I6).
 */
import { createHmac, randomBytes } from 'node:crypto';
import { link, open, readdir, readFile, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import { giveToOwner, ownFolder } from '../postgres/owned-file.js';

const KEY = /^[0-9a-f]{64}$/;
const HASHES_MAX = 20_000;
const LOOK_MS = 100;
/** Its name in requests between instances. */
const SHARED_AS = '';

export class SubjectKeyMissing extends Error {
  constructor(
    readonly path: string,
    readonly fingerprint: string,
    isAnother = false,
  ) {
    super(
      isAnother
        ? 'MINATO_ERASURE_KEY is not the key that this database was used with: set the right one'
        : `members were erased from this database, and their erasure key is not here: copy ${path} ` +
            'from the machine that made it, start a node there, or set MINATO_ERASURE_KEY',
    );
  }
}

export interface SubjectKeyOptions {
  /** The data folder. */
  readonly folder: string;
  /** MINATO_ERASURE_KEY. */
  readonly given?: string | undefined;
}

const fingerprintOf = (key: Buffer) => createHmac('sha256', key).update('minato erasure key').digest('hex');

export class SubjectKey {
  readonly path: string;
  private readonly folder: string;
  private readonly isGiven: boolean;
  private readonly hashes = new LRUCache<string, Buffer>({ max: HASHES_MAX });
  private key: Buffer | undefined;

  constructor({ folder, given }: SubjectKeyOptions) {
    this.folder = join(folder, 'keys');
    this.path = join(this.folder, 'erasure.key');
    this.isGiven = given !== undefined;
    if (given !== undefined) this.key = Buffer.from(given, 'hex');
  }

  /** The fingerprint as the database stores it; undefined while there is no key. */
  get fingerprint(): string | undefined {
    return this.key && fingerprintOf(this.key);
  }

  /** Loads the key with this fingerprint, or the key of the default file. False when it is not here. */
  async load(fingerprint?: string): Promise<boolean> {
    if (this.key !== undefined) return fingerprint === undefined || this.fingerprint === fingerprint;
    for (const path of await this.paths(fingerprint)) {
      const key = await readKey(path);
      if (key !== undefined && (fingerprint === undefined || fingerprintOf(key) === fingerprint)) {
        this.key = key;
        return true;
      }
    }
    return false;
  }

  /** Like `load`, but polls: another instance may be about to share the key. */
  async awaited(fingerprint: string, waitMs: number): Promise<boolean> {
    for (let waited = 0; waited < waitMs; waited += LOOK_MS) {
      if (await this.load(fingerprint)) return true;
      await delay(LOOK_MS);
    }
    return this.load(fingerprint);
  }

  /** Loads the key or makes it. Two processes that make it at once get the same key. */
  async ensure(): Promise<void> {
    if (await this.load()) return;
    await this.write(this.path, randomBytes(32));
    if (!(await this.load()))
      throw new Error(`${this.path} exists but does not contain a key: remove the file`);
  }

  /**
   * Stores a key that another machine shared, in a file named after its fingerprint. False when the key does
   * not have this fingerprint.
   */
  async adopt(key: Buffer, fingerprint: string): Promise<boolean> {
    if (fingerprintOf(key) !== fingerprint) return false;
    await this.write(this.pathOf(fingerprint), key);
    this.key = key;
    return true;
  }

  /** This key for sharing between instances; `fingerprintNow` is the fingerprint in the database. */
  shared(fingerprintNow: () => string | undefined) {
    return {
      lacking: async () => {
        const fingerprint = fingerprintNow();
        // A wrong key in MINATO_ERASURE_KEY is not replaced: the start fails with an error about it.
        return fingerprint === undefined || (await this.load(fingerprint)) || this.key !== undefined
          ? []
          : [SHARED_AS];
      },
      secretOf: async (name: string) =>
        name === SHARED_AS && this.key !== undefined && this.fingerprint === fingerprintNow()
          ? this.key
          : undefined,
      adopt: async (name: string, secret: Buffer) => {
        const fingerprint = fingerprintNow();
        return name === SHARED_AS && fingerprint !== undefined && this.adopt(secret, fingerprint);
      },
    };
  }

  /** Throws unless this is the key that the database was used with. */
  check(fingerprint: string): void {
    if (this.fingerprint !== fingerprint) throw new SubjectKeyMissing(this.path, fingerprint, this.isGiven);
  }

  secret(): Buffer | undefined {
    return this.key;
  }

  /** Undefined when there is no key, which means that nobody was erased. */
  tryHash(community: number, pubkey: string): Buffer | undefined {
    return this.key === undefined ? undefined : this.hash(community, pubkey);
  }

  /** The hash of a public key in a community, or of the community itself. */
  hash(community: number, pubkey = ''): Buffer {
    const name = `${community}:${pubkey}`;
    const known = this.hashes.get(name);
    if (known !== undefined) return known;
    if (this.key === undefined) throw new SubjectKeyMissing(this.path, '');
    const hash = createHmac('sha256', this.key).update(name).digest();
    this.hashes.set(name, hash);
    return hash;
  }

  /** The files to look in: a key is recognised by its fingerprint, whatever its file is called. */
  private async paths(fingerprint: string | undefined): Promise<string[]> {
    if (fingerprint === undefined) return [this.path];
    const names = (await readdir(this.folder).catch(() => [])).filter((name) => name.startsWith('erasure'));
    return [this.path, this.pathOf(fingerprint), ...names.map((name) => join(this.folder, name))];
  }

  private pathOf(fingerprint: string): string {
    return join(this.folder, `erasure-${fingerprint.slice(0, 16)}.key`);
  }

  /**
   * Writes the whole file or nothing. An existing file is kept, so the second writer finds the first one's
   * key.
   */
  private async write(path: string, key: Buffer): Promise<void> {
    await ownFolder(dirname(this.folder), this.folder);
    const made = `${path}.${randomBytes(6).toString('hex')}`;
    await synced(made, (file) => file.writeFile(`${key.toString('hex')}\n`));
    await giveToOwner(dirname(this.folder), made);
    await link(made, path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
    await rm(made, { force: true });
    // The folder is synced too: a power cut must not lose the file of a key that is in use.
    const folder = await open(this.folder, 'r');
    await folder.sync().finally(() => folder.close());
  }
}

async function synced(
  path: string,
  write: (file: Awaited<ReturnType<typeof open>>) => Promise<void>,
): Promise<void> {
  const file = await open(path, 'wx', 0o600);
  try {
    await write(file);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function readKey(path: string): Promise<Buffer | undefined> {
  const text = (await readFile(path, 'utf8').catch(() => '')).trim();
  return KEY.test(text) ? Buffer.from(text, 'hex') : undefined;
}
