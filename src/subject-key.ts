/**
 * The key of the erased. What is left of one who was erased is a keyed hash of their public key: with the key events of theirs are
 * known when they come again, and a dump of the database, which does not hold it, names nobody.
 *
 * It is MINATO_ERASURE_KEY, or a file under the data folder that is made with the first erasure. The database knows a print of it, so
 * that an instance with another key, or without one, refuses to take events in rather than to forget who was erased (I6).
 */
import { createHmac, randomBytes } from 'node:crypto';
import { chmod, link, mkdir, open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';

const KEY = /^[0-9a-f]{64}$/;
const HASHES_MAX = 20_000;

export class SubjectKeyMissing extends Error {
  constructor(path: string, isAnother: boolean) {
    super(
      isAnother
        ? `the key of the erased here (${path}) is not the one that this database's erasures were made with: put the right one in its place`
        : `somebody was erased from this database, and the key that knows them is not here: copy ${path} from the machine that made it, or set MINATO_ERASURE_KEY`,
    );
  }
}

export interface SubjectKeyOptions {
  /** The data folder. */
  readonly folder: string;
  /** MINATO_ERASURE_KEY. */
  readonly given?: string | undefined;
}

export class SubjectKey {
  readonly path: string;
  private readonly folder: string;
  private readonly hashes = new LRUCache<string, Buffer>({ max: HASHES_MAX });
  private key: Buffer | undefined;

  constructor({ folder, given }: SubjectKeyOptions) {
    this.folder = join(folder, 'keys');
    this.path = join(this.folder, 'erasure.key');
    if (given !== undefined) this.key = Buffer.from(given, 'hex');
  }

  /** What the database knows of it; undefined while there is none. */
  get print(): string | undefined {
    return this.key && createHmac('sha256', this.key).update('minato erasure key').digest('hex');
  }

  /** Reads it, if it is there. */
  async load(): Promise<boolean> {
    if (this.key !== undefined) return true;
    const text = (await readFile(this.path, 'utf8').catch(() => '')).trim();
    if (KEY.test(text)) this.key = Buffer.from(text, 'hex');
    return this.key !== undefined;
  }

  /** Reads it, or makes it. Two that make it at once end with the same. */
  async ensure(): Promise<void> {
    if (await this.load()) return;
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    await chmod(this.folder, 0o700);
    const made = `${this.path}.${randomBytes(6).toString('hex')}`;
    const file = await open(made, 'wx', 0o600);
    try {
      await file.writeFile(`${randomBytes(32).toString('hex')}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    // The first one stays: whoever comes second finds it there.
    await link(made, this.path).catch(() => undefined);
    await rm(made, { force: true });
    if (!(await this.load())) throw new SubjectKeyMissing(this.path, false);
  }

  /** Is it the one that the database was used with? */
  check(print: string): void {
    if (this.print !== print) throw new SubjectKeyMissing(this.path, this.key !== undefined);
  }

  /** None, while nobody was erased. */
  tryHash(community: number, pubkey: string): Buffer | undefined {
    return this.key === undefined ? undefined : this.hash(community, pubkey);
  }

  /** Of a public key in a community; or of the community itself. */
  hash(community: number, pubkey = ''): Buffer {
    const name = `${community}:${pubkey}`;
    const known = this.hashes.get(name);
    if (known !== undefined) return known;
    if (this.key === undefined) throw new SubjectKeyMissing(this.path, false);
    const hash = createHmac('sha256', this.key).update(name).digest();
    this.hashes.set(name, hash);
    return hash;
  }
}
